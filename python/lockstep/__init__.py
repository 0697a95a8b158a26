"""Lockstep: trains neural networks on many devices as if they were one.

>>> import lockstep as torch
>>> x = torch.randn(2, 3)
>>> x.shape
torch.Size([2, 3])
"""

from ._core import *  # noqa: F401,F403
from ._core import __version__  # noqa: F401
from .size import Size  # noqa: F401
