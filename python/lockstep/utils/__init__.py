"""Helpers: `lockstep.utils.data`, `lockstep.utils.checkpoint`."""

from . import checkpoint, data  # noqa: F401
from .pictures import make_grid, save_image  # noqa: F401
