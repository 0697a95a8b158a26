"""Generator: separate random numbers for functions that take `generator=`.

>>> import lockstep as torch
>>> g = torch.Generator().manual_seed(1)
>>> x = torch.rand(2, generator=g)  # follows from the seed and from how often the generator has been drawn from
"""

import struct

from . import _core


class Generator:
    """A seed and a count of draws. Functions draw from them instead of from the stream of manual_seed()."""

    def __init__(self, device="cpu"):
        self._seed = self._draws = 0

    def manual_seed(self, seed):
        """Set the seed, and return the generator."""
        self._seed, self._draws = int(seed) & 0xFFFFFFFFFFFFFFFF, 0
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
        """Return the seed and the count as bytes."""
        return _core.tensor(list(struct.pack("<2Q", self._seed, self._draws)), dtype=_core.uint8)

    def set_state(self, new_state):
        """Go back to a state of get_state()."""
        data = bytes(new_state.tolist())
        if len(data) != 16:
            raise TypeError("Generator.set_state: expected a result of get_state()")
        self._seed, self._draws = struct.unpack("<2Q", data)
