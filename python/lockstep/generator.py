"""Generator: separate random numbers for functions that take `generator=`.

>>> import lockstep as torch
>>> g = torch.Generator().manual_seed(1)
>>> x = torch.rand(2, generator=g)  # follows from the seed and from how often the generator has been drawn from
"""

import struct
import threading

from . import _core
from ._core import internal as _internal


_lock = threading.Lock()  # not of each Orders, because a generator may be copied


class Orders:
    """Numbers the samplers whose orders follow from one seed, in the order of their first loops."""

    def __init__(self):
        self.next = 0

    def take(self):
        """Return the next number."""
        with _lock:
            number = self.next
            self.next = number + 1
        return number


_of_thread = threading.local()


def orders_of(generator):
    """Return the Orders of this generator, or of manual_seed(), which begins anew. Each thread counts its own."""
    if generator is not None:
        return generator._orders
    seeding = _internal.seeding_number()
    if getattr(_of_thread, "seeding", None) != seeding:
        _of_thread.seeding, _of_thread.orders = seeding, Orders()
    return _of_thread.orders


class Generator:
    """A seed and a count of draws. Functions draw from them instead of from the stream of manual_seed()."""

    def __init__(self, device="cpu"):
        self._seed = self._draws = 0
        self._orders = Orders()

    def manual_seed(self, seed):
        """Set the seed, and return the generator."""
        self._seed, self._draws = int(seed) & 0xFFFFFFFFFFFFFFFF, 0
        self._orders = Orders()
        return self

    def _next(self):
        self._draws += 1
        return self._seed, self._draws - 1

    def initial_seed(self):
        """Return the seed."""
        return self._seed

    def seed(self):
        """Set a seed that the system chooses, and return it."""
        import secrets

        return self.manual_seed(secrets.randbits(63))._seed

    def get_state(self):
        """Return the seed and the counts as bytes."""
        return _core.tensor(list(struct.pack("<3Q", self._seed, self._draws, self._orders.next)), dtype=_core.uint8)

    def set_state(self, new_state):
        """Go back to a state of get_state()."""
        data = bytes(new_state.tolist())
        if len(data) not in (16, 24):  # 16: of an older version
            raise TypeError("Generator.set_state: expected a result of get_state()")
        self._seed, self._draws, orders = struct.unpack("<3Q", data.ljust(24, b"\0"))
        self._orders.next = orders
