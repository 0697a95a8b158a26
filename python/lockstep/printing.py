"""Prints tensors as PyTorch does, without grad_fn. Above 1,000 elements, prints only the edges of each axis."""

import math

from . import _core
from ._core import internal as _internal



class _Options:
    precision, threshold, edgeitems, linewidth, sci_mode = 4, 1000, 3, 80, None


_options = _Options()
_PROFILES = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80)}


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Choose digits, the number of elements above which only edges print, the width of the edges, and that of a line.

    profile: "default", "short", or "full". sci_mode: whether numbers have exponents; None lets the elements decide.
    """
    names = ("precision", "threshold", "edgeitems", "linewidth")
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions: profile is {profile!r}, expected one of {', '.join(_PROFILES)}")
        vars(_options).update(zip(names, _PROFILES[profile]))
    given = zip(names, (precision, threshold, edgeitems, linewidth))
    vars(_options).update((name, value) for name, value in given if value is not None)
    _options.sci_mode = sci_mode


class _Format:
    """One width and notation for all elements."""

    def __init__(self, values, floating):
        self.floating = floating
        self.scientific = False
        self.whole = True
        self.width = 1
        if not floating:
            self.width = max(len(str(value)) for value in values)
            return
        finite = [value for value in values if math.isfinite(value) and value != 0]
        if not finite:
            return
        least, most = min(map(abs, finite)), max(map(abs, finite))
        self.whole = all(value == math.floor(value) for value in finite)
        self.scientific = most / least > 1000 or most > 1e8 or (not self.whole and least < 1e-4)
        self.width = max(len(self._text(value)) for value in finite)
        if _options.sci_mode is not None:  # after the width, as in PyTorch
            self.scientific = _options.sci_mode

    def _text(self, value):
        if not self.floating:
            return str(value)
        if self.scientific:
            return f"{value:.{_options.precision}e}"
        if self.whole:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{_options.precision}f}"

    def __call__(self, value):
        return self._text(value).rjust(self.width)


def _edges(x):
    """Return the elements that are printed."""
    for axis in range(x.dim()):
        if x.size(axis) > 2 * _options.edgeitems:
            last = x.narrow(axis, x.size(axis) - _options.edgeitems, _options.edgeitems)
            x = _core.cat([x.narrow(axis, 0, _options.edgeitems), last], axis)
    return x


def _flat(items):
    for item in items:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield item


def _nested(items, shape, indent, form):
    """Return nested lists as text; in a summary, the middle of the axes in `shape` is left out."""
    cut = shape[0] > len(items)
    if len(shape) == 1:
        texts = [form(item) for item in items]
        if cut:
            texts.insert(_options.edgeitems, " ...")
        per_line = max(1, (_options.linewidth - indent) // (form.width + 2))
        lines = [", ".join(texts[i:i + per_line]) for i in range(0, len(texts), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    texts = [_nested(item, shape[1:], indent + 1, form) for item in items]
    if cut:
        texts.insert(_options.edgeitems, "...")
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * (indent + 1)).join(texts) + "]"


def _shows_device(x):
    """Return whether the text must name the device."""
    return x.device.type != "cpu" or (x.device.index is not None and not _internal.is_cut(x)
                                      and len(_core.devices()) > 1)


def text_of(x):
    """Return the elements as nested brackets, followed by what is not the default. Waits for the elements."""
    suffixes = [f"device='{x.device}'"] if _shows_device(x) else []
    shape = tuple(x.shape)
    if x.numel() == 0:
        text = "tensor([]"
        if len(shape) != 1:
            suffixes.append(f"size={shape}")
        if x.dtype != _core.float32:
            suffixes.append(f"dtype={x.dtype}")
    else:
        if x.dtype not in (_core.float32, _core.int64, _core._bool):
            suffixes.append(f"dtype={x.dtype}")
        shown = x.to_host()
        items = (_edges(shown) if x.numel() > _options.threshold else shown).tolist()
        form = _Format(list(_flat(items)) if shape else [items], x.dtype.is_floating_point)
        text = "tensor(" + (_nested(items, shape, len("tensor("), form) if shape else form(items))
    if x.requires_grad and x.is_leaf:
        suffixes.append("requires_grad=True")
    line = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if line + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * len("tensor(") + suffix
            line = len("tensor(") + len(suffix)
        else:
            text += ", " + suffix
            line += len(suffix) + 2
    return text + ")"
