"""What the programs of "Dive into Deep Learning" for PyTorch take from the book's package, with its names."""

import sys
import time

import lockstep as torch
import lockstep.nn as nn
import lockstep.nn.functional as F
from lockstep import datasets, transforms
from lockstep.gluon import split_and_load
from lockstep.utils.data import DataLoader, Subset


class Timer:
    """Record multiple running times."""

    def __init__(self):
        self.times = []
        self.start()

    def start(self):
        self.tik = time.time()

    def stop(self):
        self.times.append(time.time() - self.tik)
        return self.times[-1]

    def avg(self):
        return sum(self.times) / len(self.times)


class Benchmark:
    """For measuring running time."""

    def __init__(self, description='Done'):
        self.description = description

    def __enter__(self):
        self.timer = Timer()
        return self

    def __exit__(self, *args):
        print(f'{self.description}: {self.timer.stop():.4f} sec')


class Accumulator:
    """For accumulating sums over `n` variables."""

    def __init__(self, n):
        self.data = [0.0] * n

    def add(self, *args):
        self.data = [a + float(b) for a, b in zip(self.data, args)]

    def __getitem__(self, idx):
        return self.data[idx]


class Animator:
    """Print points as they come, where the book draws them."""

    def __init__(self, xlabel=None, ylabel=None, xlim=None, **kwargs):
        self.xlabel, self.ylabel = xlabel, ylabel
        self.X, self.Y = [], []

    def add(self, x, y):
        y = list(y) if hasattr(y, '__len__') else [y]
        self.X = self.X or [[] for _ in y]
        self.Y = self.Y or [[] for _ in y]
        for i, value in enumerate(y):
            self.X[i].append(x)
            self.Y[i].append(value)
        print(f'{self.xlabel} {x}, {self.ylabel} ' + ', '.join(f'{v:.2f}' for v in y))
        sys.stdout.flush()


def try_gpu(i=0):
    """Return device i of the program if it exists, otherwise the first."""
    devices = torch.devices()
    return devices[i] if i < len(devices) else devices[0]


def try_all_gpus():
    """Return all devices of the program."""
    return torch.devices()


# Of the training and of the test part: how many examples to use. None: all.
limit_train = limit_test = None


def load_data_fashion_mnist(batch_size, resize=None):
    """Load Fashion-MNIST, and return loaders of the training and the test part."""
    trans = [transforms.ToTensor()]
    if resize:
        trans.insert(0, transforms.Resize(resize))
    trans = transforms.Compose(trans) if resize else trans[0]
    parts = [datasets.FashionMNIST(root="../data", train=train, transform=trans, download=True)
             for train in (True, False)]
    parts = [part if limit is None else Subset(part, range(limit))
             for part, limit in zip(parts, (limit_train, limit_test))]
    return (DataLoader(parts[0], batch_size, shuffle=True, num_workers=1),
            DataLoader(parts[1], batch_size, shuffle=False, num_workers=1))


def accuracy(y_hat, y):
    """Compute the number of correct predictions."""
    return (y_hat.argmax(1) == y).sum().item()


def evaluate_accuracy_gpu(net, data_iter, device=None):
    """Compute the accuracy for a model on a dataset."""
    net.eval()
    if not device:
        device = next(iter(net.parameters())).device
    metric = Accumulator(2)
    with torch.no_grad():
        for X, y in data_iter:
            metric.add(accuracy(net(X.to(device)), y.to(device)), y.numel())
    return metric[0] / metric[1]


def split_batch(X, y, devices):
    """Split `X` and `y` into multiple devices."""
    assert X.shape[0] == y.shape[0]
    return (split_and_load(X, devices, even_split=False), split_and_load(y, devices, even_split=False))


class Residual(nn.Module):
    """The Residual block of ResNet models."""

    def __init__(self, num_channels, use_1x1conv=False, strides=1):
        super().__init__()
        self.conv1 = nn.LazyConv2d(num_channels, kernel_size=3, padding=1, stride=strides)
        self.conv2 = nn.LazyConv2d(num_channels, kernel_size=3, padding=1)
        if use_1x1conv:
            self.conv3 = nn.LazyConv2d(num_channels, kernel_size=1, stride=strides)
        else:
            self.conv3 = None
        self.bn1 = nn.LazyBatchNorm2d()
        self.bn2 = nn.LazyBatchNorm2d()

    def forward(self, X):
        Y = F.relu(self.bn1(self.conv1(X)))
        Y = self.bn2(self.conv2(Y))
        if self.conv3:
            X = self.conv3(X)
        Y = Y + X
        return F.relu(Y)
