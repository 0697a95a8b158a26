"""Transforms of pictures that are tensors [channels, height, width], under torchvision's names.

>>> train = datasets.CIFAR10("data", transform=transforms.Compose([
...     transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]))

In a DataLoader or a Trainer, what a random transform draws follows from the seed, the epoch, and the number of the
example: it depends neither on the number of workers nor on the order of the batches. Elsewhere, it draws from the
stream of manual_seed(). Pictures have one or three channels, of bytes or of float32 in 0 to 1; PIL pictures and arrays
[height, width, channels] of bytes become tensors.
"""

from . import _core
from ._core import Tensor, internal as _internal


def _drawn():
    return 0 if _internal.has_example_key() else _core.randint(0, 1 << 62, (1,)).item()


def _picture(image):
    if isinstance(image, Tensor):
        return image
    import numpy

    array = numpy.array(image)
    if array.ndim == 2:
        array = array[:, :, None]
    return _core.from_numpy(numpy.ascontiguousarray(array.transpose(2, 0, 1)))


class _Transform:
    """A transform of the C++ library."""

    _random = False

    def __call__(self, image):
        return self._core(_picture(image), _drawn() if self._random else None)

    def __repr__(self):
        return str(self._core)


class _RandomTransform(_Transform):
    _random = True


class Compose:
    """Several transforms, one after the other."""

    def __init__(self, transforms):
        self.transforms = list(transforms)
        cores = [getattr(t, "_core", None) for t in self.transforms]
        self._core = None if None in cores else _internal.compose(cores)
        self._random = any(getattr(t, "_random", False) for t in self.transforms)

    def __call__(self, image):
        if self._core is not None:
            return _Transform.__call__(self, image)
        for transform in self.transforms:
            image = transform(image)
        return image

    def __repr__(self):
        return "Compose(\n" + "".join(f"    {t}\n" for t in self.transforms) + ")"


class ToTensor(_Transform):
    """f32 in 0 to 1, of a tensor or an array [height, width, channels] of bytes, or a PIL picture.

    A tensor of f32, such as lockstep.datasets gives, stays as it is.
    """

    def __init__(self):
        self._core = _internal.to_float()

    def __call__(self, image):
        image = _picture(image)
        return image.to(_core.float32) / 255 if image.dtype == _core.uint8 else image

    def __repr__(self):
        return "ToTensor()"


class Normalize(_Transform):
    """(image - mean) / std, for each channel, in f32; bytes are divided by 255 first."""

    def __init__(self, mean, std, inplace=False):
        if inplace:
            raise _core.Error("Normalize: inplace=True, expected False")
        self.mean, self.std = [float(m) for m in mean], [float(s) for s in std]
        self._core = _internal.normalize(self.mean, self.std)

    def __call__(self, image):
        image = _picture(image)
        if image.dim() == 3:
            return super().__call__(image)
        mean, std = (_core.tensor(x).reshape((len(x), 1, 1)) for x in (self.mean, self.std))
        return (image - mean) / std


def _size(size):
    return (size, size) if isinstance(size, int) else tuple(size) if len(size) == 2 else (size[0], size[0])


def _interpolation(interpolation):
    return str(getattr(interpolation, "value", interpolation))


class Resize(_Transform):
    """Resizes to (height, width), as PIL does; an int is the shorter edge's new length."""

    def __init__(self, size, interpolation="bilinear", max_size=None, antialias=True):
        if max_size is not None or not antialias:
            raise _core.Error(f"Resize: max_size={max_size}, antialias={antialias}, expected None and True")
        self.size = size
        self._core = _internal.resize([size] if isinstance(size, int) else list(size), _interpolation(interpolation))


class CenterCrop(_Transform):
    """The window in the middle. A smaller picture is surrounded by 0."""

    def __init__(self, size):
        self.size = _size(size)
        self._core = _internal.center_crop(*self.size)


class RandomCrop(_RandomTransform):
    """A random window, after `padding` pixels were added on each side."""

    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        if padding_mode != "constant" or not isinstance(padding, (int, type(None))):
            raise _core.Error(f"RandomCrop: padding={padding}, padding_mode='{padding_mode}', expected one number and "
                              "'constant'")
        self.size = _size(size)
        self._core = _internal.random_crop(*self.size, padding or 0, pad_if_needed, fill)


class RandomResizedCrop(_RandomTransform):
    """A random window of a part of the area, resized."""

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation="bilinear", antialias=True):
        if not antialias:
            raise _core.Error("RandomResizedCrop: antialias=False, expected True")
        self.size = _size(size)
        self._core = _internal.random_resized_crop(*self.size, tuple(scale), tuple(ratio),
                                                   _interpolation(interpolation))


class RandomHorizontalFlip(_RandomTransform):
    """Swaps left and right with probability p."""

    def __init__(self, p=0.5):
        self.p = p
        self._core = _internal.random_horizontal_flip(p)


class RandomVerticalFlip(_RandomTransform):
    """Swaps top and bottom with probability p."""

    def __init__(self, p=0.5):
        self.p = p
        self._core = _internal.random_vertical_flip(p)


class RandomRotation(_RandomTransform):
    """Turns by an angle within [-degrees, degrees], or within a pair of degrees. The size stays."""

    def __init__(self, degrees, interpolation="nearest", expand=False, center=None, fill=0):
        if expand or center is not None:
            raise _core.Error(f"RandomRotation: expand={expand}, center={center}, expected False and None")
        self.degrees = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)
        self._core = _internal.random_rotation(self.degrees, _interpolation(interpolation), fill)


class ColorJitter(_RandomTransform):
    """Random factors for brightness, contrast, and saturation, each in [max(0, 1 - x), 1 + x], and a shift of hue."""

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0):
        numbers = (brightness, contrast, saturation, hue)
        if not all(isinstance(x, (int, float)) for x in numbers):
            raise _core.Error(f"ColorJitter: {numbers}, expected numbers")
        self._core = _internal.color_jitter(*numbers)


class RandomErasing(_RandomTransform):
    """Paints over a random rectangle with probability p."""

    def __init__(self, p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False):
        if not isinstance(value, (int, float)):
            raise _core.Error(f"RandomErasing: value={value!r}, expected a number")
        self._core = _internal.random_erasing(p, tuple(scale), tuple(ratio), value)


class Lambda:
    """A function as a transform."""

    def __init__(self, lambd):
        self.lambd = lambd

    def __call__(self, image):
        return self.lambd(image)


class _Mix:
    def __init__(self, *, alpha=1.0, num_classes):
        self._mix = self._CORE(alpha, num_classes)

    def __call__(self, *batch):
        """(images, labels) -> (images, probabilities of classes), of a batch in host memory."""
        batch = batch[0] if len(batch) == 1 else batch
        return tuple(self._mix(list(batch), _drawn()))


class MixUp(_Mix):
    """Mixes each example of a batch with the one before it: in a loop, a collate_fn, or Trainer(batch_transform=)."""

    _CORE = _internal.MixUp


class CutMix(_Mix):
    """As MixUp, but a rectangle shows the other picture."""

    _CORE = _internal.CutMix
