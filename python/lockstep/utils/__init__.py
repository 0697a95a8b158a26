"""Helpers: `lockstep.utils.data`."""

from . import data  # noqa: F401
from .pictures import make_grid, save_image  # noqa: F401
