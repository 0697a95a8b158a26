"""gluon.data: sets of examples, and the loader, whose batches are arrays.

>>> train = gluon.data.vision.FashionMNIST(train=True).transform_first(gluon.data.vision.transforms.ToTensor())
>>> for X, y in gluon.data.DataLoader(train, 256, shuffle=True): ...
"""

import types

from .. import _core, datasets as _datasets, transforms as _transforms
from ..utils import data as _data
from .arrays import _array, array as _make_array


class Dataset(_data.Dataset):
    """Numbered examples: define __getitem__(index) and __len__()."""

    def transform(self, fn, lazy=True):
        """Return the set of fn(*example)."""
        return _Transformed(self, fn)

    def transform_first(self, fn, lazy=True):
        """Return the set of (fn(first part of the example), the rest)."""
        return _Transformed(self, lambda first, *rest: (fn(first), *rest) if rest else fn(first))

    def take(self, count):
        """Return the set of the first `count` examples."""
        return _Taken(self, range(min(count or len(self), len(self))))


class _Taken(_data.Subset, Dataset):
    pass


class _Transformed(Dataset):
    def __init__(self, source, fn):
        self._source, self._fn = source, fn

    def __len__(self):
        return len(self._source)

    def __getitem__(self, index):
        item = self._source[index]
        return self._fn(*item) if isinstance(item, tuple) else self._fn(item)


class SimpleDataset(Dataset):
    """The examples of a list."""

    def __init__(self, data):
        self._items = data

    def __len__(self):
        return len(self._items)

    def __getitem__(self, index):
        return self._items[index]


class ArrayDataset(Dataset):
    """Example i is the tuple of row i of each array; with one array, the row itself."""

    def __init__(self, *args):
        arrays = [x if isinstance(x, _core.Tensor) else _make_array(x) for x in args]
        if not arrays or any(len(x) != len(arrays[0]) for x in arrays):
            raise ValueError(f"ArrayDataset: arrays of {[len(x) for x in arrays]} rows, expected equal numbers")
        self._arrays = arrays

    def __len__(self):
        return len(self._arrays[0])

    def __getitem__(self, index):
        return tuple(x[index] for x in self._arrays) if len(self._arrays) > 1 else self._arrays[0][index]


class DataLoader(_data.DataLoader):
    """Batches of arrays. last_batch: "keep" the remaining examples as a smaller batch, or "discard" them."""

    def __init__(self, dataset, batch_size=None, shuffle=False, sampler=None, last_batch="keep", num_workers=0):
        if last_batch not in ("keep", "discard"):
            raise ValueError(f"DataLoader: last_batch={last_batch!r}, expected 'keep' or 'discard'")
        if batch_size is None:
            raise ValueError("DataLoader: batch_size is missing")
        super().__init__(dataset, batch_size, shuffle=shuffle, sampler=sampler, drop_last=last_batch == "discard",
                         num_workers=num_workers)

    def __iter__(self):
        return map(_array, super().__iter__())


# Pictures of bytes [height, width, channels] and their labels. The transforms of lockstep are computed without the
# interpreter.
class _Pictures(Dataset):
    def __init__(self, files):
        self._files = files

    def transform_first(self, fn, lazy=True):
        transformed = isinstance(fn, (_transforms._Transform, _transforms.Compose))
        return _TransformedPictures(self._files, fn) if transformed else super().transform_first(fn)

    def __len__(self):
        return len(self._files)

    def __getitem__(self, index):
        image, label = self._files[index]
        return _array((image * 255).round().to(_core.uint8).permute(1, 2, 0).contiguous()), label


class _TransformedPictures(Dataset):
    def __init__(self, files, fn):
        self._files, self._fn = files, fn

    def _make_core(self):
        core = _transforms._core_of(self._fn)
        return None if core is None else _core.internal.transformed(self._files._source(), core)

    def __len__(self):
        return len(self._files)

    def __getitem__(self, index):
        image, label = self._files[index]
        return _array(self._fn(image)), label


class FashionMNIST(_Pictures):
    """As lockstep.datasets.FashionMNIST, which says where the files are. Examples: (u8 [28, 28, 1], label)."""

    def __init__(self, root="", train=True):
        super().__init__(_datasets.FashionMNIST(root, train))


class MNIST(_Pictures):
    """Handwritten digits, in the files of lockstep.datasets.MNIST."""

    def __init__(self, root, train=True):
        super().__init__(_datasets.MNIST(root, train))


class CIFAR10(_Pictures):
    """As lockstep.datasets.CIFAR10. Examples: (u8 [32, 32, 3], label)."""

    def __init__(self, root, train=True):
        super().__init__(_datasets.CIFAR10(root, train))


class Resize(_transforms.Resize):
    """Resizes to size, an int of a square or (width, height)."""

    def __init__(self, size, keep_ratio=False):
        if isinstance(size, int):
            size = size if keep_ratio else (size, size)
        else:
            size = (size[1], size[0])
        super().__init__(size)


vision = types.SimpleNamespace(
    FashionMNIST=FashionMNIST, MNIST=MNIST, CIFAR10=CIFAR10,
    transforms=types.SimpleNamespace(ToTensor=_transforms.ToTensor, Compose=_transforms.Compose, Resize=Resize,
                                     CenterCrop=_transforms.CenterCrop))
