"""Lockstep: trains neural networks on many devices as if they were one.

>>> import lockstep as torch
>>> x = torch.randn(2, 3)
>>> x.shape
torch.Size([2, 3])
"""

from ._core import *  # noqa: F401,F403
from ._core import __version__  # noqa: F401
from .grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from .size import Size  # noqa: F401

double = float64
float = float32  # noqa: A001
half = float16
long = int64
bool = uint8  # noqa: A001
inf = __import__("math").inf
nan = __import__("math").nan
pi = __import__("math").pi
e = __import__("math").e

from . import models, nn, optim  # noqa: F401,E402
from . import cuda, datasets, distributed, gluon, multiprocessing, transforms, utils  # noqa: F401,E402
from .generator import Generator  # noqa: F401,E402
from .serialization import load, save  # noqa: F401,E402
