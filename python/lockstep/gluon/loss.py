"""The loss of each sample, [n]. The gradient of such an array is that of its sum."""

from ..nn import functional as _F
from .arrays import _array


class SoftmaxCrossEntropyLoss:
    """Of logits [n, classes] and labels [n]."""

    def __call__(self, prediction, label):
        return _array(_F.cross_entropy(prediction, label, reduction="none"))


SoftmaxCELoss = SoftmaxCrossEntropyLoss


class L2Loss:
    """Half of the mean square of each sample."""

    def __call__(self, prediction, label):
        return _array(((prediction - label.reshape(tuple(prediction.shape))) ** 2).flatten(1).mean(1) / 2)
