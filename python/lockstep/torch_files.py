"""Files of torch.save(): a zip archive with a pickle, data.pkl, and the bytes of each storage.

The few opcodes of such pickles are interpreted here, so that a file runs no code. Time and memory are proportional to
the file's size: both the unpacked size of the archive and the total size of its tensors are limited.
"""

import collections
import json
import math
import pickletools
import struct
import zipfile

from . import _core
from ._core import internal as _internal

# Limits the bytes of the pickle, which take time, to this many for each byte of the archive, or to a fixed minimum.
# torch.save() does not compress.
_MOST_PICKLED, _SMALL_PICKLE = 8, 1 << 20
# Limits the bytes of tensors to this many for each byte of their storages, which several tensors may share, or to a
# fixed minimum.
_MOST_SHARED, _SMALL = 16, 1 << 24

_MOST_AXES = 64

_MARK = object()
# Storages: the name of the element's type in safetensors, and its bytes.
_STORAGES = {"FloatStorage": ("F32", 4), "DoubleStorage": ("F64", 8), "HalfStorage": ("F16", 2),
             "BFloat16Storage": ("BF16", 2), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
             "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
             "BoolStorage": ("BOOL", 1)}


class _Global:
    """A name of the allow-list."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class _Storage:
    """The storage that tensors are parts of."""

    def __init__(self, dtype, width, key):
        self.dtype, self.width, self.key = dtype, width, key


def read(file, size, origin, move):
    """Return the object in an open file of `size` bytes, whose tensors are passed through move()."""
    try:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            pickled = sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith("/data.pkl"))
            most, most_pickled = _internal.memory_for_file(size), max(_SMALL_PICKLE, _MOST_PICKLED * size)
            if unpacked > most or pickled > most_pickled:
                raise _core.Error(f"load: {origin} would unpack {size} bytes to {unpacked}, of which {pickled} are "
                                  f"data.pkl, expected at most {most} and {most_pickled}")
            return _File(archive, origin, move, most).read()
    except _core.Error:
        raise
    except Exception as error:  # of zipfile, zlib, pickletools, the system: many kinds, for what is damaged
        raise _core.Error(f"load: {origin} is damaged: {type(error).__name__}: {error}") from None


def _is_count(value):
    return type(value) is int and value >= 0


class _File:
    def __init__(self, archive, origin, move, most):
        self._archive, self._origin, self._move, self._most = archive, origin, move, most
        self._names = {name.split("/", 1)[1]: name for name in archive.namelist() if "/" in name}
        self._storages, self._of_storages, self._of_tensors = {}, 0, 0

    def read(self):
        if "data.pkl" not in self._names:
            self._fail("is a zip archive without data.pkl, expected a file of torch.save()")
        if "byteorder" in self._names and (order := self._archive.read(self._names["byteorder"])) != b"little":
            self._fail(f"has the byte order {order[:20]!r}, expected b'little'")
        pickled = self._archive.read(self._names["data.pkl"])
        return _Machine(self).run(pickled)

    def _fail(self, text):
        raise _core.Error(f"load: {self._origin} {text}")

    def refuse(self, what):
        self._fail(f"has an object of {what}, expected tensors, numbers, strings, and dicts, lists, and tuples of "
                   "them: loading runs no code from a file. Save a model's state_dict()")

    def storage(self, pid):
        """Return the storage that a persistent id stands for."""
        if not (type(pid) is tuple and len(pid) >= 3 and pid[0] == "storage" and type(pid[2]) is str):
            self._fail("is damaged: a storage without a type and a name")
        kind = pid[1]
        if not (isinstance(kind, _Global) and kind.module in ("torch", "torch.storage") and kind.name in _STORAGES):
            self.refuse(f"{kind.module}.{kind.name}" if isinstance(kind, _Global) else type(kind).__name__)
        return _Storage(*_STORAGES[kind.name], pid[2])

    def _bytes_of(self, key):
        if key not in self._storages:
            if "data/" + key not in self._names:
                self._fail(f"is damaged: there is no storage {key!r}")
            self._storages[key] = memoryview(self._archive.read(self._names["data/" + key]))
            self._of_storages += len(self._storages[key])
        return self._storages[key]

    def tensor(self, storage, offset, size, stride, requires_grad=False, *_):
        """Return a tensor that views the storage's bytes."""
        if not (isinstance(storage, _Storage) and _is_count(offset) and type(size) is tuple and type(stride) is tuple
                and len(size) == len(stride) and all(map(_is_count, size)) and all(map(_is_count, stride))):
            self._fail("is damaged: a tensor whose place, shape, or strides are no whole numbers")
        data = self._bytes_of(storage.key)
        if len(size) > _MOST_AXES:
            self._fail(f"has a tensor of {len(size)} axes, expected at most {_MOST_AXES}")
        count = math.prod(size)
        # Sorts the axes by their order in memory, which differs for a transposed matrix.
        order = sorted((axis for axis in range(len(size)) if size[axis] != 1), key=lambda axis: -stride[axis])
        if count and any(stride[axis] != math.prod(size[a] for a in order[i + 1:]) for i, axis in enumerate(order)):
            self._fail(f"has a tensor with strides {stride} of shape {size}, expected a contiguous one")
        if (offset + count) * storage.width > len(data):
            self._fail(f"is damaged: a tensor of shape {size} is outside its storage of {len(data)} bytes")
        self._of_tensors += count * storage.width
        if self._of_tensors > max(_SMALL, min(_MOST_SHARED * self._of_storages, self._most)):
            self._fail(f"has tensors of more than {_MOST_SHARED} times the bytes of their storages, or of more than "
                       f"{self._most} bytes")
        begin = offset * storage.width
        part = data[begin : begin + count * storage.width]
        in_order = count == 0 or order == sorted(order)
        axes = list(range(len(size))) if in_order else order + [axis for axis in range(len(size)) if size[axis] == 1]
        extents = [size[axis] for axis in axes]
        header = json.dumps({"x": {"dtype": storage.dtype, "shape": extents, "data_offsets": [0, len(part)]}})
        header += " " * (-len(header) % 8)
        file = b"".join([len(header).to_bytes(8, "little"), header.encode(), part])
        made = _internal.parse_safetensors(file, str(self._origin))[0][0][1]
        if not in_order:
            made = made.permute([axes.index(axis) for axis in range(len(size))]).contiguous()
        made = self._move(made)
        return made.requires_grad_() if requires_grad is True and made.is_floating_point() else made

    def call(self, function, arguments):
        """Return the result of a function of the allow-list, without calling any function of Python's."""
        name = (function.module, function.name)
        if name == ("torch._utils", "_rebuild_tensor_v2"):
            return self.tensor(*arguments)
        if name == ("torch._utils", "_rebuild_parameter"):
            tensor, requires_grad = arguments[:2]
            return tensor.requires_grad_() if requires_grad is True else tensor
        if name == ("torch", "Size"):
            return tuple(arguments[0])
        if name == ("collections", "OrderedDict"):
            return collections.OrderedDict(*arguments)
        if name == ("collections", "Counter"):
            return collections.Counter(*(dict(a) for a in arguments))
        if name == ("_codecs", "encode") and arguments[1] == "latin1":  # bytes, in protocol 2
            return arguments[0].encode("latin1")
        if name == ("numpy", "dtype"):
            if arguments[0] not in _NumberType._CODES:
                self.refuse(f"numpy.dtype {str(arguments[0])[:20]!r}")
            return _NumberType(arguments[0])
        if name[0] in ("numpy.core.multiarray", "numpy._core.multiarray") and name[1] == "scalar":
            return arguments[0].number(arguments[1])
        return self.refuse(".".join(name))


