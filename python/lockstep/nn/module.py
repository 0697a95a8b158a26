"""The methods of Module that need no C++.

The library has the tree: names of parameters, buffers, and children, in their order. A module's attributes are the
objects of Python for them, so that reading one is as quick as any attribute.
"""

import copy
import functools
import itertools
import threading
import types
import weakref
from collections import OrderedDict, abc, namedtuple

from .. import _core
from .._core import Buffer, Module, Parameter, Tensor
from ..autograd.function import Function
from .utils import zero_gradients

_get = object.__getattribute__
_set = object.__setattr__
_ARGUMENTS = "_lockstep_arguments"  # those of the constructor; set by module_class.cc
# Hooks by the number of their handle. As in PyTorch, programs may read and replace these dicts.
_CALL_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_STATE_HOOKS = ("_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks",
                "_load_state_dict_post_hooks")


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict() did not find in the model or in the state."""

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


# Parameters and buffers that layers of the library have only with some options: the constructor's arguments for them.
_OPTIONAL = {"bias": ("bias", "affine", "elementwise_affine"), "weight": ("affine", "elementwise_affine"),
             "running_mean": ("track_running_stats",), "running_var": ("track_running_stats",),
             "num_batches_tracked": ("track_running_stats",), "in_proj_bias": ("bias",),
             "bias_ih": ("bias",), "bias_hh": ("bias",)}


def _is_left_out(self, name):
    """Return whether a layer of the library lacks this part only because of its options."""
    options = ("bias",) if name.startswith(("bias_ih_l", "bias_hh_l")) else _OPTIONAL.get(name, ())
    arguments = self.__dict__.get(_ARGUMENTS)
    if arguments is None:  # a part that the library made for another layer
        signature = _library_class(self).__init__.__doc__ or ""
        return any(f" {option}: " in signature for option in options)
    return any(option in arguments for option in options)


def _none_kind(self, name):
    """Return the kind of a part that is None; None if there is no such part."""
    if _is_left_out(self, name):
        return "buffer" if name in ("running_mean", "running_var", "num_batches_tracked") else "parameter"
    return self.__dict__.get("_none_parts", {}).get(name)


def _is_computed(self):
    """Return whether the library computes forward(), from the parts that the layer's constructor made."""
    defines = next(c for c in type(self).__mro__ if "forward" in c.__dict__)
    return "forward" not in self.__dict__ and defines.__module__ in (Module.__module__, _core.__name__)


def _library_class(self):
    """Return the class of the library that this object has or is derived from."""
    return next(c for c in type(self).__mro__ if c is Module or c.__module__ == _core.__name__)


def _overrides(self, name):
    """Return whether the module, or its class, overrides this method of Module."""
    return name in self.__dict__ or getattr(type(self), name) is not getattr(Module, name)


# Methods of PyTorch's Module that nothing here calls: overriding them in a class of the program has no effect.
_UNCALLED = {
    "_call_impl": "forward(), or hooks", "_wrapped_call_impl": "forward(), or hooks",
    "_slow_forward": "forward(), or hooks", "_named_members": "named_parameters() and named_buffers()",
    "_replicate_for_data_parallel": "nothing: there are no copies of the model",
    "_get_backward_hooks": "register_hook() of parameters",
    "_maybe_warn_non_full_backward_hook": "register_hook() of parameters"}


def _init_subclass(cls, **options):
    super(Module, cls).__init_subclass__(**options)
    for name in _UNCALLED.keys() & cls.__dict__.keys():
        raise TypeError(f"{cls.__name__} defines {name}(), which nothing calls: expected {_UNCALLED[name]}")


def _put_child(self, name, module):
    """Add a child, as module._modules[name] = module does."""
    if module is not None and not isinstance(module, Module):
        raise TypeError(f"{type(module).__name__} is not a Module subclass")
    if module is None:
        _set_none(self, name, "child")
    else:
        _set_child(self, name, module)


class _Entries(abc.MutableMapping):
    """The parameters, buffers, or children of a module by name. A change of it changes the module."""

    def __init__(self, module, kind, list_names, register):
        self._module, self._kind, self._list_names, self._register = module, kind, list_names, register

    def _names(self):
        names = [name for name in self._list_names(self._module) if name]
        names += [name for name, kind in self._module.__dict__.get("_none_parts", {}).items() if kind == self._kind]
        inner = Module._wrapped(self._module)
        return names if inner is None else names + _Entries(inner, self._kind, self._list_names, None)._names()

    def __getitem__(self, name):
        if name not in self._names():
            raise KeyError(name)
        return getattr(self._module, name)

    def __setitem__(self, name, value):
        self._register(self._module, name, value)

    def __delitem__(self, name):
        self[name]  # raises KeyError
        delattr(self._module, name)

    def __iter__(self):
        return iter(self._names())

    def __len__(self):
        return len(self._names())

    def __repr__(self):
        return repr(OrderedDict(self))


