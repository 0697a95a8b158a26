"""Helpers: `lockstep.utils.data`."""

from . import data  # noqa: F401
