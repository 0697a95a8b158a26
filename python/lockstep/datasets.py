"""Data sets of the C++ library under torchvision's names. Their batches are made without the interpreter.

>>> train = lockstep.datasets.FashionMNIST("data", train=True, transform=lockstep.transforms.ToTensor())
"""

import os

from ._core import internal as _internal
from .transforms import ToTensor
from .utils.data import Dataset


class FashionMNIST(Dataset):
    """Items are (image f32 [1, 28, 28] in 0 to 1, label int).

    Reads the IDX files in `root`, in root/FashionMNIST/raw, or, if neither has any, where find_fashion_mnist() of the
    C++ library looks: in LOCKSTEP_DATA, and in the folder of Debian's package dataset-fashion-mnist. `transform` gets
    the image as a tensor.
    """

    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]

    def __init__(self, root="", train=True, transform=None, target_transform=None, download=False):
        folder = next((f for f in (str(root), os.path.join(root, type(self).__name__, "raw")) if _has_idx(f)), "")
        self._files = _internal.fashion_mnist(folder, train)
        self.root = root
        self.train = train
        self.transform = transform
        self.target_transform = target_transform
        plain = (transform is None or type(transform) is ToTensor) and target_transform is None
        self._core_dataset = self._files if plain else None

    def __len__(self):
        return len(self._files)

    def __getitem__(self, index):
        image, label = self._files[index]
        label = label.item()
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label


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


class ImageFolder(Dataset):
    """A folder of pictures with a folder for each class. Items are (image u8 [channels, height, width], label int).

    `transform` gets the image as a tensor. `channels` is 1 for gray and 3 for color pictures; 0: 1 if all are gray.
    """

    def __init__(self, root, transform=None, target_transform=None, channels=3):
        self._files = _internal.CoreImageFolder(str(root), channels)
        self.root = root
        self.transform = transform
        self.target_transform = target_transform
        self.classes = self._files.classes
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self._core_dataset = self._files if transform is None and target_transform is None else None

    @property
    def targets(self):
        return [self._files.label(i) for i in range(len(self))]

    def __len__(self):
        return len(self._files)

    def __getitem__(self, index):
        image, label = self._files[index]
        label = label.item()
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label