class _NumberType:
    """numpy.dtype of an array's numbers."""

    _CODES = {"f8": "d", "f4": "f", "f2": "e", "b1": "?", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u8": "Q",
              "u4": "I", "u2": "H", "u1": "B"}

    def __init__(self, code):
        self._code, self._order = self._CODES[code], "<"

    def set_state(self, state):
        self._order = state[1] if state[1] in ("<", ">") else "<"

    def number(self, data):
        return struct.unpack(self._order + self._code, data)[0]


class _Machine:
    """The stack of a pickle, and the effects of the opcodes."""

    def __init__(self, file):
        self._file, self._stack, self._memo = file, [], {}

    def run(self, pickled):
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name == "STOP":
                value, = self._stack
                return value
            handler = getattr(self, "_" + opcode.name.lower(), None)
            if opcode.name in _CONSTANTS:
                self._stack.append(_CONSTANTS[opcode.name])
            elif opcode.name in _VALUES:
                self._stack.append(argument)
            elif handler is not None:
                handler(argument)
            elif opcode.name not in ("PROTO", "FRAME"):
                self._file.refuse(f"pickle's {opcode.name}")
        raise ValueError("no end")

    def _above_mark(self):
        for i in range(len(self._stack) - 1, -1, -1):
            if self._stack[i] is _MARK:
                above = self._stack[i + 1 :]
                del self._stack[i:]
                return above
        raise ValueError("no mark")

    def _top(self, *kinds):
        top = self._stack[-1]
        if type(top) not in kinds:
            raise TypeError(f"{type(top).__name__}, expected {kinds[0].__name__}")
        return top

    def _mark(self, _):
        self._stack.append(_MARK)

    def _pop(self, _):
        self._stack.pop()

    def _empty_dict(self, _):
        self._stack.append({})

    def _empty_list(self, _):
        self._stack.append([])

    def _empty_tuple(self, _):
        self._stack.append(())

    def _dict(self, _):
        items = self._above_mark()
        self._stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _list(self, _):
        self._stack.append(self._above_mark())

    def _tuple(self, _):
        self._stack.append(tuple(self._above_mark()))

    def _take_tuple(self, n):
        taken = self._stack[-n:]
        if len(taken) != n or _MARK in taken:
            raise IndexError("a tuple of more than the stack has")
        self._stack[-n:] = [tuple(taken)]

    def _tuple1(self, _):
        self._take_tuple(1)

    def _tuple2(self, _):
        self._take_tuple(2)

    def _tuple3(self, _):
        self._take_tuple(3)

    def _setitem(self, _):
        value, key = self._stack.pop(), self._stack.pop()
        self._top(dict, collections.OrderedDict, collections.Counter)[key] = value

    def _setitems(self, _):
        items = self._above_mark()
        self._top(dict, collections.OrderedDict, collections.Counter).update(zip(items[::2], items[1::2], strict=True))

    def _append(self, _):
        value = self._stack.pop()
        self._top(list).append(value)

    def _appends(self, _):
        values = self._above_mark()
        self._top(list).extend(values)

    def _put(self, index):
        self._memo[index] = self._stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, _):
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, index):
        self._stack.append(self._memo[index])

    _binget = _long_binget = _get

    def _global(self, name):
        self._add_global(*name.split(" "))

    def _add_global(self, module, name):
        if (module, name) not in _KNOWN and not (module in ("torch", "torch.storage") and name in _STORAGES):
            self._file.refuse(f"{module}.{name}")
        self._stack.append(_Global(module, name))

    def _stack_global(self, _):
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            raise TypeError("a global without a name")
        self._add_global(module, name)

    def _binpersid(self, _):
        self._stack.append(self._file.storage(self._stack.pop()))

    def _reduce(self, _):
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(function) is not _Global or type(arguments) is not tuple:
            raise TypeError("a call of what is no function")
        self._stack.append(self._file.call(function, arguments))

    def _build(self, _):
        state = self._stack.pop()
        # Other states are the attributes of a state_dict, which are the versions of layers.
        if isinstance(self._stack[-1], _NumberType):
            self._stack[-1].set_state(state)


# Names that a pickle may have, besides storages. None is called: _File.call() does what they mean.
_KNOWN = {("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_parameter"), ("torch", "Size"),
          ("collections", "OrderedDict"), ("collections", "Counter"), ("_codecs", "encode"), ("numpy", "dtype"),
          ("numpy.core.multiarray", "scalar"), ("numpy._core.multiarray", "scalar")}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT", "BINUNICODE",
           "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}

