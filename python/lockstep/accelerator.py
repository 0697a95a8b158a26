"""The GPUs, as torch.accelerator. Without any, is_available() is False: the program's CPU devices do the work."""

from . import _core, cuda
from .cuda import device_count, is_available, synchronize  # noqa: F401


def current_accelerator(check_available: bool = False) -> "_core.device | None":
    """Return the type of the GPUs. None if there are none."""
    return _core.device("cuda") if is_available() else None


def current_device_index() -> int:
    """Return 0: the first GPU. Raises if there is none."""
    return cuda.current_device()


def set_device_index(device: "int | str | _core.device") -> None:
    """Accept the device of this rank; see cuda.set_device()."""
    cuda.set_device(device)
