"""Transforms of pictures that are tensors [channels, height, width], under torchvision's names.

>>> train = datasets.CIFAR10("data", transform=transforms.Compose([
...     transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]))

In a DataLoader or a Trainer, the draws of a random transform depend on the seed, the epoch, and the index of the
example, but not on the number of workers or the order of the batches. Elsewhere, it draws from the stream of
manual_seed(). Pictures have one or three channels, of bytes or of float32 in 0 to 1; PIL pictures and arrays [height,
width, channels] of bytes become tensors.
"""

from collections.abc import Iterator

from .. import _core
from .._core import internal as _internal
from ..utils.data import _is_unchanged
from . import functional  # noqa: F401
from .functional import InterpolationMode, picture as _picture  # noqa: F401
from .more import (  # noqa: F401
    ConvertImageDtype, FiveCrop, GaussianBlur, Grayscale, Pad, PILToTensor, RandomAffine, RandomApply, RandomChoice,
    RandomGrayscale, RandomOrder, RandomPerspective, TenCrop, ToPILImage, _Called, drawn as _drawn)


def _core_of(transform):
    """Return the C++ transform that does the same with the current attributes; None if only Python does it."""
    unchanged = _is_unchanged(type(transform), "_make_core", "__call__", "forward")
    # The program may set a forward of one transform, and get_params is an error in forward().
    unchanged = unchanged and "forward" not in vars(transform) and not hasattr(transform, "get_params")
    return transform._make_core() if unchanged else None


class _Transform(_Called):
    """A transform of the C++ library, which _make_core() makes from the attributes."""

    _random = False

    def _set(self, **attributes):
        self.__dict__.update(attributes)
        self._make_core()  # throws for invalid values

    def forward(self, image):
        return self._make_core()(_picture(image), _drawn() if self._random else None)

    def __repr__(self):
        return str(self._make_core())


class _RandomTransform(_Transform):
    _random = True

    def forward(self, image):
        self._check_params()
        return super().forward(image)


class _RandomFlip(_Transform):  # has no get_params in torchvision
    _random = True


class Compose:
    """Several transforms, one after the other."""

    def __init__(self, transforms):
        # The program's own list, which it may edit, as in torchvision. An iterator would be used up by one picture.
        self.transforms = list(transforms) if isinstance(transforms, Iterator) else transforms

    @property
    def _random(self):
        return any(getattr(t, "_random", False) for t in self.transforms)

    def _make_core(self):
        cores = [_core_of(t) for t in self.transforms]
        return None if None in cores else _internal.compose(cores)

    def __call__(self, image):
        core = self._make_core()
        if core is not None:
            return core(_picture(image), _drawn() if self._random else None)
        for transform in self.transforms:
            image = transform(image)
        return image

    def __repr__(self):
        return "Compose(\n" + "".join(f"    {t}\n" for t in self.transforms) + ")"


class ToTensor(_Transform):
    """Converts bytes to f32 in 0 to 1: a tensor, an array [height, width, channels], or a PIL picture.

    A tensor of f32, such as those of lockstep.datasets, stays as it is.
    """

    def _make_core(self):
        return _internal.to_float()

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
        self._set(mean=[float(m) for m in mean], std=[float(s) for s in std])

    def _make_core(self):
        return _internal.normalize(list(self.mean), list(self.std))

    def forward(self, image):
        image = _picture(image)
        # Other types go to the library's transform, too, if they are not floating: it has the error messages.
        if image.dim() == 3 and (image.dtype == _core.float32 or not image.is_floating_point()):
            return super().forward(image)
        if image.dim() < 3:
            raise ValueError(f"Normalize: the picture is {list(image.shape)}, expected [.., channels, height, width]")
        if 0 in self.std:
            raise ValueError(f"Normalize: std is {self.std}, expected numbers other than 0")
        if image.dtype == _core.uint8:
            image = image.to(_core.float32) / 255
        if not image.is_floating_point():
            raise TypeError(f"Normalize: the picture is of {image.dtype}, expected bytes or a floating type")
        mean, std = (_core.tensor(x, dtype=image.dtype).reshape((len(x), 1, 1)) for x in (self.mean, self.std))
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
        self._set(size=size, interpolation=interpolation)

    def _make_core(self):
        size = [self.size] if isinstance(self.size, int) else list(self.size)
        return _internal.resize(size, _interpolation(self.interpolation))


