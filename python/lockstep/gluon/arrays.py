"""Arrays of MXNet: tensors whose methods with NumPy's names do what NumPy does. `nd` and `np` make and combine them.

>>> x = nd.random.uniform(shape=(2, 3), ctx=mx.gpu(0))
>>> x.size, nd.dot(x, x.T).asnumpy().shape
(6, (2, 2))
"""

import contextlib
import functools
import math
import types
import weakref

from .. import _core
from .._core import Tensor, internal as _internal
from ..grad_mode import no_grad as _no_grad
from ..nn import functional as _F
from . import autograd as _autograd

_F32 = _core.float32

# Arrays whose gradients each backward() overwrites, by id.
_written = {}


class ndarray(Tensor):
    """A tensor with the methods of MXNet's arrays. It keeps PyTorch's methods that NumPy does not have."""

    __slots__ = ()  # so that a new Tensor can become one
    _pictures_have_channels_last = True

    def __init__(self, data, dtype=None):
        super().__init__()
        raise TypeError("ndarray: expected nd.array(data) or np.array(data)")

    @property
    def size(self):
        """The number of elements."""
        return self.numel()

    @property
    def ctx(self):
        """The device."""
        return self.device

    context = ctx

    def dot(self, b):
        """Return the product of matrices, of a matrix and a vector, or of two vectors."""
        if not (1 <= self.ndim <= 2 and 1 <= b.ndim <= 2):
            raise ValueError(f"dot: {list(self.shape)} and {list(b.shape)}, expected one or two axes")
        return self.matmul(b)

    def copyto(self, other):
        """Return a copy on a device; or copy the elements into another array, and return it."""
        if isinstance(other, Tensor):
            return other.copy_(self)
        return self.to(other, copy=True, non_blocking=True)

    def as_in_ctx(self, ctx):
        """Return the array on a device: the array itself if it is there already."""
        return self if self.device == ctx else _array(_internal.on_device(self, ctx))

    as_in_context = as_in_device = to_device = as_in_ctx

    def asnumpy(self):
        """Return the elements as an array of NumPy, a copy."""
        return self.detach().cpu().numpy().copy()

    def asscalar(self):
        """Return the one element as a number."""
        return self.item()

    def astype(self, dtype, copy=True):
        """Return the elements in a type: "float32", numpy.int32, ..."""
        y = self.to(_dtype(dtype))
        return y.copy() if copy and y is self else y

    def copy(self):
        """Return a copy."""
        return self.clone()

    def wait_to_read(self):
        """Wait until the elements are there."""
        self.wait()

    def attach_grad(self, grad_req="write"):
        """Let backward() write the gradient of this array to x.grad, which is zeros before; "add": add to it."""
        if grad_req not in ("write", "add"):
            raise ValueError(f"attach_grad: grad_req is {grad_req!r}, expected 'write' or 'add'")
        if not self.is_leaf:
            raise ValueError("attach_grad: the array has a history, expected x = x.detach() before")
        self.requires_grad_()
        self.grad = _core.zeros_like(self.detach())
        _written.pop(id(self), None)
        if grad_req == "write":
            number = id(self)
            _written[number] = weakref.ref(self, lambda _: _written.pop(number, None))

    @property
    def grad(self):
        """The gradient: None without attach_grad()."""
        gradient = Tensor.grad.__get__(self)
        return None if gradient is None else as_array(gradient)

    @grad.setter
    def grad(self, value):
        Tensor.grad.__set__(self, value)

    def backward(self, out_grad=None):
        """Compute the gradients of the sum of the elements, weighted by out_grad if there is one."""
        with _writing_gradients():
            Tensor.backward(Tensor.sum(self if out_grad is None else self * out_grad))

    def __setitem__(self, key, value):
        with self._unrecorded():
            Tensor.__setitem__(self, key, value)

    def _unrecorded(self):
        """Outside record(), let a write to an array with a gradient be no step of a computation."""
        return _no_grad() if self.is_leaf and not _autograd.is_recording() else contextlib.nullcontext()

    def mean(self, axis=None, keepdims=False):
        """Return the mean: float32 also of whole numbers."""
        x = self if self.is_floating_point() else self.float()
        return _array(Tensor.mean(x, axis, keepdims))

    def max(self, axis=None, keepdims=False):
        """Return the maximum."""
        return _array(Tensor.max(self) if axis is None else Tensor.amax(self, axis, keepdims))

    def min(self, axis=None, keepdims=False):
        """Return the minimum."""
        return _array(Tensor.min(self) if axis is None else Tensor.amin(self, axis, keepdims))

    def std(self, axis=None, ddof=0, keepdims=False):
        """Return the standard deviation; it divides by n - ddof."""
        return self.var(axis, ddof, keepdims).sqrt()

    def var(self, axis=None, ddof=0, keepdims=False):
        """Return the variance; it divides by n - ddof."""
        axes = tuple(range(self.ndim)) if axis is None else axis
        unbiased = Tensor.var(self, axes, False, keepdims)
        n = self.numel() // max(unbiased.numel(), 1)
        return _array(unbiased * (n / (n - ddof) if n != ddof else math.nan) if ddof else unbiased)

    def transpose(self, *axes):
        """Return the array with its axes in this order; without one, in reverse."""
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        return self.permute(*(axes or range(self.ndim)[::-1]))

    @property
    def T(self):
        """All axes in reverse."""
        return self.transpose()

    def repeat(self, repeats, axis=None):
        """Return the array with each element (of an axis) several times."""
        return self.repeat_interleave(repeats) if axis is None else self.repeat_interleave(repeats, axis)

    def any(self, axis=None, keepdims=False):
        """Return whether any element is not 0."""
        return _array(Tensor.any(self, axis, keepdims))

    def all(self, axis=None, keepdims=False):
        """Return whether no element is 0."""
        return _array(Tensor.all(self, axis, keepdims))

    def prod(self, axis=None, keepdims=False):
        """Return the product."""
        return _array(Tensor.prod(self) if axis is None else Tensor.prod(self, axis, keepdims))

    def cumsum(self, axis=None):
        """Return the running sums along an axis; without one, over all elements."""
        return _array(Tensor.cumsum(self.reshape(-1), 0) if axis is None else Tensor.cumsum(self, axis))

    def argsort(self, axis=-1):
        """Return the indices that sort the elements in ascending order."""
        return _array(Tensor.argsort(self, axis))

    def squeeze(self, axis=None):
        """Return the array without its axes of length 1, or without one."""
        return _array(Tensor.squeeze(self, axis))

    def nonzero(self):
        """Return the indices of the elements that are not 0: an array for each axis."""
        return tuple(map(_array, Tensor.nonzero(self, as_tuple=True)))

    def expand_dims(self, axis):
        """Return the array with a new axis of length 1."""
        return self.unsqueeze(axis)

    def sort(self, axis=-1):
        """Return the sorted elements."""
        return _array(Tensor.sort(self, axis)[0])


