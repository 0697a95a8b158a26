"""The version of the package: torch.version. CUDA's is not known before a GPU is used."""

from ._core import __version__

cuda = hip = None
debug = False
__all__ = ["__version__", "cuda", "hip", "debug"]
