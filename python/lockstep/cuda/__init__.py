"""GPUs, as torch.cuda. On a machine without any, is_available() is False, and the CPU devices of the program do the
same work: lockstep.devices()."""

from .. import _core
from . import amp  # noqa: F401


def _gpus():
    return [d for d in _core.devices() if d.type == "cuda"]


def is_available():
    """Return whether the program has a GPU."""
    return bool(_gpus())


def device_count():
    """Return the number of the program's GPUs."""
    return len(_gpus())


def synchronize(device=None):
    """Wait for all work of all devices, CPU devices too."""
    _core.synchronize()


def current_device():
    """Return 0: the first GPU. Raises if there is none."""
    if not _gpus():
        raise RuntimeError("no GPU is available")
    return 0


def set_device(device):
    """Accept the device of this rank. In a job each rank has its own devices; another one is an error."""
    index = device if isinstance(device, int) else getattr(_core.device(device) if isinstance(device, str) else device,
                                                           "index", 0)
    if _gpus() and index is not None and not any(d.index == index for d in _gpus()):
        raise RuntimeError(f"set_device: there is no GPU {index} in this process, expected one of {_gpus()}")


def empty_cache():
    """Do nothing: the program keeps the memory until it ends."""


def manual_seed(seed):
    """Set one seed for all devices, as lockstep.manual_seed() does."""
    _core.manual_seed(seed)


manual_seed_all = manual_seed


class Event:
    """A point in time on all devices: record() waits for their work."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self._time = None

    def record(self, stream=None):
        import time

        _core.synchronize()
        self._time = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        """Return the milliseconds between two events."""
        return (end._time - self._time) * 1000
