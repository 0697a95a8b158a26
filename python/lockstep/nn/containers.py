"""Modules that hold others: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from collections import OrderedDict

from .._core import Module, Parameter, Sequential
from .module import _construct

_make_sequential = _construct[Sequential] = Sequential.__init__


def _add(self, name, module):
    if module is None:
        raise TypeError(f"{type(self).__name__}: module {name} is None, expected a module, such as nn.Identity()")
    self.add_module(name, module)


class _Numbered:
    """What Sequential and ModuleList share: children in order."""

    def __len__(self):
        return len(Module._children_names(self))

    def _name_at(self, i):
        names = Module._children_names(self)
        if not -len(names) <= i < len(names):
            raise IndexError(f"index {i} is out of range")
        return names[i]

    def __getitem__(self, i):
        if isinstance(i, slice):
            names = Module._children_names(self)[i]
            if isinstance(self, Sequential):
                return type(self)(OrderedDict((name, getattr(self, name)) for name in names))
            return type(self)([getattr(self, name) for name in names])
        return getattr(self, self._name_at(i))

    def __setitem__(self, i, module):
        self.add_module(self._name_at(i), module)

    def __delitem__(self, i):
        names = Module._children_names(self)
        gone = set(names[i]) if isinstance(i, slice) else {self._name_at(i)}
        self._refill([(name, getattr(self, name)) for name in names if name not in gone],
                     all(name.isdigit() for name in names))

    def _refill(self, kept, numbered):
        for name in Module._children_names(self):
            delattr(self, name)
        for i, (name, module) in enumerate(kept):
            self.add_module(str(i) if numbered else name, module)

    def __iter__(self):
        return iter([getattr(self, name) for name in Module._children_names(self)])

    def append(self, module):
        """Add a module at the end."""
        _add(self, str(len(self)), module)
        return self

    def extend(self, modules):
        """Add modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        """Add a module before this index."""
        modules = list(self)
        modules.insert(index, module)
        self._refill([("", m) for m in modules], True)

    def pop(self, index):
        """Remove a module, and return it."""
        module = self[index]
        del self[index]
        return module

    def __dir__(self):
        return [name for name in Module.__dir__(self) if not name.isdigit()]


def _init_sequential(self, *args):
    _make_sequential(self)
    by_name = len(args) == 1 and isinstance(args[0], OrderedDict)
    for name, module in args[0].items() if by_name else enumerate(args):
        _add(self, str(name), module)


Sequential.__init__ = _init_sequential
for _name, _method in vars(_Numbered).items():
    if callable(_method) and _name != "__dir__":
        setattr(Sequential, _name, _method)
Sequential.__dir__ = _Numbered.__dir__


class ModuleList(_Numbered, Module):
    """Modules in a list, which their owner calls."""

    def __init__(self, modules=None):
        Module.__init__(self)
        if modules is not None:
            self.extend(modules)

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList([*self, *other])

    def forward(self, *args):
        raise NotImplementedError("ModuleList has no forward(): call its modules")


class _Named:
    """What ModuleDict and ParameterDict share: parts under names; _KIND is the kind of the parts."""

    def __getitem__(self, key):
        if key not in self:
            raise KeyError(key)
        return getattr(self, key)

    def __delitem__(self, key):
        delattr(self, key)

    def __len__(self):
        return len(self._names())

    def __iter__(self):
        return iter(self._names())

    def __contains__(self, key):
        return Module._kind_of(self, key) == self._KIND

    def keys(self):
        """Return the names."""
        return self._names()

    def values(self):
        """Return the parts."""
        return [getattr(self, key) for key in self]

    def items(self):
        """Return (name, part) pairs."""
        return [(key, getattr(self, key)) for key in self]

    def update(self, parts):
        """Add parts from a dict or from pairs."""
        for key, part in parts.items() if hasattr(parts, "items") else parts:
            self[key] = part

    def pop(self, key):
        """Remove a part, and return it."""
        part = self[key]
        del self[key]
        return part

    def clear(self):
        """Remove all parts."""
        for key in list(self):
            del self[key]


class ModuleDict(_Named, Module):
    """Modules under names, which their owner calls."""

    _KIND = "child"

    def __init__(self, modules=None):
        super().__init__()
        self.update(modules or {})

    def _names(self):
        return Module._children_names(self)

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def forward(self, *args):
        raise NotImplementedError("ModuleDict has no forward(): call its modules")


def _as_parameter(value):
    return value if isinstance(value, Parameter) else Parameter(value)


class _Parameters(Module):
    def _lines(self, named):
        lines = []
        for name, p in named:
            size = "x".join(map(str, p.shape))
            kind = str(p.dtype) if isinstance(self, ParameterList) else {"torch.float64": "torch.DoubleTensor"}.get(
                str(p.dtype), "torch.FloatTensor")
            lines.append(f"  ({name}): Parameter containing: [{kind} of size {size}]")
        return "\n".join(lines)

    def forward(self, *args):
        raise NotImplementedError(f"{type(self).__name__} has no forward()")


class ParameterList(_Parameters):
    """Parameters in a list."""

    def __init__(self, values=None):
        super().__init__()
        self.extend(values or ())

    def __len__(self):
        return len(Module._parameter_names(self))

    def __getitem__(self, i):
        if isinstance(i, slice):
            return ParameterList([self[k] for k in range(*i.indices(len(self)))])
        return getattr(self, str(range(len(self))[i]))

    def __setitem__(self, i, value):
        setattr(self, str(range(len(self))[i]), _as_parameter(value))

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def append(self, value):
        """Add a parameter, or a tensor that becomes one."""
        self.register_parameter(str(len(self)), _as_parameter(value))
        return self

    def extend(self, values):
        """Add several."""
        for value in values:
            self.append(value)
        return self

    def extra_repr(self):
        return self._lines(enumerate(self))


class ParameterDict(_Named, _Parameters):
    """Parameters under names."""

    _KIND = "parameter"

    def __init__(self, parameters=None):
        super().__init__()
        self.update(parameters or {})

    def _names(self):
        return Module._parameter_names(self)

    def __setitem__(self, key, value):
        self.register_parameter(key, _as_parameter(value))

    def extra_repr(self):
        return self._lines(self.items())
