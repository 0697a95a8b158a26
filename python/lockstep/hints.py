"""Adds a hint to the traceback of an error whose cause is a difference from PyTorch."""

import sys
import traceback

_GRAD = ("a gradient is None until backward(), and after optimizer.step(), which clears it: read it between them, or "
         "keep p.grad.clone()")


def _hint(error, trace):
    if not isinstance(error, (AttributeError, TypeError)) or "NoneType" not in str(error) or trace is None:
        return None
    line = traceback.extract_tb(trace)[-1].line or ""
    return _GRAD if ".grad" in line else None


def install():
    """Add hints to errors that end the program."""
    show = sys.excepthook

    def show_with_hint(kind, error, trace):
        hint = _hint(error, trace)
        if hint is not None:
            error.add_note("lockstep: " + hint)
        show(kind, error, trace)

    sys.excepthook = show_with_hint
