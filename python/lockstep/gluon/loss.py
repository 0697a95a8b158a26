"""The loss of each sample, [n]. The gradient of such an array is that of its sum."""

from ..nn import functional as _F
from .arrays import _array


def _of_samples(losses):
    """Return the mean over all axes but the first."""
    return _array(losses if losses.ndim == 1 else losses.flatten(1).mean(1))


class SoftmaxCrossEntropyLoss:
    """Cross entropy of logits, whose classes are on `axis`, and labels on the other axes, or [n, 1].

    Labels are whole numbers of any type, even a floating type, as in np.array([0, 2]). sparse_label=False: they are the
    classes' probabilities, in the shape of the logits.
    """

    def __init__(self, axis=-1, sparse_label=True):
        self._axis = axis
        self._sparse = sparse_label

    def __call__(self, prediction, label):
        shape = tuple(prediction.shape)
        axis = self._axis + len(shape) if self._axis < 0 else self._axis
        if not 1 <= axis < len(shape):
            raise ValueError(f"SoftmaxCrossEntropyLoss: logits {list(shape)} and axis {self._axis}, expected the "
                             "samples along the first axis, and the classes along another")
        order = [0, axis, *(i for i in range(1, len(shape)) if i != axis)]
        if self._sparse:
            others = shape[:axis] + shape[axis + 1:]
            if tuple(label.shape) not in (others, shape[:axis] + (1,) + shape[axis + 1:]):
                raise ValueError(f"SoftmaxCrossEntropyLoss: labels {list(label.shape)} of logits {list(shape)}, "
                                 f"expected {list(others)}, or probabilities with sparse_label=False")
            label = label.long().reshape(others)
        else:
            if tuple(label.shape) != shape:
                raise ValueError(f"SoftmaxCrossEntropyLoss: probabilities {list(label.shape)}, expected the logits' "
                                 f"{list(shape)}")
            label = label.permute(*order)
        return _of_samples(_F.cross_entropy(prediction.permute(*order), label, reduction="none"))


SoftmaxCELoss = SoftmaxCrossEntropyLoss


class L2Loss:
    """Half of the mean square of each sample."""

    def __call__(self, prediction, label):
        return _of_samples((prediction - label.reshape(tuple(prediction.shape))) ** 2 / 2)
