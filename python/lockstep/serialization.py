"""save() and load(): tensors and nested objects in one safetensors file. Loading runs no code from the file."""

import collections
import contextlib
import io
import json
import os
import re
from collections.abc import Mapping

from . import _core, torch_files
from ._core import internal as _internal
from ._core import Tensor

_KEY = "lockstep.structure"


def save(obj, f):
    """Write an object: a tensor, an array of NumPy, a number, a string, None, or dicts, lists, and tuples of them, such
    as a state_dict.

    f: a path, or a file that is open for writing bytes. The file is a safetensors file. A state_dict has its names
    there, so `lockstep train --init-from` and PyTorch's safetensors read it.
    """
    tensors = {}
    structure = _describe(obj, "", tensors)
    tensors = list(tensors.items())
    metadata = {"format": "pt", _KEY: json.dumps(structure)}
    if hasattr(f, "write"):
        f.write(_internal.safetensors_bytes(tensors, metadata))
    else:
        _internal.write_safetensors(os.fspath(f), tensors, metadata)


def _describe(value, path, tensors):
    is_array = type(value).__module__ == "numpy" and getattr(value, "ndim", 0) > 0
    if is_array:
        array, value = value, _core.from_numpy(value)
    if isinstance(value, Tensor):
        name = path or "tensor"
        while name in tensors:  # of a key 1 beside "1"
            name += "_"
        tensors[name] = value
        if is_array:
            return {"array": [name, array.dtype.str]}
        return {"leaf" if value.requires_grad and value.is_leaf else "tensor": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    below = path + "/" if path else ""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise TypeError(f"save: {path or 'the object'} has the key {key!r}, expected strings and numbers")
        kind = "ordered" if isinstance(value, collections.OrderedDict) else "dict"
        return {kind: [[key, _describe(v, below + str(key), tensors)] for key, v in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_describe(v, below + str(i), tensors) for i, v in enumerate(value)]}
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return {"value": value.item()}
    if isinstance(value, _core.Module):
        raise TypeError(f"save: {path or 'the object'} is a {type(value).__name__}, expected its state_dict(): a file "
                        "holds data, no code. model.load_state_dict(torch.load(FILE)) takes it back")
    raise TypeError(f"save: {path or 'the object'} is {type(value)}, expected tensors, numbers, strings, None, and "
                    "dicts, lists, and tuples of them: a file holds data, no code. Save a model's state_dict()")


def _restore(structure, tensors):
    """Return the object. Pops its tensors: save() uses each name once, and reuse could make a small file huge."""
    (kind, value), = structure.items()
    if kind == "tensor":
        return tensors.pop(value)
    if kind == "leaf":
        return tensors.pop(value).requires_grad_()
    if kind == "array":
        name, dtype = value
        if not re.fullmatch(r"[<>|=]?[biuf][1248]", dtype):
            raise ValueError(f"an array of {dtype[:20]!r}")
        return tensors.pop(name).cpu().numpy().astype(dtype)
    if kind == "value":
        return value
    if kind == "list":
        return [_restore(v, tensors) for v in value]
    if kind == "tuple":
        return tuple(_restore(v, tensors) for v in value)
    made = ((key, _restore(v, tensors)) for key, v in value)
    return collections.OrderedDict(made) if kind == "ordered" else dict(made)


def load(f, map_location=None, *, weights_only=True):
    """Read what save() wrote, any other safetensors file as a dict, or a file of PyTorch's save() that holds tensors,
    numbers, strings, and dicts, lists, and tuples of them.

    f: a path, or a file that is open for reading bytes. Tensors are in host memory, or on the device `map_location`.
    Loading runs no code from the file.
    """
    move = _mover(map_location)
    if hasattr(f, "read"):
        data, origin = f.read(), getattr(f, "name", "the file")
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"load: the file's read() returns {type(data).__name__}, expected a file that is open for "
                            "reading bytes")
        data = bytes(data)
        head = data[:9]
    else:
        data, origin = None, os.fspath(f)
        with open(origin, "rb") as file:
            head = file.read(9)
    try:
        return _load(data, origin, head, move)
    except (_core.Error, OSError):
        raise
    except Exception as error:  # of Python, for what is damaged
        raise _core.Error(f"load: {origin} cannot be read: {type(error).__name__}: {error}") from None


def _load(data, origin, head, move):
    # The first 8 bytes of a safetensors file are a number, which may look like the beginning of another format.
    is_safetensors = head[8:] == b"{"
    if head[:2] == b"PK" and not is_safetensors:
        if data is not None:
            return torch_files.read(io.BytesIO(data), len(data), origin, move)
        with open(origin, "rb") as file:
            return torch_files.read(file, os.path.getsize(origin), origin, move)
    if head[:1] == b"\x80" and not is_safetensors:
        raise _core.Error(f"load: {origin} is a pickle or a file of PyTorch before 1.6, expected safetensors or a file "
                          "of torch.save()")
    entries, metadata = (_internal.read_safetensors(origin) if data is None
                         else _internal.parse_safetensors(data, str(origin)))
    tensors = {name: move(x) for name, x in entries}
    if _KEY not in metadata:
        return tensors
    try:
        return _restore(json.loads(metadata[_KEY]), tensors)
    except Exception as error:
        raise _core.Error(f"load: {origin}: {_KEY} is damaged: {type(error).__name__}: {error}") from None


@contextlib.contextmanager
def safe_globals(safe_globals):
    """Accept classes that load() may make, without effect: it makes none, and runs no code from a file."""
    yield


def add_safe_globals(safe_globals):
    """Accept classes that load() may make, without effect, as safe_globals()."""


def _mover(map_location):
    if callable(map_location) and not isinstance(map_location, _core.device):
        raise TypeError("load: map_location is a function, expected a device, or a dict of devices")
    if isinstance(map_location, Mapping):
        map_location = map_location.get("cpu")  # where loaded tensors are
    if map_location is None or str(map_location) == "cpu":
        return lambda x: x
    return lambda x: x.to(map_location)