def _getattr(self, name):
    """Find a parameter, buffer, or child that has no attribute yet."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        part = Module._part(self, name)
    except TypeError:
        part = None
    if part is not None:
        _set(self, name, part)
        return part
    if name in _CALL_HOOKS + _STATE_HOOKS:
        return _hooks_of(self, name)
    if name in _OPTIONAL and _is_left_out(self, name):
        return None
    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


def _setattr(self, name, value):
    if isinstance(value, Parameter):
        self.register_parameter(name, value)
        return
    if isinstance(value, Module):
        _set_child(self, name, value)
        return
    try:
        kind = Module._kind_of(self, name) or _none_kind(self, name)
    except TypeError:
        raise AttributeError("cannot assign an attribute before Module.__init__() call") from None
    if kind == "buffer" and isinstance(value, Tensor):
        _assign_buffer(self, name, value)
    elif kind and value is None:
        _set_none(self, name)
    elif kind:
        expected = {"parameter": "torch.nn.Parameter or None", "child": "torch.nn.Module or None",
                    "buffer": "torch.Tensor or None"}[kind]
        raise TypeError(f"cannot assign '{type(value).__name__}' as {kind} '{name}' ({expected} expected)")
    else:
        if name in _CALL_HOOKS + _STATE_HOOKS:
            _replace_hooks(self, name, value)
            return
        _check_called(self, name)
        arguments = self.__dict__.get(_ARGUMENTS, ())
        if name in arguments:
            _change_option(self, arguments, name, value)
        _set(self, name, value)
        if name == "forward":
            Module._set_hooked(self, True)
        elif name in ("train", "eval"):
            Module._set_own_mode(self)


def _check_called(self, name):
    """Raise if this attribute is a method that the library's transformer layers do not call."""
    if name in ("_sa_block", "_mha_block", "_ff_block"):
        if isinstance(self, (_core.TransformerEncoderLayer, _core.TransformerDecoderLayer)):
            raise _core.Error(f"{self._get_name()}.{name}: the library's layer does not call it, expected forward()")
    if name == "forward" or name in _CALL_HOOKS:
        if isinstance(self, _core.MultiheadAttention) and Module._in_transformer_layer(self):
            what = "forward()" if name == "forward" else "a hook"
            raise _core.Error(f"module: {what} of the attention in a transformer layer, which does not call it as a "
                              "module: expected a forward() or a hook of the layer, or a hook of its other modules")


def _change_option(self, arguments, name, value):
    """Pass the change to the layer, which computes with its constructor's options, or raise."""
    if name == "inplace" or isinstance(getattr(type(self), name, None), property):
        arguments[name] = value
        return
    if _is_computed(self):
        if value != getattr(self, name):
            raise _core.Error(f"{self._get_name()}: {name} = {value!r}, but the layer has {getattr(self, name)!r} from "
                              "its constructor, expected a new layer")
    else:  # a forward() that reads its attributes
        _set(self, "_options_changed", name)


def _assign_buffer(self, name, value):
    old = getattr(self, name)
    if value is old:
        return
    if value.requires_grad:
        raise _core.Error(f"module: buffer '{name}' becomes a tensor with a gradient, expected value.detach()")
    if isinstance(value, Buffer):
        value = value.data
    if old is None:
        _put_buffer(self, name, Buffer(value))
    else:  # another tensor: holders of the old one keep its value
        _put_buffer(self, name, old._successor(value))


def _put_buffer(self, name, buffer):
    _take_name(self, name, "buffer")
    Module._set_buffer(self, name, buffer)
    _set(self, name, buffer)


def _forget(self, name):
    Module._erase(self, name)
    self.__dict__.pop(name, None)


def _set_none(self, name, kind=None):
    """Remove a part. Its name keeps its kind: a tensor that is assigned to the name of a buffer becomes a buffer."""
    kind = Module._kind_of(self, name) or kind
    if Module._kind_of(self, name):
        _forget(self, name)
    _set(self, name, None)
    if kind:
        _set(self, "_none_parts", {**self.__dict__.get("_none_parts", {}), name: kind})


def _forget_none(self, name):
    parts = self.__dict__.get("_none_parts", {})
    if name in parts:
        _set(self, "_none_parts", {n: kind for n, kind in parts.items() if n != name})


def _delattr(self, name):
    _forget_none(self, name)
    if Module._kind_of(self, name):
        _forget(self, name)
    else:
        object.__delattr__(self, name)


def _check_name(self, name, what):
    if isinstance(name, str) and hasattr(type(self), name):
        raise KeyError(f"attribute '{name}' already exists")
    if not isinstance(name, str):
        raise TypeError(f"{what} name should be a string. Got {type(name).__name__}")
    if "." in name:
        raise KeyError(f'{what} name can\'t contain ".", got: {name}')
    if name == "":
        raise KeyError(f'{what} name can\'t be empty string ""')


def _take_name(self, name, kind):
    """Remove an entry of another kind, as assigning it to an attribute does in PyTorch."""
    try:
        known = Module._kind_of(self, name)
    except TypeError:
        raise AttributeError(f"cannot assign {kind} before Module.__init__() call") from None
    if known and known != kind:
        _forget(self, name)
    _forget_none(self, name)
    if not known and kind != "child" and _is_left_out(self, name):
        if _is_computed(self):
            raise _core.Error(f"{self._get_name()}: {name} for a layer that was made without it, and would not use it: "
                              "expected a layer with it from its constructor")
        _set(self, "_options_changed", name)


def register_parameter(self, name, param):
    """Add a parameter under this name, or None."""
    _check_name(self, name, "parameter")
    if param is None:
        _set_none(self, name, "parameter")
        return
    if not isinstance(param, Parameter):
        raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                        "(torch.nn.Parameter or None required)")
    _take_name(self, name, "parameter")
    Module._set_parameter(self, name, param)
    _set(self, name, param)


def add_module(self, name, module):
    """Add a child under this name, or None."""
    _check_name(self, name, "module")
    if module is not None and not isinstance(module, Module):
        raise TypeError(f"{type(module).__name__} is not a Module subclass")
    if module is None:
        _set_none(self, name, "child")
        return
    _set_child(self, name, module)


