"""Transforms of pictures that are tensors [channels, height, width], under torchvision's names."""

from . import _core


class Compose:
    """Several transforms, one after the other."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    """f32 in 0 to 1, of a tensor of bytes, an array [height, width, channels] of bytes, or a PIL picture.

    A tensor of f32, such as lockstep.datasets gives, stays as it is.
    """

    def __call__(self, image):
        if not isinstance(image, _core.Tensor):
            import numpy

            array = numpy.array(image)
            if array.ndim == 2:
                array = array[:, :, None]
            image = _core.from_numpy(numpy.ascontiguousarray(array.transpose(2, 0, 1)))
        return image.to(_core.float32) / 255 if image.dtype == _core.uint8 else image


class Normalize:
    """(image - mean) / std, for each channel."""

    def __init__(self, mean, std):
        self.mean = _core.tensor([float(m) for m in mean]).reshape((len(mean), 1, 1))
        self.std = _core.tensor([float(s) for s in std]).reshape((len(std), 1, 1))

    def __call__(self, image):
        return (image - self.mean) / self.std


class Resize:
    """Resizes to (height, width), bilinearly without antialiasing; an int is the shorter edge's new length."""

    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        height, width = image.shape[-2:]
        if isinstance(self.size, int):
            scale = self.size / min(height, width)
            size = (round(height * scale), round(width * scale))
        else:
            size = tuple(self.size)
        if size == (height, width):
            return image
        image = image if image.dtype.is_floating_point else image.to(_core.float32)
        from .nn.functional import interpolate

        return interpolate(image[None], size=size, mode="bilinear")[0]


class Lambda:
    """A function as a transform."""

    def __init__(self, lambd):
        self.lambd = lambd

    def __call__(self, image):
        return self.lambd(image)
