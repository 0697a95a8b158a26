"""Generator: a seed of its own for what takes `generator=`."""


class Generator:
    """A seed. What takes it draws from this seed instead of that of manual_seed()."""

    def __init__(self, device="cpu"):
        self._seed = 0

    def manual_seed(self, seed):
        """Set the seed, and return this."""
        self._seed = int(seed) & 0xFFFFFFFFFFFFFFFF
        return self

    def initial_seed(self):
        """Return the seed."""
        return self._seed

    def seed(self):
        """Set a seed that the system chooses, and return it."""
        import secrets

        return self.manual_seed(secrets.randbits(63))._seed
