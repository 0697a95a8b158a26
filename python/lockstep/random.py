"""The state of the program's random numbers, as torch.random: a seed, and counts of draws."""

import contextlib
import struct

from . import _core
from ._core import internal as _internal, manual_seed  # noqa: F401
from .generator import orders_of as _orders_of


def initial_seed():
    """Return the seed."""
    return _internal.default_seed()


def seed():
    """Set a seed that the system chooses, and return it."""
    import secrets

    chosen = secrets.randbits(63)
    manual_seed(chosen)
    return chosen


def get_rng_state():
    """Return the state of this thread's random numbers as bytes: of draws, dropout, initial values, new loaders."""
    words = _internal.random_state()
    words[2] |= _orders_of(None).next << 32  # beside the number of parameters
    return _core.tensor(list(struct.pack(f"<{len(words)}Q", *words)), dtype=_core.uint8)


def set_rng_state(new_state):
    """Go back to a state of get_rng_state(), so that the same numbers follow."""
    data = bytes(new_state.tolist()) if isinstance(new_state, _core.Tensor) and new_state.dim() == 1 else b""
    if len(data) < 24 or len(data) % 8:
        raise TypeError("set_rng_state: expected a result of get_rng_state()")
    words = list(struct.unpack(f"<{len(data) // 8}Q", data))
    count, words[2] = words[2] >> 32, words[2] & 0xFFFFFFFF
    _internal.set_random_state(words)
    _orders_of(None).next = count


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True):
    """Inside `with fork_rng()`, draws and manual_seed() do not change what is drawn after the `with` statement."""
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