def _set_child(self, name, module):
    arguments = self.__dict__.get(_ARGUMENTS, ())
    if name in arguments and not Module._kind_of(self, name):  # such as an activation
        _change_option(self, arguments, name, module)
    _take_name(self, name, "child")
    Module._set_child(self, name, module)
    _set(self, name, module)


def register_buffer(self, name, tensor, persistent=True):
    """Add a tensor of the module's state that is not trained."""
    _check_name(self, name, "buffer")
    is_none_part = name in self.__dict__.get("_none_parts", ())
    if name in self.__dict__ and not Module._kind_of(self, name) and not is_none_part:
        raise KeyError(f"attribute '{name}' already exists")
    if tensor is None:
        _set_none(self, name, "buffer")
    elif not isinstance(tensor, Tensor):
        raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' "
                        "(torch Tensor or None required)")
    else:
        _put_buffer(self, name, tensor if isinstance(tensor, Buffer) else Buffer(tensor.detach()))
    temporary = self.__dict__.get("_temporary_buffers", ())
    names = [n for n in temporary if n != name] + ([] if persistent else [name])
    if names or temporary:
        _set(self, "_temporary_buffers", tuple(names))


def _hooks(self, kind):
    return list(self.__dict__.get(kind, {}).values())


# ---- The tree


def _own_children(self):
    """Yield (name, child). The parts of a wrapped model count as the wrapper's own."""
    for name in Module._children_names(self):
        if name:
            yield name, getattr(self, name)
        else:
            yield from _own_children(Module._wrapped(self))


def _own(self, names):
    for name in names(self):
        yield name, getattr(self, name)
    inner = Module._wrapped(self)
    if inner is not None:
        yield from _own(inner, names)


def named_children(self):
    """Yield (name, module) of the immediate children, each module once."""
    seen = set()
    for name, module in _own_children(self):
        if id(module) not in seen:
            seen.add(id(module))
            yield name, module


def children(self):
    """Yield the immediate children."""
    for _, module in self.named_children():
        yield module


def named_modules(self, memo=None, prefix="", remove_duplicate=True):
    """Yield (path, module) of this module and all below it."""
    memo = set() if memo is None else memo
    if id(self) in memo:
        return
    if remove_duplicate:
        memo.add(id(self))
    yield prefix, self
    for name, module in _own_children(self):
        yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)


def modules(self):
    """Yield this module and all below it."""
    for _, module in self.named_modules():
        yield module


def _named_members(self, names, prefix, recurse, remove_duplicate=True):
    seen = set()
    found = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
    for path, module in found:
        for name, value in _own(module, names):
            if remove_duplicate:
                if id(value) in seen:
                    continue
                seen.add(id(value))
            yield path + ("." if path else "") + name, value


def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
    """Yield (path, parameter), each parameter once."""
    return _named_members(self, Module._parameter_names, prefix, recurse, remove_duplicate)


def parameters(self, recurse=True):
    """Yield the parameters, each once."""
    for _, p in self.named_parameters(recurse=recurse):
        yield p


def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
    """Yield (path, buffer), each buffer once."""
    return _named_members(self, Module._buffer_names, prefix, recurse, remove_duplicate)


def buffers(self, recurse=True):
    """Yield the buffers, each once."""
    for _, b in self.named_buffers(recurse=recurse):
        yield b


