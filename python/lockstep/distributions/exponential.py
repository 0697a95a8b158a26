"""The exponential distribution."""

from .. import _core
from ..size import Size
from .distribution import Distribution, tensors_of


class Exponential(Distribution):
    """The exponential distribution with mean 1 / rate."""

    has_rsample = True

    def __init__(self, rate, validate_args=None):
        self.rate, = tensors_of(rate)
        super().__init__(self.rate.shape, (), validate_args)

    def _constraints(self):
        return ("rate", self.rate > 0, "numbers above 0"),

    def _support(self, value):
        return value >= 0, "numbers of at least 0"

    @property
    def mean(self):
        return self.rate.reciprocal()

    stddev = mean

    @property
    def mode(self):
        """The likeliest value, 0."""
        return _core.zeros_like(self.rate)

    @property
    def variance(self):
        return self.rate ** -2

    def rsample(self, sample_shape=Size([])):
        u = self._uniform(self.rate, sample_shape)
        return (-(-u).log1p() / self.rate).to(self.rate.dtype)

    def log_prob(self, value):
        """Return the logarithm of the density."""
        self._check(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        """Return the probability of a result of at most value."""
        self._check(value)
        return 1 - (-self.rate * value).exp()

    def icdf(self, value):
        """Return the value that a result does not exceed with this probability."""
        return -(-value).log1p() / self.rate

    def entropy(self):
        """Return the entropy."""
        return 1.0 - self.rate.log()
