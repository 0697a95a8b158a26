"""Helpers: `lockstep.utils.data`."""