_DTYPES = {"float32": _core.float32, "float64": _core.float64, "float16": _core.float16, "int32": _core.int64,
           "int64": _core.int64, "uint8": _core.uint8, "bool": _core._bool, "bool_": _core._bool}


def _dtype(dtype):
    if dtype is None or isinstance(dtype, _core.dtype):
        return dtype
    name = getattr(dtype, "__name__", None) or str(dtype)
    name = {"float": "float32", "int": "int64"}.get(name, name)
    if name not in _DTYPES:
        raise ValueError(f"dtype {dtype!r}, expected one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _array(x):
    """Return a new result as an array. A tensor that the program itself made stays as it is."""
    if type(x) is Tensor:
        x.__class__ = ndarray
    elif isinstance(x, tuple) and type(x) is tuple:
        return tuple(map(_array, x))
    elif type(x) is list:
        return list(map(_array, x))
    return x


def as_array(x):
    """Return a tensor of the program as an array of the same elements and history."""
    return _array(Tensor.view(x, x.shape)) if type(x) is Tensor else x


@contextlib.contextmanager
def _writing_gradients():
    """Let a backward pass overwrite gradients, instead of adding to them. Gradients that it does not reach stay."""
    before = [(x, Tensor.grad.__get__(x)) for x in (reference() for reference in list(_written.values()))
              if x is not None]
    for x, _ in before:
        Tensor.grad.__set__(x, None)
    try:
        yield
    finally:
        for x, gradient in before:
            if Tensor.grad.__get__(x) is None:
                Tensor.grad.__set__(x, gradient)


def _in_place(function):
    @functools.wraps(function)
    def call(self, other):
        with self._unrecorded():
            return function(self, other)

    return call


def _giving_arrays(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return _array(function(*args, **kwargs))

    return call


# A function that is written for tensors calls PyTorch's methods of its arguments, such as x.size(0).
def _of_tensors(function):
    def plain(x):
        return Tensor.view(x, x.shape) if isinstance(x, ndarray) else x

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    return call


# PyTorch's functions of these names have another meaning, and NumPy's are not implemented.
_LEFT_OUT = ("median", "unique", "split", "topk", "where", "type", "norm", "cummax", "cummin")


def _left_out(name):
    def method(self, *args, **kwargs):
        raise AttributeError(f"an array of lockstep.gluon has no {name}()")

    return method


_ITEMS = ("add sub mul truediv floordiv mod pow matmul radd rsub rmul rtruediv rpow neg abs eq ne lt le gt ge "
          "getitem and or xor invert").split()
for _name in dir(Tensor):
    _method = getattr(Tensor, _name)
    if _name in vars(ndarray) or not callable(_method) or isinstance(_method, type):
        continue
    if _name in _LEFT_OUT:
        setattr(ndarray, _name, _left_out(_name))
    elif isinstance(_method, types.FunctionType) and not _name.endswith("_"):
        setattr(ndarray, _name, _giving_arrays(_of_tensors(_method)))
    elif not _name.startswith("_") or _name.strip("_") in _ITEMS:
        setattr(ndarray, _name, _giving_arrays(_method))
for _name in ("__iadd__", "__isub__", "__imul__", "__itruediv__"):
    setattr(ndarray, _name, _in_place(_giving_arrays(getattr(Tensor, _name))))


# ---- What makes arrays, and functions of them


def _placed(x, ctx, device):
    target = ctx if ctx is not None else device
    return _array(x if target is None else _internal.on_device(x, target))


def _extents(size):
    return (size,) if isinstance(size, int) else tuple(size)


def array(object, dtype=None, ctx=None, device=None):
    """Return an array of these numbers: float32, unless dtype says otherwise."""
    if isinstance(object, Tensor):
        return _placed(object.detach().clone().to(_dtype(dtype) or object.dtype), ctx, device)
    return _placed(_core.tensor(object, dtype=_dtype(dtype) or _F32), ctx, device)


def _filled(make):
    def filled(shape, dtype=None, ctx=None, device=None):
        return _placed(make(_extents(shape), dtype=_dtype(dtype) or _F32), ctx, device)

    return filled


def full(shape, fill_value, dtype=None, ctx=None, device=None):
    """Return an array of one number."""
    return _placed(_core.full(_extents(shape), fill_value, dtype=_dtype(dtype) or _F32), ctx, device)


def arange(start, stop=None, step=1, dtype=None, ctx=None, device=None):
    """Return start, start + step, ... up to stop, which is left out: float32 by default."""
    start, stop = (0, start) if stop is None else (start, stop)
    return _placed(_core.arange(start, stop, step, dtype=_dtype(dtype) or _F32), ctx, device)


def eye(N, M=None, dtype=None, ctx=None, device=None):
    """Return the identity of N rows."""
    return _placed(_core.eye(N, M or N, dtype=_dtype(dtype) or _F32), ctx, device)


def dot(a, b):
    """Return the product of matrices, of a matrix and a vector, or of two vectors."""
    return as_array(a).dot(as_array(b))


def waitall():
    """Wait for all work."""
    _core.synchronize()


def relu(x):
    """Return max(x, 0)."""
    return _array(_core.relu(x))


def sigmoid(x):
    """Return 1 / (1 + exp(-x))."""
    return _array(_core.sigmoid(x))


def softmax(x, axis=-1):
    """Return exp(x), divided by its sum along an axis."""
    return _array(_core.softmax(x, axis))


def log_softmax(x, axis=-1):
    """Return the logarithm of softmax(x)."""
    return _array(_core.log_softmax(x, axis))


def one_hot(data, depth):
    """Return float32 [..., depth]: 1 at the index that each number is, 0 elsewhere."""
    return _array(_F.one_hot(data.long(), depth).float())


def convolution(data, weight, bias=None, kernel=None, stride=1, dilate=1, pad=0, num_filter=None, num_group=1,
                no_bias=False):
    """Return the convolution of [n, c, h, w] or [n, c, w] with weights [num_filter, c / num_group, *kernel]."""
    extents = tuple(weight.shape)
    if kernel is not None and _extents(kernel) != extents[2:] or num_filter not in (None, extents[0]):
        raise ValueError(f"convolution: kernel {kernel}, num_filter {num_filter}, expected those of the weight "
                         f"{list(extents)}: {extents[2:]}, {extents[0]}")
    convolve = {3: _F.conv1d, 4: _F.conv2d}[len(extents)]
    return _array(convolve(data, weight, None if no_bias else bias, stride, pad, dilate, num_group))


def pooling(data, kernel=1, pool_type="max", global_pool=False, stride=1, pad=0, count_include_pad=True):
    """Return the maximum, the mean, or the sum of each window of [n, c, h, w]; global_pool: of all places."""
    if pool_type not in ("max", "avg", "sum"):
        raise ValueError(f"pooling: pool_type is {pool_type!r}, expected 'max', 'avg', or 'sum'")
    if global_pool:
        kernel, stride, pad = tuple(data.shape[2:]), 1, 0
    if pool_type == "max":
        return _array(_F.max_pool2d(data, kernel, stride, pad))
    sizes = kernel if isinstance(kernel, (tuple, list)) else (kernel, kernel)
    mean = _F.avg_pool2d(data, kernel, stride, pad, count_include_pad=count_include_pad or pool_type == "sum")
    return _array(mean if pool_type == "avg" else mean * (sizes[0] * sizes[1]))


def _uniform(low, high, size, dtype, ctx, device):
    dtype = _dtype(dtype) or _F32
    y = (_core.rand(*_extents(size)) * (high - low) + low).to(dtype)
    if dtype.is_floating_point:  # high is excluded, also where a number rounds to it
        bottom, top = ((_core.zeros_like(y) + limit).to(dtype) for limit in (low, high))
        y = _core.where(y == top, bottom, y)
    return _placed(y, ctx, device)


def _normal(loc, scale, size, dtype, ctx, device):
    return _placed((_core.randn(*_extents(size)) * scale + loc).to(_dtype(dtype) or _F32), ctx, device)


def _np_uniform(low=0.0, high=1.0, size=(), dtype=None, ctx=None, device=None):
    """Return numbers in [low, high)."""
    return _uniform(low, high, size, dtype, ctx, device)


def _np_normal(loc=0.0, scale=1.0, size=(), dtype=None, ctx=None, device=None):
    """Return normal numbers."""
    return _normal(loc, scale, size, dtype, ctx, device)


def _nd_uniform(low=0.0, high=1.0, shape=(1,), dtype=None, ctx=None):
    """Return numbers in [low, high)."""
    return _uniform(low, high, shape, dtype, ctx, None)


def _nd_normal(loc=0.0, scale=1.0, shape=(1,), dtype=None, ctx=None):
    """Return normal numbers."""
    return _normal(loc, scale, shape, dtype, ctx, None)


def _method(name):
    def function(a, *args, **kwargs):
        return getattr(as_array(a), name)(*args, **kwargs)

    return function


def _pairwise(function):
    def of_two(x1, x2):
        first = x1 if isinstance(x1, Tensor) else x2
        return _array(function(*(x if isinstance(x, Tensor) else _core.full_like(first, x) for x in (x1, x2))))

    return of_two


_functions = {name: _method(name) for name in (
    "sum mean max min std var argmax argmin exp log sqrt square abs sign tanh transpose repeat expand_dims reshape "
    "broadcast_to squeeze swapaxes sort argsort clip cumsum").split()}
_both = dict(_functions, array=array, zeros=_filled(_core.zeros), ones=_filled(_core.ones), full=full, arange=arange,
             dot=dot, eye=eye, zeros_like=_giving_arrays(_core.zeros_like), ones_like=_giving_arrays(_core.ones_like),
             maximum=_pairwise(_core.maximum), minimum=_pairwise(_core.minimum),
             where=_giving_arrays(_core.where))


def _stack(arrays, axis=0):
    """Return the arrays, stacked on a new axis."""
    return _array(_core.stack(list(arrays), axis))


def _concatenate(seq, axis=0):
    """Return the arrays, one after the other on an axis."""
    return _array(_core.cat(list(seq), axis))


np = types.SimpleNamespace(
    **_both, ndarray=ndarray, matmul=_giving_arrays(_core.matmul), stack=_stack, concatenate=_concatenate,
    random=types.SimpleNamespace(uniform=_np_uniform, normal=_np_normal, seed=_core.manual_seed),
    float32="float32", float64="float64", float16="float16", int32="int32", int64="int64", uint8="uint8")

nd = types.SimpleNamespace(
    **_both, NDArray=ndarray, waitall=waitall, relu=relu, sigmoid=sigmoid, softmax=softmax, log_softmax=log_softmax,
    one_hot=one_hot, stack=lambda *arrays, axis=0: _stack(arrays, axis),
    concat=lambda *arrays, dim=1: _concatenate(arrays, dim),
    random=types.SimpleNamespace(uniform=_nd_uniform, normal=_nd_normal, seed=_core.manual_seed))
