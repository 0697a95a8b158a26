"""The Laplace distribution."""

from ..composed import finfo
from ..size import Size
from .distribution import LocationScale


class Laplace(LocationScale):
    """The Laplace distribution with mean loc; scale is the mean distance from it."""

    @property
    def variance(self):
        return 2 * self.scale ** 2

    @property
    def stddev(self):
        return 2 ** 0.5 * self.scale

    def rsample(self, sample_shape=Size([])):
        # Draws from (-1, 1): the logarithm of -1 would be infinite.
        u = self._uniform(self.loc, sample_shape) * 2 - 1
        u = u.clamp(-1 + finfo(u.dtype).eps / 2)
        return self.loc - self.scale * (u.sign() * (-u.abs()).log1p()).to(self.loc.dtype)

    def log_prob(self, value):
        """Return the logarithm of the density."""
        self._check(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value):
        """Return the probability of a result of at most value."""
        self._check(value)
        distance = value - self.loc
        return 0.5 - 0.5 * distance.sign() * (-distance.abs() / self.scale).expm1()

    def icdf(self, value):
        """Return the value that a result does not exceed with this probability."""
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self):
        """Return the entropy."""
        return 1 + (2 * self.scale).log()
