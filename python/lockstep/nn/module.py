"""The methods of Module that need no C++.

The library has the tree: names of parameters, buffers, and children, in their order. A module's attributes are the
objects of Python for them, so that reading one is as quick as any attribute.
"""

import copy
from collections import OrderedDict, namedtuple

from .. import _core
from .._core import Buffer, Module, Parameter, Tensor

_get = object.__getattribute__
_set = object.__setattr__


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict() did not find in the model or in the state."""

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


# Parameters and buffers that layers of the library have only with some options, by arguments of their constructors.
_OPTIONAL = {"bias": ("bias", "affine", "elementwise_affine"), "weight": ("affine", "elementwise_affine"),
             "running_mean": ("track_running_stats",), "running_var": ("track_running_stats",),
             "num_batches_tracked": ("track_running_stats",), "in_proj_bias": ("bias",)}


def _library_class(self):
    """The class of the library that this object is of."""
    return next(c for c in type(self).__mro__ if c is Module or c.__module__ == _core.__name__)


def _getattr(self, name):
    """Find a parameter, buffer, or child that no attribute names yet."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        part = Module._part(self, name)
    except TypeError:
        part = None
    if part is not None:
        _set(self, name, part)
        return part
    arguments = self.__dict__.get("_arguments", ())
    if any(option in arguments for option in _OPTIONAL.get(name, ())):
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
        kind = Module._kind_of(self, name)
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
        arguments = self.__dict__.get("_arguments", ())
        if name in arguments:
            _change_option(self, arguments, name, value)
        _set(self, name, value)
        if name == "forward":
            Module._set_hooked(self, True)


def _change_option(self, arguments, name, value):
    """Tell the layer, which computes with its constructor's options, or raise."""
    if name == "inplace" or isinstance(getattr(type(self), name, None), property):
        arguments[name] = value
        return
    defines = next(c for c in type(self).__mro__ if "forward" in c.__dict__)
    if defines.__module__ in (Module.__module__, _core.__name__):
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
    if old._made and old.shape == value.shape and old.dtype == value.dtype:
        old._set(value)
    else:
        new = Buffer(value)
        Module._set_buffer(self, name, new)
        _set(self, name, new)


def _forget(self, name):
    Module._erase(self, name)
    self.__dict__.pop(name, None)


def _set_none(self, name):
    if Module._kind_of(self, name):
        _forget(self, name)
    _set(self, name, None)


def _delattr(self, name):
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


def register_parameter(self, name, param):
    """Add a parameter under this name, or None."""
    _check_name(self, name, "parameter")
    if param is None:
        _set_none(self, name)
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
        _set_none(self, name)
        return
    _set_child(self, name, module)


def _set_child(self, name, module):
    _take_name(self, name, "child")
    Module._set_child(self, name, module)
    _set(self, name, module)


def register_buffer(self, name, tensor, persistent=True):
    """Add a tensor of the module's state that is not trained."""
    _check_name(self, name, "buffer")
    if name in self.__dict__ and not Module._kind_of(self, name):
        raise KeyError(f"attribute '{name}' already exists")
    if tensor is None:
        _set_none(self, name)
        return
    if not isinstance(tensor, Tensor):
        raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' "
                        "(torch Tensor or None required)")
    _take_name(self, name, "buffer")
    buffer = tensor if isinstance(tensor, Buffer) else Buffer(tensor.detach())
    Module._set_buffer(self, name, buffer)
    _set(self, name, buffer)
    temporary = self.__dict__.get("_temporary_buffers", ())
    names = [n for n in temporary if n != name] + ([] if persistent else [name])
    if names or temporary:
        _set(self, "_temporary_buffers", tuple(names))


# ---- The tree


def _own_children(self):
    """Yield (name, child); the parts of a wrapped model are the wrapper's own."""
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


def eval(self):
    """Switch to evaluation mode."""
    return self.train(False)


def requires_grad_(self, requires_grad=True):
    """Freeze or unfreeze all parameters."""
    for p in self.parameters():
        p.requires_grad_(requires_grad)
    return self


