"""The distribution of one of several classes."""

import math

from .. import _core
from ..composed import finfo
from ..grad_mode import no_grad
from ..size import Size
from .distribution import Distribution, broadcast_shape, clamp_probs


class Categorical(Distribution):
    """A class with these probabilities (or proportional weights), or with softmax(logits), along the last axis."""

    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = probs if logits is None else logits
        if given.dim() < 1:
            raise ValueError("`probs` or `logits` parameter must be at least one-dimensional.")
        self._given = given
        self._probs = self._logits = None
        if probs is not None:
            self._probs = probs / probs.sum(-1, keepdim=True)
        else:
            self._logits = logits - logits.logsumexp(-1, keepdim=True)
        self._events = given.size(-1)
        super().__init__(given.shape[:-1], (), validate_args)

    def _constraints(self):
        if self._probs is not None:
            is_one = ((self._probs.sum(-1, keepdim=True) - 1).abs() < 1e-6).logical_and(self._probs >= 0)
            return ("probs", is_one, "numbers of at least 0, not all 0"),
        # Not the given ones: of inf, or -inf alone, these are nan.
        return ("logits", self._logits == self._logits, "real numbers below inf, not all -inf"),

    def _support(self, value):
        whole = (value >= 0).logical_and(value < self._events).logical_and(value.long() == value)
        return whole, f"whole numbers from 0 to {self._events - 1}"

    @property
    def probs(self):
        """The probability of each class."""
        return self._logits.softmax(-1) if self._probs is None else self._probs

    @property
    def logits(self):
        """The logarithm of each probability."""
        return clamp_probs(self._probs).log() if self._logits is None else self._logits

    @property
    def param_shape(self):
        """The shape of the parameter."""
        return self._given.shape

    @property
    def mean(self):
        """nan: classes have none."""
        probs = self.probs
        return _core.full(self._batch_shape, math.nan, dtype=probs.dtype, device=probs.device)

    variance = mean

    @property
    def mode(self):
        """The likeliest class."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape=Size([])):
        shape = self._extended(sample_shape)
        n = 1
        for extent in shape[:len(shape) - len(self._batch_shape)]:
            n *= extent
        with no_grad():
            rows = self.probs.reshape(-1, self._events)
            return _core.multinomial(rows, n, True).t().reshape(shape)

    def log_prob(self, value):
        """Return the logarithm of the probability."""
        self._check(value)
        shape = broadcast_shape(value.shape, self._batch_shape)
        value = value.long().expand(shape).unsqueeze(-1)
        return self.logits.expand(*shape, self._events).gather(-1, value).squeeze(-1)

    def entropy(self):
        """Return the entropy."""
        # Clamps a logit of -inf: an impossible class adds nothing.
        logits = self.logits.clamp(finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        """Return all classes, on a new first axis."""
        values = _core.arange(self._events).reshape(self._events, *[1] * len(self._batch_shape))
        return values.expand(self._events, *self._batch_shape) if expand else values