def get_submodule(self, target):
    """Return the module with this path."""
    module = self
    for name in target.split(".") if target else ():
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        module = getattr(module, name)
        if not isinstance(module, Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
    return module


def _get_member(self, target, kind, what):
    path, _, name = target.rpartition(".")
    module = self.get_submodule(path)
    if not hasattr(module, name):
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    value = getattr(module, name)
    if not isinstance(value, kind):
        raise AttributeError(f"`{name}` is not {what}")
    return value


def get_parameter(self, target):
    """Return the parameter with this path."""
    return _get_member(self, target, Parameter, "an nn.Parameter")


def get_buffer(self, target):
    """Return the buffer with this path."""
    return _get_member(self, target, Buffer, "a buffer")


def apply(self, fn):
    """Call fn on all modules below this one, children first, and then on this one."""
    for module in self.children():
        module.apply(fn)
    fn(self)
    return self


def train(self, mode=True):
    """Switch to training mode, or with mode=False to evaluation."""
    if not isinstance(mode, bool):
        raise ValueError("training mode is expected to be boolean")
    self.training = mode
    for module in self.children():
        module.train(mode)
    return self


def _begin_training(module):
    """Call train() of classes that override it: the library skips modules that are in training mode already."""
    if _overrides(module, "train"):
        if module.training:
            module.train()
        return
    for _, child in _direct_children(module):
        _begin_training(child)


def eval(self):
    """Switch to evaluation mode."""
    return self.train(False)


def requires_grad_(self, requires_grad=True):
    """Freeze or unfreeze all parameters."""
    for p in self.parameters():
        p.requires_grad_(requires_grad)
    return self


def zero_grad(self, set_to_none=True):
    """Drop the gradients of all parameters, or with set_to_none=False set existing ones to zeros."""
    zero_gradients(self.parameters(), set_to_none)


# ---- Places and types


class _Move:
    """The fn that _apply() of a class gets for its own tensors; parameters and buffers have already been moved."""

    def __init__(self, device, dtype):
        self._device, self._dtype = device, dtype

    def __call__(self, x):
        if isinstance(x, (Parameter, Buffer)):
            return x
        if self._device is not None:
            x = x.to(self._device)
        return x.to(self._dtype) if self._dtype is not None and x.dtype.is_floating_point else x


def _apply(self, fn, recurse=True):
    """Set parameters and buffers to fn(tensor). A class may extend it to tensors of its own: to() calls it."""
    if recurse:
        for _, child in _direct_children(self):
            child._apply(fn)
    if not isinstance(fn, _Move):
        for names in (Module._parameter_names, Module._buffer_names):
            for name in names(self):
                own = getattr(self, name)
                data = own.data
                value = fn(data)
                if value.dtype != own.dtype or value.device != own.device:
                    raise _core.Error(f"module: _apply() makes {name} of {self._get_name()}, {own.dtype} on "
                                      f"{own.device}, {value.dtype} on {value.device}: expected to()")
                if value is data:  # changed in place, or not at all
                    continue
                del data  # shares own's memory
                if isinstance(own, Buffer):
                    _assign_buffer(self, name, value.detach())
                else:
                    own.data = value.detach()
    return self


def to(self, device=None, dtype=None, non_blocking=False):
    """Move all parameters and buffers to a device, or cast them to float32 or float64."""
    if isinstance(device, _core.dtype):
        device, dtype = None, device
    elif isinstance(device, Tensor):
        device, dtype = device.device, device.dtype
    if device is not None:
        Module._to_devices(self, [device])
    if dtype is not None:
        if not dtype.is_floating_point:
            raise TypeError(f"nn.Module.to only accepts floating point dtypes, but got {dtype}")
        if any(p.dtype != dtype for p in (*self.parameters(), *self.buffers()) if p.dtype.is_floating_point):
            Module._to_dtype(self, dtype)
    if any(_overrides(module, "_apply") for module in self.modules()):
        self._apply(_Move(device, dtype))
    return self


def cpu(self):
    """Move to the first CPU device."""
    return self.to("cpu")


def cuda(self, device=None):
    """Move to a GPU."""
    return self.to(_core.device("cuda", device or 0))


def double(self):
    """Cast to float64."""
    return self.to(_core.float64)


def float(self):
    """Cast to float32."""
    return self.to(_core.float32)


def _refuse_half(self):
    raise _core.Error(f"module: {self._get_name()} in half precision, expected float32 or float64")


# ---- State


def _direct_children(self):
    """Yield (prefix of its paths, child); the paths of a wrapped model are those of the wrapper."""
    for name in Module._children_names(self):
        yield (name + ".", getattr(self, name)) if name else ("", Module._wrapped(self))


def _own_state(self):
    """Yield (name, parameter or buffer) of this module's part of a state."""
    for name in Module._parameter_names(self):
        yield name, getattr(self, name)
    temporary = self.__dict__.get("_temporary_buffers", ())
    for name in Module._buffer_names(self):
        if name not in temporary:
            yield name, getattr(self, name)


_EXTRA = "_extra_state"


def get_extra_state(self):
    """Return what state_dict() has of this module besides tensors. A class with more state overrides it."""
    raise RuntimeError(f"{type(self).__name__}: get_extra_state() without a definition, but set_extra_state() has one")


def set_extra_state(self, state):
    """Restore what get_extra_state() returned. A class that overrides one must override both."""
    raise RuntimeError(f"{type(self).__name__}: set_extra_state() without a definition, but get_extra_state() has one")


def _save_to_state_dict(self, destination, prefix, keep_vars):
    """Add this module's own part of the state, without its children's."""
    own_state = list(_own_state(self))
    # A layer whose shapes the first batch decides has no values yet.
    has_values = all(own._shape_known() for _, own in own_state)
    for name, own in own_state:
        destination[prefix + name] = own if keep_vars or not has_values else own.data
    if _overrides(self, "get_extra_state"):
        destination[prefix + _EXTRA] = self.get_extra_state()


def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
    """Return parameters and buffers by path, as tensors that share their memory."""
    destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args):])
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    metadata = dict(version=self._version)
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = metadata
    for hook in _hooks(self, "_state_dict_pre_hooks"):
        hook(self, prefix, keep_vars)
    self._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in _direct_children(self):
        child.state_dict(destination=destination, prefix=prefix + name, keep_vars=keep_vars)
    for hook in _hooks(self, "_state_dict_hooks"):
        result = hook(self, destination, prefix, metadata)
        if result is not None:
            destination = result
    return destination


# Writes of a load_state_dict() in progress in this thread, which are made after all of the state has been checked.
_loading = threading.local()


def _write(write):
    writes = getattr(_loading, "writes", None)
    if writes is None:
        write()
    else:
        writes.append(write)


def _write_now():
    writes, _loading.writes = _loading.writes, []
    for write in writes:
        write()


def _misfit(own, name, value):
    """Return why the parameter or buffer `own` cannot have this value; None if it can."""
    if not isinstance(value, Tensor):
        return (f'While copying the parameter named "{name}", expected torch.Tensor or Tensor-like object '
                f"from checkpoint but received {type(value)}")
    if not _has_values(value):
        return f"{name} has no values in the state: the first batch gives its shape" if _has_values(own) else None
    if not own._fits(tuple(value.shape)):
        return (f"size mismatch for {name}: copying a param with shape {value.shape} from checkpoint, "
                f"the shape in current model is {own.shape}.")
    return None


def _has_values(value):
    if isinstance(value, (Parameter, Buffer)):
        try:
            value.data
        except _core.Error:
            return False
    return True


def _copy(own, value):
    if not _has_values(value):
        return
    value = value.data if isinstance(value, (Parameter, Buffer)) else value.detach()
    own._set(value if value.dtype == own.dtype else value.to(own.dtype))


