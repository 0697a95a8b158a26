"""Devices under MXNet's names: gpu(i) is device i of the program, which may be a CPU device."""

from .. import _core


def cpu(device_id=0):
    """Return the CPU: host memory."""
    return _core.device("cpu")


def num_gpus():
    """Return the number of the program's devices."""
    return len(_core.devices())


def gpu(device_id=0):
    """Return device device_id of the program: a GPU, or a CPU device where there is no GPU."""
    devices = _core.devices()
    if not 0 <= device_id < len(devices):
        raise ValueError(f"gpu({device_id}): the program has {len(devices)} device(s), expected less than that: "
                         f"LOCKSTEP_DEVICES={device_id + 1} in the environment makes as many CPU devices")
    return devices[device_id]


def try_gpu(i=0):
    """Return device i of the program, or the first one if there is no device i."""
    devices = _core.devices()
    return devices[i] if i < len(devices) else devices[0]


def try_all_gpus():
    """Return all devices of the program."""
    return _core.devices()
