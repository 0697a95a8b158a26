"""save() and load(): tensors and nested objects in one safetensors file. Loading runs no code from the file."""

import collections
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Mapping

from . import _core
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
    (kind, value), = structure.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "leaf":
        return tensors[value].requires_grad_()
    if kind == "array":
        name, dtype = value
        return tensors[name].cpu().numpy().astype(dtype)
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
    if hasattr(f, "read"):
        data, origin = f.read(), getattr(f, "name", "the file")
        head = data[:4]
    else:
        data, origin = None, os.fspath(f)
        with open(origin, "rb") as file:
            head = file.read(4)
    move = _mover(map_location)
    if head[:2] == b"PK":
        try:
            with zipfile.ZipFile(io.BytesIO(data) if data is not None else origin) as archive:
                return _load_pytorch(archive, origin, move)
        except _core.Error:
            raise
        except Exception as e:  # the archive and its pickle are a stranger's bytes
            raise _core.Error(f"load: {origin} is cut or damaged ({e or type(e).__name__}), expected a whole file of "
                              "torch.save()") from e
    if head[:1] == b"\x80":
        raise _core.Error(f"load: {origin} is a pickle or a file of PyTorch before 1.6, expected safetensors or a file "
                          "of torch.save()")
    entries, metadata = (_internal.read_safetensors(origin) if data is None
                         else _internal.parse_safetensors(data, str(origin)))
    tensors = {name: move(x) for name, x in entries}
    return _restore(json.loads(metadata[_KEY]), tensors) if _KEY in metadata else tensors


def _mover(map_location):
    if callable(map_location) and not isinstance(map_location, _core.device):
        raise TypeError("load: map_location is a function, expected a device, or a dict of devices")
    if isinstance(map_location, Mapping):
        map_location = map_location.get("cpu")  # where loaded tensors are
    if map_location is None or str(map_location) == "cpu":
        return lambda x: x
    return lambda x: x.to(map_location)


# Storages of PyTorch's files: the element's bytes, and how to read them. The rest of a file are numbers and names.
_STORAGES = {"FloatStorage": ("float32", 4), "DoubleStorage": ("float64", 8), "HalfStorage": ("float16", 2),
             "BFloat16Storage": ("bfloat16", 2), "LongStorage": ("int64", 8), "IntStorage": ("int32", 4),
             "ShortStorage": ("int16", 2), "CharStorage": ("int8", 1), "ByteStorage": ("uint8", 1),
             "BoolStorage": ("bool", 1)}
_SAFETENSORS = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
                "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


class _NumberType:
    """numpy.dtype of a number in a file."""

    _CODES = {"f8": "d", "f4": "f", "f2": "e", "b1": "?", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u8": "Q",
              "u4": "I", "u2": "H", "u1": "B"}

    def __init__(self, code, *_):
        self._code, self._order = self._CODES[code], "<"

    def __setstate__(self, state):
        self._order = state[1] if state[1] in "<>" else "<"

    def number(self, data):
        return struct.unpack(self._order + self._code, data)[0]


def _load_pytorch(archive, origin, move):
    names = {name.split("/", 1)[1]: name for name in archive.namelist() if "/" in name}
    if "data.pkl" not in names:
        raise _core.Error(f"load: {origin} is a zip archive without data.pkl, expected a file of torch.save()")

    def rebuild_tensor(storage, offset, size, stride, *_):
        dtype, key = storage
        width = dict(_STORAGES.values())[dtype]
        expected, plain = 1, True
        for n, s in zip(reversed(size), reversed(stride)):
            plain = plain and (n == 1 or s == expected or 0 in size)
            expected *= n
        extents = tuple(size) if plain else None
        if not plain:  # rows of another order, such as a transposed matrix: its memory in the order of its strides
            order = sorted(range(len(size)), key=lambda axis: -stride[axis])
            extents, span = tuple(size[axis] for axis in order), 1
            for axis in reversed(order):
                if size[axis] != 1 and stride[axis] != span:
                    raise _core.Error(f"load: {origin} has a tensor with strides {tuple(stride)} of shape "
                                      f"{tuple(size)}, expected a contiguous one")
                span *= size[axis]
        data = archive.read(names["data/" + key])[offset * width : (offset + expected) * width]
        entry = {"dtype": _SAFETENSORS[dtype], "shape": list(extents), "data_offsets": [0, len(data)]}
        header = json.dumps({"x": entry})
        header += " " * (-len(header) % 8)
        file = len(header).to_bytes(8, "little") + header.encode() + data
        made = _internal.parse_safetensors(file, str(origin))[0][0][1]
        if not plain:
            made = made.permute([order.index(axis) for axis in range(len(size))]).contiguous()
        return move(made)

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            if (module, name) == ("collections", "OrderedDict"):
                return collections.OrderedDict
            if (module, name) == ("collections", "Counter"):
                return collections.Counter
            if (module, name) == ("_codecs", "encode"):
                return lambda text, encoding: text.encode("latin1")
            if (module, name) == ("numpy", "dtype"):
                return _NumberType
            if name == "scalar" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
                return lambda dtype, data: dtype.number(data)
            if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
                return rebuild_tensor
            if (module, name) == ("torch._utils", "_rebuild_parameter"):
                return lambda data, *_: data
            if (module, name) == ("torch", "Size"):
                return tuple
            if module in ("torch", "torch.storage") and name in _STORAGES:
                return _STORAGES[name][0]
            raise _core.Error(f"load: {origin} has an object of {module}.{name}, expected tensors, numbers, strings, "
                              "and dicts, lists, and tuples of them: loading runs no code from a file. Save a model's "
                              "state_dict()")

        def persistent_load(self, pid):
            return pid[1], pid[2]

    return Reader(io.BytesIO(archive.read(names["data.pkl"]))).load()
