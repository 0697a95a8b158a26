"""Transforms that Python computes, from the functions of transforms.functional."""

import math

from .. import _core
from .._core import internal as _internal
from . import functional as F


def drawn():
    """Return a draw from the stream of manual_seed(), or 0 if the example's key decides the numbers."""
    return 0 if _internal.has_example_key() else _core.randint(0, 1 << 62, (1,)).item()


def draws(n):
    """Return n numbers in [0, 1), drawn with the example's key, or from the stream of manual_seed()."""
    return _internal.uniform_draws(n, drawn())


def _between(low, high, draw):
    return low + (high - low) * draw


class _Called:
    """A call computes forward(), which a class of the program may override."""

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def _check_params(self):
        # The library draws the numbers itself.
        if hasattr(self, "get_params"):
            raise _core.Error(f"{type(self).__name__}: get_params() is not called, expected a forward() that calls it")


class _Named(_Called):
    """repr() shows the attributes."""

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in vars(self).items())})"


def _list_of(transforms):
    return "".join(f"\n    {t}" for t in transforms)


class Pad(_Named):
    """Adds pixels on all sides: see functional.pad()."""

    def __init__(self, padding, fill=0, padding_mode="constant"):
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img):
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class Grayscale(_Named):
    """The luminance, as one channel or three equal ones."""

    def __init__(self, num_output_channels=1):
        self.num_output_channels = num_output_channels

    def forward(self, img):
        return F.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(_Named):
    """Converts to the luminance with probability p, in as many channels as the picture has."""

    def __init__(self, p=0.1):
        self.p = p

    def forward(self, img):
        img = F.picture(img)
        return F.rgb_to_grayscale(img, img.size(-3)) if draws(1)[0] < self.p else img


class GaussianBlur(_Named):
    """Blurs with a standard deviation between two numbers, or with one."""

    def __init__(self, kernel_size, sigma=(0.1, 2.0)):
        self.kernel_size = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
        if any(k <= 0 or k % 2 == 0 for k in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        self.sigma = (sigma, sigma) if isinstance(sigma, (int, float)) else tuple(sigma)
        if not 0.0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError("sigma values should be positive and of the form (min, max).")

    def forward(self, img):
        self._check_params()
        sigma = _between(*self.sigma, draws(1)[0])
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])


class PILToTensor(_Named):
    """Converts a PIL picture to bytes [channels, height, width]."""

    def __call__(self, pic):
        return F.pil_to_tensor(pic)


class ToPILImage:
    """Converts a tensor [channels, height, width] or an array [height, width, channels] to a PIL picture."""

    def __init__(self, mode=None):
        self.mode = mode

    def __call__(self, pic):
        return F.to_pil_image(pic, self.mode)

    def __repr__(self):
        return f"ToPILImage(mode={self.mode})" if self.mode else "ToPILImage()"


class ConvertImageDtype(_Called):
    """Converts to another type, and to the range of that type."""

    def __init__(self, dtype):
        self.dtype = dtype

    def forward(self, image):
        return F.convert_image_dtype(image, self.dtype)

    def __repr__(self):
        return "ConvertImageDtype()"


class FiveCrop(_Named):
    """Returns a tuple of the windows in the corners and in the middle."""

    def __init__(self, size):
        self.size = size

    def forward(self, img):
        return F.five_crop(img, self.size)


class TenCrop(_Named):
    """Returns a tuple of the five windows, and those of the flipped picture."""

    def __init__(self, size, vertical_flip=False):
        self.size, self.vertical_flip = size, vertical_flip

    def forward(self, img):
        return F.ten_crop(img, self.size, self.vertical_flip)


class RandomApply(_Called):
    """Applies all of the transforms with probability p, otherwise none."""

    def __init__(self, transforms, p=0.5):
        self.transforms, self.p = transforms, p

    def forward(self, img):
        if self.p < draws(1)[0]:
            return img
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self):
        return f"RandomApply(\n    p={self.p}{_list_of(self.transforms)}\n)"