def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
    """Load this module's own part of the state, without its children's, and add what does not fit to the lists."""
    for hook in _hooks(self, "_load_state_dict_pre_hooks"):
        hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
    mine = dict(_own_state(self))
    if "num_batches_tracked" in mine and (local_metadata.get("version") or 0) < self._version == 2:
        # States of PyTorch before 0.4.1 do not have it.
        state_dict.setdefault(prefix + "num_batches_tracked", _core.zeros((), dtype=_core.int64))
    for name, own in mine.items():
        key = prefix + name
        if key not in state_dict:
            if strict:
                missing_keys.append(key)
            continue
        misfit = _misfit(own, key, state_dict[key])
        if misfit is None:
            _write(functools.partial(_copy, own, state_dict[key]))
        else:
            error_msgs.append(misfit)
    takes_extra = _overrides(self, "set_extra_state") or _overrides(self, "get_extra_state")
    if takes_extra and prefix + _EXTRA in state_dict:
        _write(functools.partial(self.set_extra_state, state_dict[prefix + _EXTRA]))
    elif takes_extra and strict:
        missing_keys.append(prefix + _EXTRA)
    if strict:
        known = {*mine, *(name for name, _ in _own_children(self)), *([_EXTRA] if takes_extra else [])}
        inner = Module._wrapped(self)
        while inner is not None:
            known |= {*dict(_own_state(inner)), _EXTRA}
            inner = Module._wrapped(inner)
        unexpected_keys += [key for key in state_dict if key.startswith(prefix)
                            and key[len(prefix):].split(".", 1)[0] not in known and key not in unexpected_keys]
    if _overrides(self, "_load_from_state_dict") and getattr(_loading, "writes", None):
        _write_now()  # the class may go on with the new values


def _load_tree(module, state_dict, prefix, metadata, incompatible, errors):
    local = {} if metadata is None else metadata.get(prefix[:-1], {})
    module._load_from_state_dict(state_dict, prefix, local, True, *incompatible, errors)
    for name, child in _direct_children(module):
        _load_tree(child, state_dict, prefix + name, metadata, incompatible, errors)
    for hook in _hooks(module, "_load_state_dict_post_hooks"):
        if not errors:
            _write_now()
        if hook(module, incompatible) is not None:
            raise _core.Error("load_state_dict: a post hook returns a value, expected a change of incompatible_keys")