class CenterCrop(_Transform):
    """Crops the window in the middle. Pads a smaller picture with 0."""

    def __init__(self, size):
        self._set(size=_size(size))

    def _make_core(self):
        return _internal.center_crop(*_size(self.size))


class RandomCrop(_RandomTransform):
    """A random window, after `padding` pixels were added on each side."""

    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        if padding_mode != "constant" or not isinstance(padding, (int, type(None))):
            raise _core.Error(f"RandomCrop: padding={padding}, padding_mode='{padding_mode}', expected one number and "
                              "'constant'")
        self._set(size=_size(size), padding=padding, pad_if_needed=pad_if_needed, fill=fill)

    def _make_core(self):
        return _internal.random_crop(*_size(self.size), self.padding or 0, self.pad_if_needed, self.fill)


class RandomResizedCrop(_RandomTransform):
    """A random window with a random part of the area, resized."""

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation="bilinear", antialias=True):
        if not antialias:
            raise _core.Error("RandomResizedCrop: antialias=False, expected True")
        self._set(size=_size(size), scale=scale, ratio=ratio, interpolation=interpolation)

    def _make_core(self):
        return _internal.random_resized_crop(*_size(self.size), tuple(self.scale), tuple(self.ratio),
                                             _interpolation(self.interpolation))


class RandomHorizontalFlip(_RandomFlip):
    """Swaps left and right with probability p."""

    def __init__(self, p=0.5):
        self._set(p=p)

    def _make_core(self):
        return _internal.random_horizontal_flip(self.p)


class RandomVerticalFlip(_RandomFlip):
    """Swaps top and bottom with probability p."""

    def __init__(self, p=0.5):
        self._set(p=p)

    def _make_core(self):
        return _internal.random_vertical_flip(self.p)


class RandomRotation(_RandomTransform):
    """Rotates by an angle within [-degrees, degrees], or within a pair of degrees. The size does not change."""

    def __init__(self, degrees, interpolation="nearest", expand=False, center=None, fill=0):
        if expand or center is not None:
            raise _core.Error(f"RandomRotation: expand={expand}, center={center}, expected False and None")
        degrees = (-degrees, degrees) if isinstance(degrees, (int, float)) else tuple(degrees)
        self._set(degrees=degrees, interpolation=interpolation, fill=fill)

    def _make_core(self):
        return _internal.random_rotation(tuple(self.degrees), _interpolation(self.interpolation), self.fill)


class ColorJitter(_RandomTransform):
    """Random factors for brightness, contrast, and saturation, each in [max(0, 1 - x), 1 + x], and a shift of hue."""

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0):
        self._set(brightness=brightness, contrast=contrast, saturation=saturation, hue=hue)

    def _make_core(self):
        numbers = (self.brightness, self.contrast, self.saturation, self.hue)
        if not all(isinstance(x, (int, float)) for x in numbers):
            raise _core.Error(f"ColorJitter: {numbers}, expected numbers")
        return _internal.color_jitter(*numbers)


class RandomErasing(_RandomTransform):
    """Paints over a random rectangle with probability p."""

    def __init__(self, p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False):
        if inplace:
            raise _core.Error("RandomErasing: inplace=True, expected False")
        self._set(p=p, scale=scale, ratio=ratio, value=value)

    def _make_core(self):
        if not isinstance(self.value, (int, float)):
            raise _core.Error(f"RandomErasing: value={self.value!r}, expected a number")
        return _internal.random_erasing(self.p, tuple(self.scale), tuple(self.ratio), self.value)


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
    """Like MixUp, but a rectangle shows the other picture."""

    _CORE = _internal.CutMix