class RandomOrder:
    """Applies all of the transforms in random order."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        places = draws(len(self.transforms))
        for i in sorted(range(len(places)), key=places.__getitem__):
            img = self.transforms[i](img)
        return img

    def __repr__(self):
        return f"RandomOrder({_list_of(self.transforms)}\n)"


class RandomChoice:
    """Applies one of the transforms; p: their probabilities, or proportional weights."""

    def __init__(self, transforms, p=None):
        if p is not None and len(p) != len(transforms):
            raise ValueError(f"RandomChoice: {len(p)} probabilities of {len(transforms)} transforms")
        self.transforms, self.p = transforms, p

    def __call__(self, img):
        weights = self.p or [1] * len(self.transforms)
        rest = draws(1)[0] * sum(weights)
        for transform, weight in zip(self.transforms, weights):
            if rest < weight:
                break
            rest -= weight
        return transform(img)

    def __repr__(self):
        return f"RandomChoice({_list_of(self.transforms)}\n)(p={self.p})"


def _span(name, value, n=2):
    """Return (-x, x) for a number x."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return (-value, value)
    if len(value) not in ((2,) if n == 2 else (2, n)):
        raise ValueError(f"{name} should be a sequence of length {n}.")
    return tuple(value)


class RandomAffine(_Called):
    """Rotates, moves, scales, and shears by random numbers; the size does not change. Angles are in degrees.

    translate: the largest shifts, as fractions of width and height. scale: the smallest and the largest factor. shear:
    a number x for (-x, x), or the limits along x, or along x and y.
    """

    def __init__(self, degrees, translate=None, scale=None, shear=None, interpolation="nearest", fill=0, center=None):
        self.degrees = _span("degrees", degrees)
        if translate is not None and any(not 0.0 <= t <= 1.0 for t in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and any(s <= 0 for s in scale):
            raise ValueError("scale values should be positive")
        self.translate, self.scale = translate, scale
        self.shear = None if shear is None else _span("shear", shear, 4)
        self.interpolation, self.fill, self.center = interpolation, fill, center

    def forward(self, img):
        self._check_params()
        img = F.picture(img)
        draw = draws(6)
        height, width = img.shape[-2:]
        angle = _between(*self.degrees, draw[0])
        moves = [0, 0]
        if self.translate is not None:
            most = (float(self.translate[0] * width), float(self.translate[1] * height))
            moves = [int(round(_between(-m, m, d))) for m, d in zip(most, draw[1:3])]
        scale = 1.0 if self.scale is None else _between(*self.scale, draw[3])
        shear = [0.0, 0.0]
        if self.shear is not None:
            shear[0] = _between(*self.shear[:2], draw[4])
            if len(self.shear) == 4:
                shear[1] = _between(*self.shear[2:], draw[5])
        fill = self.fill
        if isinstance(fill, (int, float)):
            fill = [float(fill)] * img.size(-3)
        return F.affine(img, angle, moves, scale, shear, self.interpolation, fill, self.center)

    def __repr__(self):
        return (f"RandomAffine(degrees={self.degrees}, translate={self.translate}, scale={self.scale}, "
                f"shear={self.shear})")


class RandomPerspective(_Called):
    """With probability p, moves the corners inwards, each by at most the fraction distortion_scale of half an edge."""

    def __init__(self, distortion_scale=0.5, p=0.5, interpolation="bilinear", fill=0):
        self.distortion_scale, self.p, self.interpolation, self.fill = distortion_scale, p, interpolation, fill

    def forward(self, img):
        self._check_params()
        img = F.picture(img)
        draw = draws(9)
        if draw[0] >= self.p:
            return img
        height, width = img.shape[-2:]
        most = [int(self.distortion_scale * (width // 2)) + 1, int(self.distortion_scale * (height // 2)) + 1]
        inwards = [math.floor(d * most[i % 2]) for i, d in enumerate(draw[1:])]
        start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        signs = [(1, 1), (-1, 1), (-1, -1), (1, -1)]
        end = [[x + sx * inwards[2 * i], y + sy * inwards[2 * i + 1]]
               for i, ((x, y), (sx, sy)) in enumerate(zip(start, signs))]
        fill = [float(self.fill)] * img.size(-3) if isinstance(self.fill, (int, float)) else self.fill
        return F.perspective(img, start, end, self.interpolation, fill)

    def __repr__(self):
        return f"RandomPerspective(p={self.p})"