def zero_grad(self, set_to_none=True):
    """Drop the gradients of all parameters."""
    for p in self.parameters():
        p.grad = None


# ---- Places and types


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


def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
    """Return parameters and buffers by path, as tensors that share their memory."""
    if args:
        destination = args[0]
        prefix = args[1] if len(args) > 1 else prefix
    state = OrderedDict() if destination is None else destination
    for path, module in self.named_modules(remove_duplicate=False):
        start = prefix + path + ("." if path else "")
        temporary = module.__dict__.get("_temporary_buffers", ())
        for name, p in _own(module, Module._parameter_names):
            state[start + name] = p if keep_vars else p.data
        for name, b in _own(module, Module._buffer_names):
            if name not in temporary:
                state[start + name] = b if keep_vars else b.data
    return state


def load_state_dict(self, state_dict, strict=True):
    """Copy parameters and buffers from this state. An Error names all that does not fit, and changes nothing."""
    mine, taken = OrderedDict(), set()
    for path, module in self.named_modules(remove_duplicate=False):
        start = path + ("." if path else "")
        temporary = module.__dict__.get("_temporary_buffers", ())
        for name, p in _own(module, Module._parameter_names):
            mine[start + name] = p
        for name, b in _own(module, Module._buffer_names):
            if name not in temporary:
                mine[start + name] = b
    missing = [name for name in mine if name not in state_dict]
    unexpected = [name for name in state_dict if name not in mine]
    errors = []
    if strict and unexpected:
        errors.append("Unexpected key(s) in state_dict: " + ", ".join(f'"{k}"' for k in unexpected) + ". ")
    if strict and missing:
        errors.append("Missing key(s) in state_dict: " + ", ".join(f'"{k}"' for k in missing) + ". ")
    values = {}
    for name, own in mine.items():
        if name not in state_dict:
            continue
        value = state_dict[name]
        if not isinstance(value, Tensor):
            errors.append(f'While copying the parameter named "{name}", expected torch.Tensor or Tensor-like object '
                          f"from checkpoint but received {type(value)}")
        elif not own._fits(tuple(value.shape)):
            errors.append(f"size mismatch for {name}: copying a param with shape {value.shape} from checkpoint, "
                          f"the shape in current model is {own.shape}.")
        else:
            values[name] = value
    if errors:
        raise _core.Error(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
    for name, value in values.items():
        value = value.data if isinstance(value, (Parameter, Buffer)) else value.detach()
        own = mine[name]
        own._set(value if value.dtype == own.dtype else value.to(own.dtype))
    return IncompatibleKeys(missing, unexpected)


# ---- Hooks


class _Handle:
    """A registered hook."""

    def __init__(self, module, kind, hook):
        self._module, self._kind, self._hook = module, kind, hook

    def remove(self):
        """Remove the hook."""
        hooks = self._module.__dict__.get(self._kind, [])
        if self._hook in hooks:
            hooks.remove(self._hook)
        if not any(self._module.__dict__.get(kind) for kind in ("_pre_hooks", "_hooks")):
            self._module.__dict__.pop("_call_hooked", None)
            Module._set_hooked(self._module, "forward" in self._module.__dict__)


def _register(self, kind, hook):
    if isinstance(self, _core.MultiheadAttention) and Module._in_transformer_layer(self):
        raise _core.Error("module: a hook of the attention in a transformer layer, which does not call it as a module: "
                          "expected a hook of the layer, or of its other modules")
    self.__dict__.setdefault(kind, []).append(hook)
    _set(self, "_call_hooked", True)
    Module._set_hooked(self, True)
    return _Handle(self, kind, hook)


def register_forward_hook(self, hook):
    """Call hook(module, args, output) after each forward(); what it returns, unless None, replaces the output."""
    return _register(self, "_hooks", hook)


def register_forward_pre_hook(self, hook):
    """Call hook(module, args) before each forward(); what it returns, unless None, replaces the arguments."""
    return _register(self, "_pre_hooks", hook)


def _call_with_hooks(self, args, kwargs):
    for hook in list(self.__dict__.get("_pre_hooks", ())):
        result = hook(self, args)
        if result is not None:
            args = result if isinstance(result, tuple) else (result,)
    output = Module._forward(self, *args, **kwargs)
    for hook in list(self.__dict__.get("_hooks", ())):
        result = hook(self, args, output)
        if result is not None:
            output = result
    return output


def _refuse_backward_hook(self, *args, **kwargs):
    raise NotImplementedError("backward hooks of modules: expected register_hook() of a tensor or a parameter")


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
    arguments = self.__dict__.get("_arguments", {} if base in (Module, _core.Sequential) else None)
    if arguments is None:
        raise _core.Error(f"deepcopy: {self._get_name()} was not made in Python, expected a new model and "
                          "load_state_dict()")
    new = type(self).__new__(type(self))
    memo[id(self)] = new
    new.__dict__["_is_copied"] = True  # its reset_parameters() needs attributes that come later
    _construct[base](new, **arguments)
    del new.__dict__["_is_copied"]
    _copy_parts(new, self, memo)
    return new


# Constructors of the library by class; those of some classes are replaced in Python.
class _Constructors(dict):
    def __missing__(self, cls):
        return cls.__init__


_construct = _Constructors()


def _copy_parts(new, old, memo):
    for name, value in old.__dict__.items():
        if name not in ("_arguments", "_call_hooked") and not Module._kind_of(old, name):
            new.__dict__[name] = copy.deepcopy(value, memo)
    _cast_like(new, old)
    names = [*Module._parameter_names(old), *Module._buffer_names(old)]
    has_values = all(getattr(old, name)._shape_known() for name in names)  # a lazy layer gets them in its first pass
    for name in names:
        p = getattr(old, name)
        if id(p) in memo:
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
        if Module._kind_of(new, name):
            memo[id(child)] = copied = getattr(new, name)
            _copy_parts(copied, child, memo)
        else:
            _set_child(new, name, copy.deepcopy(child, memo))
    if "_hooks" in new.__dict__ or "_pre_hooks" in new.__dict__:
        _set(new, "_call_hooked", True)
    if "_call_hooked" in new.__dict__ or "forward" in new.__dict__:
        Module._set_hooked(new, True)
    new.training = old.training


def _cast_like(new, old):
    types = {p.dtype for p in (*old.parameters(False), *old.buffers(False)) if p.dtype.is_floating_point}
    if types == {_core.float64}:
        new.double()


def _is_like(new, old):
    return new.dtype == old.dtype and (not (new._shape_known() and old._shape_known()) or new.shape == old.shape)


def _parameter_deepcopy(self, memo):
    memo[id(self)] = copied = Parameter(self.data, self.requires_grad)
    return copied


def _forward_unknown(self, *args, **kwargs):
    return self.forward(*args, **kwargs)


def _complete():
    for name, method in dict(
            __getattr__=_getattr, __setattr__=_setattr, __delattr__=_delattr, __repr__=_repr, __dir__=_dir,
            __deepcopy__=_deepcopy, register_backward_hook=_refuse_backward_hook,
            register_full_backward_hook=_refuse_backward_hook, half=_refuse_half, bfloat16=_refuse_half,
            register_module=add_module, _forward=_forward_unknown,
            named_children_with_repeats=_own_children,
            _modules=property(lambda self: OrderedDict(_own_children(self))),
            _parameters=property(lambda self: OrderedDict(self.named_parameters("", False, False))),
            _buffers=property(lambda self: OrderedDict(self.named_buffers("", False, False))),
    ).items():
        setattr(Module, name, method)
    for method in (register_parameter, add_module, register_buffer, named_children, children, named_modules, modules,
                   named_parameters, parameters, named_buffers, buffers, get_submodule, get_parameter, get_buffer,
                   apply, train, eval, requires_grad_, zero_grad, to, cpu, cuda, double, float, state_dict,
                   load_state_dict,
                   register_forward_hook, register_forward_pre_hook, _call_with_hooks, _get_name):
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
