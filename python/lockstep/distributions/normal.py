"""The normal distribution."""

import math

from .. import _core
from ..size import Size
from .distribution import LOG_2PI, LocationScale


class Normal(LocationScale):
    """Normal, of mean loc and standard deviation scale."""

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
        self._check(value)
        return -((value - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - 0.5 * LOG_2PI

    def cdf(self, value):
        """Return the probability of a result of at most value."""
        self._check(value)
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    def entropy(self):
        """Return the entropy."""
        return 0.5 + 0.5 * LOG_2PI + self.scale.log()
