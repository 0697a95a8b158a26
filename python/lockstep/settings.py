"""Settings of PyTorch that Python alone implements: compile, threads, the default device.

>>> import lockstep as torch
>>> torch.get_default_device()
device('cpu')
"""

import os
import warnings

from . import _core

_threads = None
_said = False


def compile(model=None, **options):  # noqa: A001
    """Return the model unchanged, and say so once: the library's operations are compiled already."""
    global _said
    if not _said:
        _said = True
        warnings.warn("compile: returns the model as it is, because the library's operations are compiled already",
                      stacklevel=2)
    return (lambda model: model) if model is None else model


def get_num_threads() -> int:
    """Return the number of cores that the devices share, or the argument of set_num_threads()."""
    return _threads or len(os.sched_getaffinity(0))


def set_num_threads(number: int) -> None:
    """Do nothing: all cores work, and results do not depend on them. LOCKSTEP_DEVICES and taskset choose cores."""
    global _threads
    if not isinstance(number, int) or number < 1:
        raise _core.Error(f"set_num_threads: {number!r}, expected a whole number of at least 1")
    _threads = number


def get_default_device():
    """Return "cpu": new tensors are in host memory."""
    return _core.device("cpu")


def set_default_device(device) -> None:
    """Accept "cpu", where new tensors are; another device is an error."""
    if device is not None and str(device) != "cpu":
        raise _core.Error(f"set_default_device: {str(device)!r}, but new tensors are in host memory, expected 'cpu': "
                          "give device= to the functions that make tensors, or model.to(device)")
