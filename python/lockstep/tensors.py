"""Additions to the methods of _core.Tensor: how tensors print, copy, and pickle."""

from copy import deepcopy

from . import _core
from .printing import text_of


def _rebuild(array, dtype, requires_grad):
    return _core.tensor(array, dtype=dtype, requires_grad=requires_grad)


def _rebuild_parameter(array, dtype, requires_grad):
    return _core.Parameter(_core.tensor(array, dtype=dtype), requires_grad)


def _reduce(self, protocol=None):
    """Pickle the elements, the type, and whether the tensor is a leaf that requires a gradient."""
    if not self.is_leaf:
        raise _core.Error("pickle: the tensor has a history, which a copy would lose: detach() it")
    host = self.to_host()
    data = host.float().numpy() if host.dtype == _core.bfloat16 else host.numpy()
    rebuild = _rebuild_parameter if isinstance(self, _core.Parameter) else _rebuild
    return rebuild, (data.copy(), self.dtype, self.requires_grad)


def _deepcopy(self, memo):
    if not self.is_leaf:
        raise _core.Error("deepcopy: the tensor has a history, which a copy would lose: detach() it")
    copy = self.detach().clone()
    if self.requires_grad:
        copy.requires_grad_()
    memo[id(self)] = copy
    # As in PyTorch, the copy of a parameter has neither.
    if not isinstance(self, _core.Parameter):
        if self.grad is not None:
            copy.grad = deepcopy(self.grad, memo)
        if getattr(self, "__dict__", None):
            copy.__dict__.update(deepcopy(self.__dict__, memo))
    return copy


def _copy(self):
    """Return a tensor that shares the memory, as copy.copy() of PyTorch."""
    if isinstance(self, _core.Parameter) or not self.is_leaf:
        raise _core.Error("copy.copy: of a parameter, or of a tensor with a history, expected copy.deepcopy(x), or "
                          "x.detach()")
    copy = self.detach()
    if self.requires_grad:
        copy.requires_grad_()
    if getattr(self, "__dict__", None):
        copy.__dict__.update(self.__dict__)
    return copy


def _dtype(name):
    return _core._bool if name == "bool" else getattr(_core, name)


_TYPES = {"FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "BFloat16Tensor": "bfloat16",
          "LongTensor": "int64", "IntTensor": "int64", "ByteTensor": "uint8", "BoolTensor": "_bool"}


def _type(self, dtype=None, non_blocking=False):
    """Cast to a type, which may be a name such as "torch.FloatTensor"; without one, return the name of this one."""
    if dtype is None:
        return "torch." + next(name for name, of in _TYPES.items() if getattr(_core, of) == self.dtype)
    if isinstance(dtype, str):
        name = dtype.removeprefix("torch.")
        if name not in _TYPES:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = getattr(_core, _TYPES[name])
    return self.to(getattr(dtype, "_dtype", dtype))


def _contains(self, element):
    return bool((self == element).any())


_core.Tensor.type = _type
_core.Tensor.__contains__ = _contains
_core.Tensor.is_mps = _core.Tensor.is_xpu = property(lambda self: False)
_core.device.__reduce__ = lambda self: (_core.device, (str(self),))
_core.device.__deepcopy__ = lambda self, memo: self
_core.dtype.__reduce__ = lambda self: (_dtype, (repr(self).split(".")[1],))
_core.Tensor.__repr__ = text_of
_core.Tensor.__reduce_ex__ = _reduce
_core.Tensor.__deepcopy__ = _deepcopy
_core.Tensor.__copy__ = _copy
