"""DistributedSampler, where PyTorch has it, too."""

from . import DistributedSampler  # noqa: F401