def load_state_dict(self, state_dict, strict=True):
    """Copy parameters and buffers from this state. An Error names all that does not fit, and changes nothing.

    Classes that override _load_from_state_dict(), and hooks after it, see the new values. What they have loaded stays,
    even if there is an error elsewhere.
    """
    if not isinstance(state_dict, abc.Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    metadata = getattr(state_dict, "_metadata", None)
    state_dict = OrderedDict(state_dict)
    if metadata is not None:
        state_dict._metadata = metadata
    incompatible, errors = IncompatibleKeys([], []), []
    outer, _loading.writes = getattr(_loading, "writes", None), []
    try:
        _load_tree(self, state_dict, "", metadata, incompatible, errors)
        for keys, what in ((incompatible.unexpected_keys, "Unexpected"), (incompatible.missing_keys, "Missing")):
            if strict and keys:
                errors.insert(0, f"{what} key(s) in state_dict: " + ", ".join(f'"{k}"' for k in keys) + ". ")
        if errors and incompatible.missing_keys and all(f"module.{k}" in state_dict for k in incompatible.missing_keys):
            errors.append('The names of the state begin with "module.", as those of PyTorch\'s DataParallel do: '
                          "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state_dict, \"module.\")")
        if errors:
            raise _core.Error(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        _write_now()
    finally:
        _loading.writes = outer
    return incompatible


def register_state_dict_pre_hook(self, hook):
    """Call hook(module, prefix, keep_vars) before state_dict() takes this module's part."""
    return _add_hook(self, "_state_dict_pre_hooks", hook)


def register_state_dict_post_hook(self, hook):
    """Call hook(module, state_dict, prefix, local_metadata) after state_dict(), which may change the state."""
    return _add_hook(self, "_state_dict_hooks", hook)


def register_load_state_dict_pre_hook(self, hook):
    """Call hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) before
    load_state_dict() takes this module's part."""
    return _add_hook(self, "_load_state_dict_pre_hooks", functools.partial(hook, self))


def _register_load_state_dict_pre_hook(self, hook, with_module=False):
    return _add_hook(self, "_load_state_dict_pre_hooks", functools.partial(hook, self) if with_module else hook)


def register_load_state_dict_post_hook(self, hook):
    """Call hook(module, incompatible_keys) after load_state_dict() of this module and of those below it."""
    return _add_hook(self, "_load_state_dict_post_hooks", hook)


# ---- Hooks


class _Handle:
    """A registered hook. As a context manager, it removes the hook at the end. It keeps neither module nor hook."""

    _numbers = itertools.count()

    def __init__(self, module, kind, hooks):
        self.__setstate__((next(self._numbers), module, kind, hooks))

    def __getstate__(self):
        return self.id, self._module(), self._kind, self._hooks()

    def __setstate__(self, state):
        self.id, module, self._kind, hooks = state
        self._module = _weak(module)
        try:
            self._hooks = _weak(hooks)
        except TypeError:  # a plain dict of the program, to which there are no weak references
            self._hooks = self._in_module

    def _in_module(self):
        module = self._module()
        return None if module is None else module.__dict__.get(self._kind)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()

    def remove(self):
        """Remove this hook. Other registrations of the same function stay."""
        module, hooks = self._module(), self._hooks()
        if hooks is not None and hooks.pop(self.id, None) is not None and module is not None:
            module.__dict__.get(_WITH_KWARGS, set()).discard(self.id)
            _forget_call_hooks(module)


def _nothing():
    return None


def _weak(value):
    return _nothing if value is None else weakref.ref(value)


class _Hooks(OrderedDict):
    """The hooks of a module's calls. Programs may keep this dict, and add hooks without register_*_hook()."""

    _module = staticmethod(_nothing)

    @classmethod
    def of(cls, module):
        hooks = cls()
        hooks._module = weakref.ref(module)
        return hooks

    def __setitem__(self, number, hook):
        super().__setitem__(number, hook)
        module = self._module()
        if module is not None:
            _call_hooks(module)
            _forget_call_hooks(module)  # if these are no longer its hooks

    def __reduce__(self):
        return OrderedDict, (), None, None, iter(self.items())

    def __deepcopy__(self, memo):
        module = memo.get(id(self._module()))
        memo[id(self)] = hooks = OrderedDict() if module is None else _Hooks.of(module)
        for number, hook in self.items():
            hooks[copy.deepcopy(number, memo)] = copy.deepcopy(hook, memo)
        return hooks

    def __repr__(self):
        return repr(OrderedDict(self))


class _NoHooks(OrderedDict):
    """The hooks of calls that are not made."""

    def __init__(self, module):
        super().__init__()
        self._module = module

    def __setitem__(self, number, hook):
        _check_called(self._module, "_forward_hooks")


def _hooks_of(self, kind):
    """Return the hooks of this kind, to which a program may also add some without register_*_hook()."""
    if kind in self.__dict__:
        return self.__dict__[kind]
    if kind in _CALL_HOOKS:
        if isinstance(self, _core.MultiheadAttention) and Module._in_transformer_layer(self):
            return _NoHooks(self)
    hooks = _Hooks.of(self) if kind in _CALL_HOOKS else OrderedDict()
    _set(self, kind, hooks)
    return hooks


def _replace_hooks(self, kind, hooks):
    if not isinstance(hooks, dict):
        raise TypeError(f"{self._get_name()}.{kind} = {type(hooks).__name__}, expected a dict of hooks: choose another "
                        "name for an attribute of your own")
    if kind in _CALL_HOOKS and hooks:
        _check_called(self, kind)
    elif kind in _CALL_HOOKS and isinstance(_hooks_of(self, kind), _NoHooks):
        return
    _set(self, kind, hooks)
    if kind in _CALL_HOOKS:
        _call_hooks(self)
        _forget_call_hooks(self)


def _call_hooks(self):
    """Let Python call forward(), and hooks before and after it."""
    Module._set_hooked(self, True)
    _set(self, "_call_hooked", True)


def _forget_call_hooks(self):
    """Let the library call forward() again, if there are no more hooks of calls.

    The dicts stay, because the program may have them. One that is the program's own may get hooks at any time.
    """
    dicts = [self.__dict__[kind] for kind in _CALL_HOOKS if kind in self.__dict__]
    tell = all(isinstance(hooks, _Hooks) and hooks._module() is self for hooks in dicts)
    if "_call_hooked" in self.__dict__ and tell and not any(dicts):
        del self.__dict__["_call_hooked"]
        Module._set_hooked(self, "forward" in self.__dict__)


def _add_hook(self, kind, hook, prepend=False, with_kwargs=False):
    if kind in _CALL_HOOKS:
        _check_called(self, kind)
    hooks = _hooks_of(self, kind)
    handle = _Handle(self, kind, hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    if with_kwargs:
        if _WITH_KWARGS not in self.__dict__:
            _set(self, _WITH_KWARGS, set())
        self.__dict__[_WITH_KWARGS].add(handle.id)
    return handle


_WITH_KWARGS = "_lockstep_hooks_with_kwargs"  # the numbers of hooks that get the keyword arguments, too


def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False):
    """Call hook(module, args, output) after each forward(); unless it returns None, its result replaces the output.

    with_kwargs: hook(module, args, kwargs, output). prepend: before the hooks that are registered already.
    """
    return _add_hook(self, "_forward_hooks", hook, prepend, with_kwargs)


def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
    """Call hook(module, args) before each forward(); unless it returns None, its result replaces the arguments.

    with_kwargs: hook(module, args, kwargs), which returns both or None. prepend: before the hooks registered already.
    """
    return _add_hook(self, "_forward_pre_hooks", hook, prepend, with_kwargs)


def _call_with_hooks(self, args, kwargs):
    with_kwargs = self.__dict__.get(_WITH_KWARGS, ())
    for number, hook in list(self.__dict__.get("_forward_pre_hooks", {}).items()):
        if number in with_kwargs:
            result = hook(self, args, kwargs)
            if result is not None:
                if not isinstance(result, tuple) or len(result) != 2:
                    raise _core.Error(f"module: a forward pre-hook returns {result!r}, expected None or (args, kwargs)")
                args, kwargs = result
            continue
        result = hook(self, args)
        if result is not None:
            args = result if isinstance(result, tuple) else (result,)
    passes = _BackwardHooks.of(self)
    if passes is not None:
        args = passes.begin(args)
    output = Module._forward(self, *args, **kwargs)
    if passes is not None:
        output = passes.end(output)
    for number, hook in list(self.__dict__.get("_forward_hooks", {}).items()):
        result = hook(self, args, kwargs, output) if number in with_kwargs else hook(self, args, output)
        if result is not None:
            output = result
    return output


def register_full_backward_hook(self, hook, prepend=False):
    """Call hook(module, grad_input, grad_output) after the gradients of the inputs are computed; unless it returns
    None, its result replaces them."""
    return _add_hook(self, "_backward_hooks", hook, prepend)


def register_full_backward_pre_hook(self, hook, prepend=False):
    """Call hook(module, grad_output) before the module's backward pass; a result but None replaces the gradients."""
    return _add_hook(self, "_backward_pre_hooks", hook, prepend)


def _refuse_backward_hook(self, *args, **kwargs):
    raise NotImplementedError("register_backward_hook: expected register_full_backward_hook()")


class _Border(Function):
    """Joins tensors at one place in the history, so that their gradients can be seen together."""

    @staticmethod
    def forward(ctx, see, *tensors):
        ctx.see = see
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx, *gradients):
        return None, *ctx.see(gradients)


class _BackwardHooks:
    """One call of a module with backward hooks."""

    @classmethod
    def of(cls, module):
        hooks = module.__dict__
        return cls(module) if hooks.get("_backward_hooks") or hooks.get("_backward_pre_hooks") else None

    def __init__(self, module):
        self.module = module
        self.before = _hooks(module, "_backward_pre_hooks")
        self.after = _hooks(module, "_backward_hooks")
        self.input_count, self.grad_output, self.has_inputs = 0, None, False

    def begin(self, args):
        self.places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        self.input_count = len(args)
        self.has_inputs = _core.is_grad_enabled() and any(args[i].requires_grad for i in self.places)
        if not self.has_inputs:
            return args
        return self._through(args, self.places, self._inputs)

    def end(self, output):
        outputs = output if isinstance(output, tuple) else (output,)
        places = [i for i, y in enumerate(outputs) if isinstance(y, Tensor) and y.requires_grad]
        if not places:
            return output
        self.output_count, self.output_places = len(outputs), places
        outputs = self._through(outputs, places, self._outputs)
        return outputs if isinstance(output, tuple) else outputs[0]

    def _through(self, values, places, see):
        values = list(values)
        for i, x in zip(places, _Border.apply(see, *(values[i] for i in places))):
            values[i] = x
        return tuple(values)

    def _call(self, hooks, gradients, *more):
        for hook in hooks:
            found = hook(self.module, gradients, *more)
            if found is None:
                continue
            found = found if isinstance(found, tuple) else (found,)
            if len(found) != len(gradients):
                raise _core.Error(f"module: a backward hook of {self.module._get_name()} returned {len(found)} "
                                  f"gradients, expected {len(gradients)}")
            gradients = found
        return gradients

    def _spread(self, gradients, places, count):
        all_of_them = [None] * count
        for i, g in zip(places, gradients):
            all_of_them[i] = g
        return tuple(all_of_them)

    def _outputs(self, gradients):
        self.grad_output = self._call(self.before, self._spread(gradients, self.output_places, self.output_count))
        if not self.has_inputs:
            self._call(self.after, (None,) * self.input_count, self.grad_output)
        return [self.grad_output[i] for i in self.output_places]

    def _inputs(self, gradients):
        found = self._call(self.after, self._spread(gradients, self.places, self.input_count), self.grad_output)
        return [found[i] for i in self.places]


# ---- Printing


def _get_name(self):
    if type(self).__module__ != _core.__name__:
        return type(self).__name__
    name = Module._kind(self)
    lazy = any(not p._shape_known() for p in self.parameters(recurse=False))
    return "Lazy" + name if lazy else name


def _indented(text):
    lines = text.split("\n")
    return "\n".join([lines[0], *("  " + line for line in lines[1:])])


def _repr(self):
    extra = self.extra_repr()
    if self.__dict__.get("inplace") is True and "inplace" not in extra:
        extra += (", " if extra else "") + "inplace=True"
    elif self.__dict__.get("inplace") is True:
        extra = extra.replace("inplace=False", "inplace=True")
    lines = extra.split("\n") if extra else []
    parts = [f"({name}): {_indented(repr(module))}" for name, module in self.named_children_with_repeats()]
    text = self._get_name() + "("
    if len(lines) == 1 and not parts:
        text += lines[0]
    elif lines or parts:
        text += "\n  " + "\n  ".join(lines + parts) + "\n"
    return text + ")"


def _dir(self):
    return sorted({*object.__dir__(self), *Module._children_names(self), *Module._parameter_names(self),
                   *Module._buffer_names(self)})


def _deepcopy(self, memo):
    """Make another module with the same values."""
    base = _library_class(self)
    for name in ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"):
        if getattr(type(self), name, None) is not getattr(Module, name, None):
            raise _core.Error(f"deepcopy: {self._get_name()} defines {name}(), which the copy of a module does not "
                              "call: expected __deepcopy__(), or a new model and load_state_dict()")
    arguments = self.__dict__.get(_ARGUMENTS, {} if base in (Module, _core.Sequential) else None)
    if arguments is None:
        raise _core.Error(f"deepcopy: {self._get_name()} was not made in Python, expected a new model and "
                          "load_state_dict()")
    new = type(self).__new__(type(self))
    memo[id(self)] = new
    new.__dict__["_is_copied"] = True  # reset_parameters() would need attributes that are set later
    # The copy computes with what its attributes are. A method of a module that is not being copied stays.
    memo.update((id(value), value) for value in arguments.values()
                if isinstance(value, types.MethodType) and isinstance(value.__self__, Module)
                and id(value.__self__) not in memo)
    _construct[base](new, **{name: copy.deepcopy(value, memo) for name, value in arguments.items()})
    del new.__dict__["_is_copied"]
    _copy_parts(new, self, memo)
    return new


# Constructors of the library by class. Python replaces those of some classes.
class _Constructors(dict):
    def __missing__(self, cls):
        return cls.__init__


_construct = _Constructors()


def _copy_parts(new, old, memo):
    for name, value in old.__dict__.items():
        of_library = name in (_ARGUMENTS, "_call_hooked") or _is_kept(value)
        if not of_library and not Module._kind_of(old, name):
            new.__dict__[name] = copy.deepcopy(value, memo)
    _cast_like(new, old)
    names = [*Module._parameter_names(old), *Module._buffer_names(old)]
    has_values = all(getattr(old, name)._shape_known() for name in names)  # a lazy layer gets them in its first pass
    for name in names:
        p = getattr(old, name)
        if id(p) in memo and isinstance(p, Buffer):
            _put_buffer(new, name, memo[id(p)])
        elif id(p) in memo:
            setattr(new, name, memo[id(p)])
        elif Module._kind_of(new, name) and _is_like(getattr(new, name), p):
            memo[id(p)] = copied = getattr(new, name)
            if has_values:
                copied._begin_with(p)
            if isinstance(p, Parameter):
                copied.requires_grad_(p.requires_grad)
        elif isinstance(p, Parameter):
            new.register_parameter(name, copy.deepcopy(p, memo))
        else:
            memo[id(p)] = copied = Buffer(p.data)
            Module._set_buffer(new, name, copied)
            _set(new, name, copied)
    for name in Module._children_names(old):
        child = getattr(old, name)
        if Module._kind_of(new, name) and memo.get(id(child)) is getattr(new, name):
            continue  # an argument of the constructor, such as an activation
        if Module._kind_of(new, name):
            memo[id(child)] = copied = getattr(new, name)
            _copy_parts(copied, child, memo)
        else:
            _set_child(new, name, copy.deepcopy(child, memo))
    if "forward" in new.__dict__:
        Module._set_hooked(new, True)
    if any(kind in new.__dict__ for kind in _CALL_HOOKS):
        _call_hooks(new)
        _forget_call_hooks(new)
    new.training = old.training


def _is_kept(value):
    """Return whether this is what objects of C++ hold (held.h)."""
    return isinstance(value, list) and any(isinstance(x, _core._Kept) for x in value)


def _cast_like(new, old):
    types = {p.dtype for p in (*old.parameters(False), *old.buffers(False)) if p.dtype.is_floating_point}
    if types == {_core.float64}:
        new.double()


def _is_like(new, old):
    return new.dtype == old.dtype and (not (new._shape_known() and old._shape_known()) or new.shape == old.shape)


class _Signature:
    """The arguments of a class's constructor, for inspect.signature()."""

    def __get__(self, module, cls):
        import inspect

        if module is not None:
            raise AttributeError("__signature__")
        try:
            signature = inspect.signature(cls.__init__)
        except ValueError:  # of several forms
            raise AttributeError("__signature__") from None
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _reduce(self, protocol):
    if type(self).__reduce__ is not object.__reduce__:
        return self.__reduce__()
    raise TypeError(f"cannot pickle or copy a {self._get_name()}: expected state_dict() and load_state_dict(), or "
                    "copy.deepcopy()")


def _parameter_deepcopy(self, memo):
    memo[id(self)] = copied = Parameter(self.data, self.requires_grad)
    return copied


def _forward_unknown(self, *args, **kwargs):
    return self.forward(*args, **kwargs)


def _complete():
    for name, method in dict(
            __getattr__=_getattr, __setattr__=_setattr, __delattr__=_delattr, __repr__=_repr, __dir__=_dir,
            __deepcopy__=_deepcopy, __reduce_ex__=_reduce, __signature__=_Signature(),
            register_backward_hook=_refuse_backward_hook, half=_refuse_half, bfloat16=_refuse_half,
            register_module=add_module, _forward=_forward_unknown,
            named_children_with_repeats=_own_children,
            _modules=property(lambda self: _Entries(self, "child", Module._children_names, _put_child)),
            _parameters=property(lambda self: _Entries(self, "parameter", Module._parameter_names,
                                                           register_parameter)),
            _buffers=property(lambda self: _Entries(self, "buffer", Module._buffer_names, register_buffer)),
            _version=1, __init_subclass__=classmethod(_init_subclass),
            _register_state_dict_hook=register_state_dict_post_hook,
    ).items():
        setattr(Module, name, method)
    for method in (register_parameter, add_module, register_buffer, named_children, children, named_modules, modules,
                   named_parameters, parameters, named_buffers, buffers, get_submodule, get_parameter, get_buffer,
                   apply, train, eval, requires_grad_, zero_grad, _apply, to, cpu, cuda, double, float, state_dict,
                   load_state_dict, get_extra_state, set_extra_state, _save_to_state_dict, _load_from_state_dict,
                   register_state_dict_pre_hook, register_state_dict_post_hook, register_load_state_dict_pre_hook,
                   _register_load_state_dict_pre_hook, register_load_state_dict_post_hook, register_forward_hook,
                   register_forward_pre_hook, register_full_backward_hook, register_full_backward_pre_hook,
                   _call_with_hooks, _get_name):
        setattr(Module, method.__name__, method)
    Module.__module__ = "lockstep.nn"
    Parameter.__deepcopy__ = _parameter_deepcopy
    Parameter.__repr__ = lambda self: "Parameter containing:\n" + _parameter_text(self)


def _parameter_text(self):
    text = Tensor.__repr__(self)
    if not self.requires_grad or "requires_grad" in text:
        return text
    return text[:-1] + ", requires_grad=True)" if text.endswith(")") else text


_complete()
