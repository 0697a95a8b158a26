"""What the programs of "Dive into Deep Learning" for MXNet take from the book's own package, with the book's names."""

from lockstep import gluon
from lockstep.gluon import nn, npx
from d2l import Accumulator, Animator, Benchmark, Timer  # noqa: F401


def try_gpu(i=0):
    """Return gpu(i) if it exists, otherwise the first device."""
    return npx.gpu(i) if i < npx.num_gpus() else npx.gpu(0)


def try_all_gpus():
    """Return all devices of the program."""
    return [npx.gpu(i) for i in range(npx.num_gpus())]


# Of the training and of the test part: how many examples to use. None: all.
limit_train = limit_test = None


def load_data_fashion_mnist(batch_size, resize=None):
    """Load Fashion-MNIST, and return loaders of the training and the test part."""
    transforms = gluon.data.vision.transforms
    trans = transforms.Compose(([transforms.Resize(resize)] if resize else []) + [transforms.ToTensor()])
    parts = [gluon.data.vision.FashionMNIST(train=train).transform_first(trans) for train in (True, False)]
    parts = [part if limit is None else part.take(limit) for part, limit in zip(parts, (limit_train, limit_test))]
    return (gluon.data.DataLoader(parts[0], batch_size, shuffle=True, num_workers=1),
            gluon.data.DataLoader(parts[1], batch_size, shuffle=False, num_workers=1))


def accuracy(y_hat, y):
    """Compute the number of correct predictions."""
    return float((y_hat.argmax(axis=1) == y).sum())


def split_batch(X, y, devices):
    """Split `X` and `y` into multiple devices."""
    assert X.shape[0] == y.shape[0]
    return (gluon.utils.split_and_load(X, devices, even_split=False),
            gluon.utils.split_and_load(y, devices, even_split=False))


class Residual(nn.Block):
    """The Residual block of ResNet."""

    def __init__(self, num_channels, use_1x1conv=False, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.conv1 = nn.Conv2D(num_channels, kernel_size=3, padding=1, strides=strides)
        self.conv2 = nn.Conv2D(num_channels, kernel_size=3, padding=1)
        if use_1x1conv:
            self.conv3 = nn.Conv2D(num_channels, kernel_size=1, strides=strides)
        else:
            self.conv3 = None
        self.bn1 = nn.BatchNorm()
        self.bn2 = nn.BatchNorm()

    def forward(self, X):
        Y = npx.relu(self.bn1(self.conv1(X)))
        Y = self.bn2(self.conv2(Y))
        if self.conv3:
            X = self.conv3(X)
        return npx.relu(Y + X)
