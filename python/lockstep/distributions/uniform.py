"""The uniform distribution."""

import math

from .. import _core
from ..size import Size
from .distribution import Distribution, tensors_of


class Uniform(Distribution):
    """Uniform in [low, high)."""

    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = tensors_of(low, high)
        super().__init__(self.low.shape, (), validate_args)

    def _constraints(self):
        return ("low", self.low < self.high, "numbers below high"), ("high", self.high == self.high, "real numbers")

    def _support(self, value):
        return (value >= self.low).logical_and(value <= self.high), "numbers from low to high"

    @property
    def mean(self):
        return (self.high + self.low) / 2

    @property
    def mode(self):
        """nan: all values are equally likely."""
        return _core.full_like(self.low, math.nan)

    @property
    def stddev(self):
        return (self.high - self.low) / 12 ** 0.5

    @property
    def variance(self):
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape=Size([])):
        u = self._uniform(self.low, sample_shape)
        low, high = self.low, self.high
        if u.dtype == low.dtype:
            y = low + u * (high - low)
        else:  # of half types, rounded once
            y = (low.float() + u * (high.float() - low.float())).to(low.dtype)
        # high is excluded, also where the sum rounds to it.
        return _core.where(y == high, low.to(y.dtype), y)

    def log_prob(self, value):
        """Return the logarithm of the density."""
        self._check(value)
        inside = (self.low <= value).logical_and(self.high > value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value):
        """Return the probability of a result of at most value."""
        self._check(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value):
        """Return the value that a result does not exceed with this probability."""
        return value * (self.high - self.low) + self.low

    def entropy(self):
        """Return the entropy."""
        return (self.high - self.low).log()
