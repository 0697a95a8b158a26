"""The extents of a tensor."""


class Size(tuple):
    """The extents of a tensor: a tuple of ints, which prints as PyTorch's does."""

    __slots__ = ()

    def numel(self):
        """Return the number of elements."""
        n = 1
        for extent in self:
            n *= extent
        return n

    def __getitem__(self, i):
        extents = super().__getitem__(i)
        return Size(extents) if isinstance(i, slice) else extents

    def __add__(self, other):
        return Size(super().__add__(tuple(other)))

    def __mul__(self, n):
        return Size(super().__mul__(n))

    __rmul__ = __mul__

    def __repr__(self):
        return "torch.Size([" + ", ".join(map(str, self)) + "])"
