"""DistributedSampler, under PyTorch's second name for it."""

from . import DistributedSampler  # noqa: F401
