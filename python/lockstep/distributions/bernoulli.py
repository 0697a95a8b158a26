"""The distribution of a coin."""

import math

from .. import _core
from ..grad_mode import no_grad
from ..nn import functional as F
from ..size import Size
from .distribution import Distribution, logits_of, tensors_of


class Bernoulli(Distribution):
    """1 with probability probs, otherwise 0; or with probability sigmoid(logits)."""

    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._probs = self._logits = None
        if probs is not None:
            self._probs, = tensors_of(probs)
        else:
            self._logits, = tensors_of(logits)
        super().__init__((self._probs if logits is None else self._logits).shape, (), validate_args)

    def _constraints(self):
        if self._probs is not None:
            return ("probs", (self._probs >= 0).logical_and(self._probs <= 1), "numbers from 0 to 1"),
        return ("logits", self._logits == self._logits, "real numbers"),

    def _support(self, value):
        return (value == 0).logical_or(value == 1), "0 or 1"

    @property
    def probs(self):
        """The probability of 1."""
        return self._logits.sigmoid() if self._probs is None else self._probs

    @property
    def logits(self):
        """The logarithm of the odds of 1."""
        return logits_of(self._probs) if self._logits is None else self._logits

    @property
    def param_shape(self):
        """The shape of the parameter."""
        return self._batch_shape

    @property
    def mode(self):
        """The likelier value; nan if both are equally likely."""
        probs = self.probs
        return _core.where(probs == 0.5, _core.full_like(probs, math.nan), (probs >= 0.5).to(probs.dtype))

    @property
    def mean(self):
        return self.probs

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape=Size([])):
        with no_grad():
            probs = self.probs
            return (self._uniform(probs, sample_shape) < probs).to(probs.dtype)

    def log_prob(self, value):
        """Return the logarithm of the probability."""
        self._check(value)
        return -self._surprise(value, 1 - value)

    # Returns -log(p) for 1 and -log(1 - p) for 0, without a difference of two large numbers.
    def _surprise(self, of_one, of_zero):
        logits = self.logits
        return of_one * F.softplus(-logits) + of_zero * F.softplus(logits)

    def entropy(self):
        """Return the entropy."""
        return self._surprise(self.probs, 1 - self._probs if self._logits is None else (-self._logits).sigmoid())

    def enumerate_support(self, expand=True):
        """Return 0 and 1, on a new first axis."""
        values = _core.arange(2, dtype=self.probs.dtype).reshape(2, *[1] * len(self._batch_shape))
        return values.expand(2, *self._batch_shape) if expand else values
