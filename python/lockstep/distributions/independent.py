"""Several axes of a batch as one event."""

from ..size import Size
from .distribution import Distribution


class Independent(Distribution):
    """The distribution `base_distribution` with the last axes of its batch as one event."""

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        n, shape = reinterpreted_batch_ndims, base_distribution.batch_shape
        if n > len(shape):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                             f"{n} vs {len(shape)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        cut = len(shape) - n
        super().__init__(shape[:cut], (*shape[cut:], *base_distribution.event_shape), validate_args)

    @property
    def has_rsample(self):
        """Whether there is rsample()."""
        return self.base_dist.has_rsample

    @property
    def mean(self):
        return self.base_dist.mean

    @property
    def variance(self):
        return self.base_dist.variance

    @property
    def mode(self):
        """The likeliest event of the base distribution."""
        return self.base_dist.mode

    @property
    def has_enumerate_support(self):
        """Whether there is enumerate_support() of single events."""
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    def enumerate_support(self, expand=True):
        """Return all events, on a new first axis."""
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Independent: enumerate_support() of several axes as one event")
        return self.base_dist.enumerate_support(expand)

    def sample(self, sample_shape=Size([])):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=Size([])):
        return self.base_dist.rsample(sample_shape)

    def _summed(self, x):
        return x.sum(tuple(range(-self.reinterpreted_batch_ndims, 0))) if self.reinterpreted_batch_ndims else x

    def log_prob(self, value):
        """Return the logarithm of the density of the event."""
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self):
        """Return the entropy of the event."""
        return self._summed(self.base_dist.entropy())

    def __repr__(self):
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
