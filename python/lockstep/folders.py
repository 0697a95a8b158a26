"""Data sets of folders with one folder per class, under torchvision's names: lockstep.datasets has them.

>>> photos = ImageFolder("photos")
>>> photos.classes, photos.samples[0]
(['cat', 'dog'], ('photos/cat/1.jpg', 0))
"""

import os

from ._core import internal as _internal
from .transforms import _core_of
from .utils.data import Dataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def default_loader(path):
    """Return the JPEG or PNG file as a tensor of bytes [3, height, width]."""
    return _internal.read_image(str(path), 3, 0)


def find_classes(directory):
    """Return the sorted names of the folders in a folder, and their indices."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(directory, class_to_idx=None, extensions=None, is_valid_file=None):
    """Return the path and class index of each file that `extensions`, or is_valid_file(path), accepts."""
    if class_to_idx is None:
        _, class_to_idx = find_classes(directory)
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    if is_valid_file is None:
        endings = (extensions,) if isinstance(extensions, str) else tuple(extensions)

        def is_valid_file(path):
            return path.lower().endswith(endings)

    samples, empty = [], []
    for name in sorted(class_to_idx):
        before = len(samples)
        for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            paths = (os.path.join(folder, file) for file in sorted(files))
            samples += [(path, class_to_idx[name]) for path in paths if is_valid_file(path)]
        if len(samples) == before:
            empty.append(name)
    if empty:
        found = "" if extensions is None else f" Supported extensions are: {', '.join(endings)}"
        raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}.{found}")
    return samples


class DatasetFolder(Dataset):
    """Items are (loader(path), label) of the files in a folder for each class.

    A program may change `samples`, and define find_classes() and make_dataset() in a class of its own.
    """

    def __init__(self, root, loader, extensions=None, transform=None, target_transform=None, is_valid_file=None):
        self.root = os.fspath(root)
        self.transform, self.target_transform = transform, target_transform
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file)
        self.targets = [label for _, label in self.samples]

    def find_classes(self, directory):
        """Return the classes and their numbers."""
        return find_classes(directory)

    @staticmethod
    def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None):
        """Return the samples."""
        return make_dataset(directory, class_to_idx, extensions, is_valid_file)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = self.loader(path)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label


class ImageFolder(DatasetFolder):
    """A folder of pictures with a folder for each class. Items are (image u8 [channels, height, width], label int).

    `channels` is 1 for gray and 3 for color pictures; 0: 1 if all are gray. Without loader, is_valid_file, and methods
    of a derived class, every file must be a JPEG or PNG picture, and the library reads them without the interpreter.

    `max_pixels`: the largest number of pixels of a picture, however small its file is. None: 178956970, as in Pillow,
    but less for a small file, which is unlikely to have so many.
    """

    def __init__(self, root, transform=None, target_transform=None, loader=None, is_valid_file=None, channels=3,
                 max_pixels=None):
        if max_pixels is not None and max_pixels < 1:
            raise ValueError(f"ImageFolder: max_pixels is {max_pixels}, expected at least 1, or None")
        most = max_pixels or 0
        own = loader or is_valid_file or any(name in vars(c) for c in type(self).__mro__
                                             if c.__module__ != __name__ for name in ("find_classes", "make_dataset"))
        self._files = None if own else _internal.CoreImageFolder(os.fspath(root), channels, most)
        if own:
            if loader is None and max_pixels is not None:
                def loader(path):
                    return _internal.read_image(str(path), 3, most)
            super().__init__(root, loader or default_loader, None if is_valid_file else IMG_EXTENSIONS, transform,
                             target_transform, is_valid_file)
        else:
            self.root, self.extensions = os.fspath(root), IMG_EXTENSIONS
            self.loader = self._own_loader = lambda path: _internal.read_image(str(path), self._files.channels, most)
            self.transform, self.target_transform = transform, target_transform
            self.classes = self._files.classes
            self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
            self._read = [(self._files.path(i), self._files.label(i)) for i in range(len(self._files))]
            self.samples = list(self._read)
            self.targets = [label for _, label in self.samples]
        self.imgs = self.samples

    # Returns None after the program has changed which files are read, or how.
    def _make_core(self):
        if self._files is None or self.target_transform is not None:
            return None
        if self.loader is not self._own_loader or self.samples != self._read:
            return None
        if self.transform is None:
            return self._files
        core = _core_of(self.transform)
        return None if core is None else _internal.transformed(self._files, core)
