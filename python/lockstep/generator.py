"""Generator: random numbers of its own for what takes `generator=`.

>>> import lockstep as torch
>>> g = torch.Generator().manual_seed(1)
>>> x = torch.rand(2, generator=g)  # follows from the seed and from how often the generator has been drawn from
"""


class Generator:
    """A seed, and a count of draws. What takes it draws from them instead of from the stream of manual_seed()."""

    def __init__(self, device="cpu"):
        self._seed = self._draws = 0

    def manual_seed(self, seed):
        """Set the seed, and return this."""
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
