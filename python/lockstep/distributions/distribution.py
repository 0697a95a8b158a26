"""The base of all distributions."""

import math
import numbers

from .. import _core
from .._core import Tensor
from ..composed import finfo
from ..grad_mode import no_grad
from ..size import Size


def tensors_of(*values):
    """Return numbers and tensors as tensors of one shape."""
    first = next((v for v in values if isinstance(v, Tensor)), None)
    if any(not isinstance(v, (Tensor, numbers.Real)) for v in values):
        raise ValueError("Input arguments must all be instances of numbers.Number or torch.Tensor.")
    options = {} if first is None else {"device": first.device}
    dtype = first.dtype if first is not None and first.is_floating_point() else _core.float32
    values = [v if isinstance(v, Tensor) else _core.tensor(float(v), dtype=dtype, **options) for v in values]
    shape = broadcast_shape(*(v.shape for v in values))
    return [v.expand(shape) if tuple(v.shape) != tuple(shape) else v for v in values]


def broadcast_shape(*shapes):
    """Return the shape of a sum of tensors of these shapes."""
    axes = max(map(len, shapes))
    padded = [(1,) * (axes - len(s)) + tuple(s) for s in shapes]
    shape = []
    for extents in zip(*padded):
        wide = {e for e in extents if e != 1}
        if len(wide) > 1:
            raise ValueError(f"distribution: shapes {[list(s) for s in shapes]} do not broadcast")
        shape.append(wide.pop() if wide else 1)
    return Size(shape)


def clamp_probs(probs):
    """Return probabilities inside (0, 1)."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def logits_of(probs):
    """Return log(p / (1 - p))."""
    p = clamp_probs(probs)
    return p.log() - (-p).log1p()


class Distribution:
    """A distribution of batch_shape independent events, each of event_shape."""

    has_rsample = has_enumerate_support = False
    _validates = True

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validates = validate_args
        if self._validates:
            for name, valid, expected in self._constraints():
                if not bool(valid.all()):
                    raise ValueError(f"{type(self).__name__}: parameter {name} is {getattr(self, name)}, expected "
                                     f"{expected}")

    @classmethod
    def set_default_validate_args(cls, value):
        """Set whether distributions check their parameters and the values of log_prob()."""
        Distribution._validates = value

    # Tuples (name of a parameter, where it is valid, what is expected).
    def _constraints(self):
        return ()

    # Where a value is possible, and what is expected.
    def _support(self, value):
        return value == value, "real numbers"

    def _check(self, value):
        if not self._validates:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape = self._batch_shape + self._event_shape
        event = len(self._event_shape)
        if event and tuple(value.shape[-event:]) != tuple(self._event_shape):
            raise ValueError(f"{type(self).__name__}: value is {list(value.shape)}, expected [.., {list(shape)}]")
        broadcast_shape(value.shape, shape)
        valid, expected = self._support(value)
        if not bool(valid.all()):
            raise ValueError(f"{type(self).__name__}: value is {value}, expected {expected}")

    @property
    def batch_shape(self):
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one event."""
        return self._event_shape

    def _extended(self, sample_shape):
        sample_shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return Size(sample_shape + tuple(self._batch_shape) + tuple(self._event_shape))

    def sample(self, sample_shape=Size([])):
        """Return sample_shape draws of each, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=Size([])):
        """Return sample_shape draws of each, with gradients with respect to the parameters."""
        raise NotImplementedError(f"{type(self).__name__}: rsample()")

    def sample_n(self, n):
        """Return n draws of each."""
        return self.sample((n,))

    @property
    def stddev(self):
        """The standard deviation."""
        return self.variance.sqrt()

    def perplexity(self):
        """Return exp(entropy())."""
        return self.entropy().exp()

    def _uniform(self, like, sample_shape):
        """Return draws in [0, 1) on the device of a parameter, of its type, or of float32 for half types.

        The steps of uniform numbers of half types would be too wide.
        """
        dtype = _core.float32 if like.dtype in (_core.float16, _core.bfloat16) else like.dtype
        return _core.rand(self._extended(sample_shape), dtype=dtype, device=like.device)

    def __repr__(self):
        parts = []
        for name, _, _ in self._constraints():
            x = getattr(self, name)
            parts.append(f"{name}: {x.item() if x.dim() == 0 else x if x.numel() == 1 else x.shape}")
        return f"{type(self).__name__}({', '.join(parts)})"


class LocationScale(Distribution):
    """A distribution with location loc and width scale."""

    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = tensors_of(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    def _constraints(self):
        return ("loc", self.loc == self.loc, "real numbers"), ("scale", self.scale > 0, "numbers above 0")

    @property
    def mean(self):
        return self.loc

    mode = mean


LOG_2PI = math.log(2 * math.pi)
