"""The normal distribution."""

import math

from .. import _core
from ..size import Size
from .distribution import LOG_2PI, Distribution, tensors_of


class Normal(Distribution):
    """Normal, of mean loc and standard deviation scale."""

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

    @property
    def stddev(self):
        return self.scale

    @property
    def variance(self):
        return self.scale ** 2

    def rsample(self, sample_shape=Size([])):
        draws = _core.randn(self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + draws * self.scale

    def log_prob(self, value):
        """Return the logarithm of the density."""
        if self._validates:
            self._check(value)
        return -((value - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - 0.5 * LOG_2PI

    def cdf(self, value):
        """Return the probability of at most value."""
        if self._validates:
            self._check(value)
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    def entropy(self):
        """Return the entropy."""
        return 0.5 + 0.5 * LOG_2PI + self.scale.log()
