"""Functions of PyTorch that are one-line compositions of others."""

import math

from . import _core
from .size import Size


def is_tensor(obj):
    """Tell whether obj is a tensor."""
    return isinstance(obj, _core.Tensor)


def numel(input):
    """Return the number of elements."""
    return input.numel()


def count_nonzero(input, dim=None):
    """Count the elements that are not 0: int64."""
    return (input != 0).sum(dim)


def trace(input):
    """Return the sum of a matrix's diagonal."""
    n = min(input.shape)
    return _core.einsum("ii->", input[:n, :n])


def diagonal(input, offset=0, dim1=0, dim2=1):
    """Return the diagonal of two axes, as the last axis. It is a copy, which cannot be written."""
    if offset:
        raise _core.Error(f"diagonal: offset is {offset}, expected 0")
    moved = input.movedim((dim1, dim2), (-2, -1))
    n = min(moved.size(-2), moved.size(-1))
    return _core._read_only(_core.einsum("...ii->...i", moved.narrow(-2, 0, n).narrow(-1, 0, n)))


def diag(input, diagonal=0):
    """Return the diagonal of a matrix, or the matrix with this diagonal."""
    if diagonal:
        raise _core.Error(f"diag: diagonal is {diagonal}, expected 0")
    if input.dim() == 2:
        return globals()["diagonal"](input).clone()
    if input.dim() != 1:
        raise RuntimeError(f"diag: {list(input.shape)}, expected a matrix or a vector")
    return on_diagonal(input)


def on_diagonal(input):
    """Return matrices [.., n, n] with the last axis along their diagonal, and 0 elsewhere, even for inf and nan."""
    n = input.size(-1)
    beside = _core.eye(n, device=input.device) == 0
    return input.unsqueeze(-1).expand(*input.shape, n).masked_fill(beside, 0)


def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Return the differences of neighbors along an axis; for bools, whether neighbors differ."""
    if n <= 0:
        return input.clone()
    parts = [x for x in (prepend, input, append) if x is not None]
    input = _core.cat(parts, dim) if len(parts) > 1 else input
    last = input.size(dim) - 1
    if last < 0:
        return input.clone()
    for last in range(last, max(last - n, -1), -1):
        a, b = input.narrow(dim, 1, last), input.narrow(dim, 0, last)
        input = a.logical_xor(b) if input.dtype == _core._bool else a - b
    return input


class _TypeOfTensors(type):
    def __instancecheck__(cls, x):
        return isinstance(x, _core.Tensor) and x.dtype == cls._dtype

    def __call__(cls, *data):
        """Return a tensor of numbers, or of zeros with these extents."""
        if len(data) == 1 and isinstance(data[0], Size):
            return _core.zeros(data[0], dtype=cls._dtype)
        if all(isinstance(extent, int) for extent in data):
            return _core.zeros(*data, dtype=cls._dtype) if data else _core.tensor([], dtype=cls._dtype)
        return _core.tensor(*data, dtype=cls._dtype)


def _type_of_tensors(name, dtype):
    doc = f"Tensors of {dtype}: {name}([1, 2]) has these numbers, {name}(2, 3) zeros of this shape."
    return _TypeOfTensors(name, (), {"_dtype": dtype, "__module__": "lockstep", "__doc__": doc})


FloatTensor = _type_of_tensors("FloatTensor", _core.float32)
DoubleTensor = _type_of_tensors("DoubleTensor", _core.float64)
LongTensor = _type_of_tensors("LongTensor", _core.int64)
ByteTensor = _type_of_tensors("ByteTensor", _core.uint8)
HalfTensor = _type_of_tensors("HalfTensor", _core.float16)
BFloat16Tensor = _type_of_tensors("BFloat16Tensor", _core.bfloat16)
BoolTensor = _type_of_tensors("BoolTensor", _core._bool)
IntTensor = LongTensor


def get_default_dtype():
    """Return the floating type of new tensors: float32."""
    return _core.float32


def set_default_dtype(d):
    """Accept only float32."""
    if d != _core.float32:
        raise _core.Error(f"set_default_dtype: {d}, expected torch.float32: name the type of each tensor")


class finfo:
    """The limits of a floating type."""

    def __init__(self, type=_core.float32):
        if not type.is_floating_point:
            raise TypeError(f"finfo: {type}, expected a floating type: iinfo() has the limits of whole ones")
        bits, tiny, largest, digits = {
            _core.float32: (23, -126, 128, 6), _core.float64: (52, -1022, 1024, 15),
            _core.float16: (10, -14, 16, 3), _core.bfloat16: (7, -126, 128, 2)}[type]
        self.bits = type.itemsize * 8
        self.eps = 2.0**-bits
        self.resolution = 10.0**-digits
        self.tiny = self.smallest_normal = 2.0**tiny
        self.max = (2 - self.eps) * math.ldexp(1.0, largest - 1)
        self.min = -self.max
        self.dtype = repr(type).removeprefix("torch.")

    def __repr__(self):
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in names)}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer type."""

    def __init__(self, type):
        if type.is_floating_point or type == _core._bool:
            raise TypeError(f"iinfo: {type}, expected uint8 or int64: finfo() has the limits of floating types")
        self.bits = type.itemsize * 8
        self.min, self.max = (0, 255) if type == _core.uint8 else (-(2**63), 2**63 - 1)
        self.dtype = repr(type).removeprefix("torch.")

    def __repr__(self):
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def is_floating_point(input):
    """Tell whether the type is a floating type."""
    return input.is_floating_point()


def _cuda(self, device=None, non_blocking=False):
    name = "cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device
    return self.to(name, non_blocking=non_blocking)


def _index_put(self, indices, values, accumulate=False):
    if accumulate:
        raise _core.Error("index_put_: accumulate, expected False: use index_add_() or scatter_add_()")
    self[tuple(indices)] = values
    return self


def _like(make):
    def method(self, *sizes, size=None, dtype=None, device=None, requires_grad=False):
        sizes = sizes if size is None else (size,)
        return make(*sizes, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)

    return method


def _new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False):
    return _core.full(size, fill_value, dtype=dtype or self.dtype, device=device or self.device,
                      requires_grad=requires_grad)


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    return _core.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


_core.Tensor.new_zeros = _like(_core.zeros)
_core.Tensor.new_ones = _like(_core.ones)
_core.Tensor.new_empty = _like(_core.empty)
_core.Tensor.new_full = _new_full
_core.Tensor.new_tensor = _new_tensor
_core.Tensor.cuda = _cuda
_core.Tensor.index_put_ = _index_put
_core.Tensor.count_nonzero = count_nonzero
_core.Tensor.diagonal = diagonal
_core.Tensor.diag = diag
_core.Tensor.diff = diff
_core.Tensor.trace = trace
