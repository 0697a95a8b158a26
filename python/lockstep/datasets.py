"""Data sets of the C++ library under torchvision's names. Their batches are made without the Python interpreter.

>>> train = lockstep.datasets.FashionMNIST("data", train=True, transform=lockstep.transforms.ToTensor())
"""

import os

from . import _core
from ._core import internal as _internal
from .folders import DatasetFolder, ImageFolder  # noqa: F401
from .transforms import ToTensor, _core_of
from .utils.data import Dataset

_TO_TENSOR = ToTensor()


class _Pictures(Dataset):
    """Items are (image, label int). `transform` gets the image as a tensor."""

    def __init__(self, files, root, transform, target_transform):
        self._files = files
        self.root = root
        self.transform = transform
        self.target_transform = target_transform

    # The C++ data set of the examples before the transforms.
    def _source(self):
        return self._files

    def _example(self, index):
        return self._files[index]

    def _make_core(self):
        if self.target_transform is not None:
            return None
        if self.transform is None:
            return self._source()
        core = _core_of(self.transform)
        return None if core is None else _internal.transformed(self._source(), core)

    def __len__(self):
        return len(self._files)

    def __getitem__(self, index):
        image, label = self._example(index)
        label = int(label)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label


class _Floats(_Pictures):
    """Pictures that are already f32 in [0, 1]."""

    # [data, targets] after the program has asked for one of them: from then on, the examples come from these two, which
    # the program may change.
    _arrays = None

    def _read(self):
        if self._arrays is None:
            n, parts = len(self._files), []
            for first in range(0, n, 4096):
                x, y = self._files.batch(list(range(first, min(first + 4096, n))))
                parts.append(((x * 255).round().to(_core.uint8).cpu(), y))
            x, y = (_core.cat(part).cpu() for part in zip(*parts))
            self._arrays = [self._data_of(x), self._targets_of(y)]
        return self._arrays

    @property
    def data(self):
        """The bytes of all pictures, as torchvision has them. The examples change with them."""
        return self._read()[0]

    @data.setter
    def data(self, data):
        self._read()[0] = data

    @property
    def targets(self):
        """The labels of all pictures. The examples change with them."""
        return self._read()[1]

    @targets.setter
    def targets(self, targets):
        self._read()[1] = targets

    def _source(self):
        if self._arrays is None:
            return self._files
        labels = _core.as_tensor(self.targets, dtype=_core.int64)
        return _internal.byte_pictures(self._pictures_of(self.data), labels)

    def _example(self, index):
        if self._arrays is None:
            return self._files[index]
        return _TO_TENSOR(self._pictures_of(self.data[index])), self.targets[index]

    def _make_core(self):
        if type(self.transform) is ToTensor and self.target_transform is None:
            return self._source()
        return super()._make_core()

    def __len__(self):
        return len(self._files) if self._arrays is None else len(self.data)


class FashionMNIST(_Floats):
    """Items are (image f32 [1, 28, 28] in 0 to 1, label int).

    Reads the IDX files in `root`, in root/FashionMNIST/raw, or, if neither has any, where find_fashion_mnist() of the
    C++ library finds them: in LOCKSTEP_DATA, or in the folder of Debian's package dataset-fashion-mnist.

    data: u8 [n, 28, 28], targets: i64 [n]. A program may change both.
    """

    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]

    def __init__(self, root="", train=True, transform=None, target_transform=None, download=False):
        folder = next((f for f in (str(root), os.path.join(root, type(self).__name__, "raw")) if _has_idx(f)), "")
        self.train = train
        super().__init__(_internal.fashion_mnist(folder, train), root, transform, target_transform)

    @property
    def class_to_idx(self):
        return {name: i for i, name in enumerate(self.classes)}

    def _data_of(self, pictures):
        return pictures.squeeze(1)

    def _targets_of(self, labels):
        return labels

    def _pictures_of(self, data):
        return _core.as_tensor(data).unsqueeze(-3)


class MNIST(FashionMNIST):
    """Handwritten digits, in the same files as FashionMNIST's."""

    classes = [str(digit) for digit in range(10)]

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        if not _has_idx(str(root)) and not _has_idx(os.path.join(root, "MNIST", "raw")):
            raise RuntimeError(f"MNIST: no IDX files in {root!r} or its folder MNIST/raw")
        super().__init__(root, train, transform, target_transform, download)


def _has_idx(folder):
    prefixes = ("train-images", "t10k-images")
    return os.path.isdir(folder) and any(name.startswith(prefixes) for name in os.listdir(folder))


class CIFAR10(_Floats):
    """Items are (image f32 [3, 32, 32] in 0 to 1, label int), of the binary version of the files.

    Reads `root`, or its folder cifar-10-batches-bin. Nothing is downloaded.

    data: a NumPy array u8 [n, 32, 32, 3], targets: a list. A program may change both.
    """

    _FOLDER = "cifar-10-batches-bin"
    _FILES = {True: [f"data_batch_{i}.bin" for i in range(1, 6)], False: ["test_batch.bin"]}

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        folders = (str(root), os.path.join(root, self._FOLDER))
        folder = next((f for f in folders if _internal.is_cifar(f)), None)
        if folder is None:
            raise RuntimeError(f"{type(self).__name__}: no files of the binary version in {folders[0]} or {folders[1]}")
        missing = [name for name in self._FILES[bool(train)] if not os.path.isfile(os.path.join(folder, name))]
        if missing:
            raise RuntimeError(f"{type(self).__name__}: {folder} has no {', '.join(missing)}: it is incomplete")
        self.train = train
        files, self.classes = _internal.cifar(folder, train)
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        super().__init__(files, root, transform, target_transform)

    def _data_of(self, pictures):
        return pictures.permute(0, 2, 3, 1).contiguous().numpy()

    def _targets_of(self, labels):
        return labels.tolist()

    def _pictures_of(self, data):
        import numpy

        return _core.from_numpy(numpy.ascontiguousarray(numpy.moveaxis(data, -1, -3)))


class CIFAR100(CIFAR10):
    """As CIFAR10, with a hundred classes, in cifar-100-binary."""

    _FOLDER = "cifar-100-binary"
    _FILES = {True: ["train.bin"], False: ["test.bin"]}


class TableDataset(Dataset):
    """The rows of a CSV or TSV file. Items are (features f32 [n], label).

    A number becomes (value - mean) / standard deviation, a category the index of its text. The label is an i64 for
    classes and f32 [1] for numbers, normalized, too. target: the column to predict; by default the last one. `schema`:
    that of the table that a model was trained with, so that a table for tests is encoded alike:

    >>> train = TableDataset("train.csv", target="species")
    >>> test = TableDataset("test.csv", schema=train.schema)
    """

    def __init__(self, path, target="", schema=None, ignore=(), categories=(), header=None):
        self._rows, self.schema = _internal.table(str(path), schema, target, list(ignore), list(categories), header)
        self.classes = self.schema.classes

    def _make_core(self):
        return self._rows

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        return self._rows[index]

    def __repr__(self):
        target = f"{len(self.classes)} classes" if self.classes else "numbers"
        return (f"TableDataset({len(self)} rows, {self.schema.features} features, target: {target}; numbers are "
                "standardized)")
