"""What notebooks show: tensors, models, curves, timelines, and a progress bar, which works in terminals, too."""

import base64
import html
import json
import math
import os
import sys
import tempfile
import time
import typing

from . import _core
from ._core import Tensor, internal as _internal

_STYLE = "border-collapse:collapse;font-size:90%"
_COLORS = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2"]


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th style='text-align:left'>{html.escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td style='text-align:left'>{html.escape(c)}</td>" for c in row) + "</tr>"
                   for row in rows)
    return f"<table style='{_STYLE}'><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _img(pixels: Tensor, scale: int) -> str:
    """Return an img element for fractions of 255, [channels, height, width]. NaN becomes 0."""
    shares = _core.where(pixels.isnan(), 0.0, pixels.clamp(0, 1))
    file = base64.b64encode(_internal.encode_png((255 * shares).round().to(_core.uint8))).decode()
    return (f"<img style='image-rendering:pixelated;margin-right:4px' width='{scale * pixels.size(2)}' "
            f"height='{scale * pixels.size(1)}' src='data:image/png;base64,{file}'>")


def _heat(shares: Tensor) -> Tensor:
    """Return colors from blue over white to red; gray for NaN."""
    x = shares.clamp(0, 1)
    cold = _core.stack([0.23 + 1.54 * x, 0.3 + 1.4 * x, 0.75 + 0.5 * x])
    warm = _core.stack([1.294 - 0.588 * x, 1.7 - 1.4 * x, 1.77 - 1.54 * x])
    return _core.where(shares.isnan(), 0.5, _core.where(x < 0.5, cold, warm))


def _is_pictures(x: Tensor) -> bool:
    """Return whether x is [C, H, W] or [N, C, H, W] with one or three channels."""
    return x.dim() in (3, 4) and x.size(-3) in (1, 3) and x.size(-1) >= 8 and x.size(-2) >= 8


def _picture(x: Tensor, low: float, high: float) -> str:
    step = max(1, math.ceil(max(x.size(-1), x.size(-2)) / 96))
    values = x[:, ::step, ::step].float()
    return _img((values - low) / ((high - low) or 1.0), max(1, 84 // max(values.size(1), values.size(2))))


def _heat_map(x: Tensor, low: float, high: float) -> str:
    while x.dim() > 2:
        x = x[0]
    x = x.reshape([1, -1]) if x.dim() < 2 else x
    steps = [max(1, math.ceil(x.size(i) / (32, 64)[i])) for i in (0, 1)]
    values = x[::steps[0], ::steps[1]].float()
    return _img(_heat((values - low) / ((high - low) or 1.0)), max(2, min(12, 256 // values.size(1))))


def tensor_html(x: Tensor) -> str:
    """Return a tensor's shape, type, and device, statistics of its finite elements, and a picture. Waits for them."""
    x = x.detach()
    title = f"<b>tensor</b> {list(x.shape)} {str(x.dtype).removeprefix('torch.')} on {x.device}"
    if x.numel() == 0:
        return f"<div>{title}</div>"
    values = x.float().reshape([-1])
    if str(x.device) != "cpu":
        values = values.cpu()
    host, finite = values, values.isfinite()
    values = values[finite]
    numbers, low, high = {}, 0.0, 0.0
    if values.numel() > 0:
        low, high = values.min().item(), values.max().item()
        numbers = {"min": low, "max": high, "mean": values.mean().item()}
    if values.numel() > 1:
        numbers["std"] = values.std().item()
    text = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    if values.numel() < x.numel():
        text += f"{', ' if text else ''}<b>{x.numel() - values.numel():,} not finite</b>"
    host = host.reshape(list(x.shape))
    if x.numel() == 1:
        return f"<div>{title}: {html.escape(str(x.item()))}</div>"
    if _is_pictures(host):
        shown = [host] if host.dim() == 3 else [host[i] for i in range(min(8, host.size(0)))]
        picture = "".join(_picture(one, low, high) for one in shown)
    else:
        picture = _heat_map(host, low, high)
    return f"<div>{title}<br>{text}<br>{picture}</div>"


class Summary:
    """The layers of a model: print() shows a table, and so does a notebook."""

    def __init__(self, text: str, rows: list[tuple[typing.Any, ...]]) -> None:
        self.text = text
        self.rows = rows

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        rows = [[name, kind, "" if shape is None else str(list(shape)), "" if count is None else f"{count:,}", state]
                for name, kind, shape, count, state in self.rows]
        foot = html.escape("\n".join(line for line in self.text.splitlines()[-2:]))
        return _table(["Layer", "Kind", "Output shape", "Parameters", ""], rows) + f"<pre>{foot}</pre>"


def summary(model: typing.Any, *inputs: typing.Any) -> Summary:
    """The layers of a model with the shapes of their outputs: summary(net, [32, 1, 28, 28]), or summary(net, x).

    Calls the model once, in evaluation mode and without a history.
    """
    given = [x if isinstance(x, Tensor) else _core.zeros(list(x)) for x in inputs]

    def call() -> None:
        model(*given)

    return Summary(_core._summary_text(model, call), _core._summarize(model, call))


def module_html(model: typing.Any) -> str:
    """Return the modules of a model, and the number of parameters that each has itself. Does not call the model."""
    rows, total = [], 0
    for name, module in model.named_modules():
        try:
            count = sum(math.prod(p.shape) for _, p in module.named_parameters(recurse=False))
            total += count
            shown = f"{count:,}" if count else ""
        except _core.Error:  # a shape that the first batch decides
            shown = "?"
        rows.append([name or "(model)", type(module).__name__, shown])
    return _table(["Layer", "Kind", "Parameters"], rows) + f"<div>{total:,} parameters</div>"


class Picture:
    """A picture that notebooks show: an SVG text."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def write(self, path: str | os.PathLike[str]) -> None:
        with open(path, "w") as file:
            file.write(self.svg)


def plot(curves: dict[str, typing.Any], title: str = "", x: str = "epoch") -> Picture:
    """Return curves by name: lists of values at x = 1, 2, ..., or of pairs (x, value).

    A dict of dicts has a panel for each inner dict.
    """
    panels = list(curves.values()) if all(isinstance(v, dict) for v in curves.values()) else [curves]

    def points(values: typing.Any) -> list[tuple[float, float]]:
        values = list(values)
        if values and isinstance(values[0], (tuple, list)):
            return [(float(a), float(b)) for a, b in values]
        return [(float(i), float(v)) for i, v in enumerate(values, 1)]

    return Picture(_core.plot_svg([[(name, points(v)) for name, v in panel.items()] for panel in panels], title, x))


class Timeline:
    """Records which task ran where and when. Show it in a notebook, or write() it for Perfetto.

    >>> with lockstep.Timeline() as timeline:
    ...     step()
    >>> timeline
    """

    def __init__(self) -> None:
        self.events: list[dict[str, typing.Any]] = []

    def __enter__(self) -> "Timeline":
        self._engine = _core._Timeline()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        handle, path = tempfile.mkstemp(suffix=".json")
        os.close(handle)
        try:
            if kind is None:
                self._engine.write(path)
                self.events = Timeline.read(path).events
        finally:
            del self._engine
            os.unlink(path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Timeline":
        """Return the timeline of a file that write() or `lockstep train --trace` made."""
        timeline = cls()
        with open(path) as file:
            timeline.events = json.load(file)["traceEvents"]
        return timeline

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline in Chrome's trace-event format."""
        with open(path, "w") as file:
            json.dump({"traceEvents": self.events}, file)

    def picture(self, title: str = "") -> Picture:
        """Draw a row for each device's lane, a box for each task, and below them the tasks' names."""
        tasks = [e for e in self.events if e["ph"] == "X"]
        names = {(e["name"], e["pid"], e.get("tid")): e["args"]["name"] for e in self.events
                 if e["ph"] == "M" and "name" in e["args"]}
        devices = {pid: name for (kind, pid, _), name in names.items() if kind == "process_name"}
        rows = sorted({(e["pid"], e["tid"]) for e in tasks})
        begin = min((e["ts"] for e in tasks), default=0)
        length = max((e["ts"] + e["dur"] for e in tasks), default=1) - begin or 1
        left, top, row, width = 150, 44, 34, 770
        colors = {name: _COLORS[i] if i < len(_COLORS) else f"hsl({i * 137.508 % 360:.0f},55%,{(40, 62, 78)[i % 3]}%)"
                  for i, name in enumerate(dict.fromkeys(e["name"] for e in tasks))}
        parts = [f"<text x='20' y='24' font-weight='bold'>{html.escape(title)}</text>"]
        for i, (pid, tid) in enumerate(rows):
            text = f"{devices.get(pid, '')} {names.get(('thread_name', pid, tid), tid)}"
            parts.append(f"<text x='20' y='{top + row * i + 20}'>{html.escape(text)}</text>")
        for e in tasks:
            at, span = left + (e["ts"] - begin) / length * width, max(e["dur"] / length * width, 0.5)
            y = top + row * rows.index((e["pid"], e["tid"])) + 3
            parts.append(f"<rect x='{at:.2f}' y='{y}' width='{span - min(0.5, span / 5):.2f}' height='{row - 8}' "
                         f"fill='{colors[e['name']]}'><title>{html.escape(e['name'])}, {e['dur']:.0f} µs</title></rect>")
        y = top + row * len(rows) + 20
        step = 10 ** math.floor(math.log10(length / 5))  # about five round numbers
        step *= next(f for f in (1, 2, 5, 10) if f * step >= length / 5 * (1 - 1e-9))
        for us in range(int(length / step + 1e-6) + 1):
            parts.append(f"<text x='{left + us * step / length * width:.0f}' y='{y}' text-anchor='middle' fill='#555'>"
                         f"{us * step / 1000:g} ms</text>")
        x, y = left, y + 12
        for name, color in colors.items():
            if x > left and x + 40 + 8 * len(name) > left + width:
                x, y = left, y + 20
            parts.append(f"<rect x='{x}' y='{y}' width='12' height='12' fill='{color}'/>"
                         f"<text x='{x + 18}' y='{y + 11}'>{html.escape(name)}</text>")
            x += 40 + 8 * len(name)
        return Picture(f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {left + width + 40} {y + 20}' "
                       "font-family='sans-serif' font-size='13'><rect width='100%' height='100%' fill='white'/>"
                       + "".join(parts) + "</svg>")

    def _repr_svg_(self) -> str:
        return self.picture().svg


class StepGraph:
    """Records the tasks of a step, and which of them wait for which:

    >>> with lockstep.StepGraph() as graph:
    ...     step()
    >>> graph  # in a notebook

    nodes: (device, {name of a task: how many}). edges: (from, to, whether `to` reads what `from` wrote). If there are
    more than 90 tasks, those of one name on one device become one node where this makes no cycle.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[str, dict[str, int]]] = []
        self.edges: list[tuple[int, int, bool]] = []

    def __enter__(self) -> "StepGraph":
        self._recording = _core._StepRecording()
        return self

    def __exit__(self, *error: object) -> None:
        nodes, self.edges = self._recording.end(90)
        self.nodes = [(device, dict(tasks)) for device, tasks in nodes]
        del self._recording

    def _repr_svg_(self) -> str:
        # A column for each device, and a row for each task of the longest chain. Edges lead to later nodes.
        level = [0] * len(self.nodes)
        for start, end, _ in sorted(self.edges, key=lambda edge: edge[1]):
            level[end] = max(level[end], level[start] + 1)
        devices = list(dict.fromkeys(device for device, _ in self.nodes))
        cells: dict[tuple[str, int], list[int]] = {}
        for i, (device, _) in enumerate(self.nodes):
            cells.setdefault((device, level[i]), []).append(i)
        wide, high, left = 150, 44, {}
        width = 10
        for device in devices:
            left[device] = width
            width += wide * max(len(found) for (d, _), found in cells.items() if d == device) + 30
        at = {i: (left[device] + wide * k, 30 + high * row) for (device, row), found in cells.items()
              for k, i in enumerate(found)}
        names = list(dict.fromkeys(next(iter(tasks)) for _, tasks in self.nodes))
        parts = [f"<text x='{left[device]}' y='18'>{html.escape(device)}</text>" for device in devices]
        for start, end, data in self.edges:
            (x, y), (to_x, to_y) = at[start], at[end]
            dashes = "" if data else " stroke-dasharray='3'"
            parts.append(f"<path d='M{x + 68} {y + 24}L{to_x + 68} {to_y}' stroke='gray'{dashes}/>")
        for i, (_, tasks) in enumerate(self.nodes):
            (x, y), text = at[i], ", ".join(f"{name} x {n}" if n > 1 else name for name, n in tasks.items())
            hue = names.index(next(iter(tasks))) * 137.508 % 360
            parts.append(f"<g><title>{html.escape(text)}</title><rect x='{x}' y='{y}' width='136' height='24' rx='4' "
                         f"fill='hsl({hue:.0f},60%,82%)'/><text x='{x + 6}' y='{y + 16}'>{html.escape(text[:20])}"
                         "</text></g>")
        height = 30 + high * (max(level, default=0) + 1)
        return (f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' viewBox='0 0 {width} {height}' "
                "font-family='sans-serif' font-size='12'><rect width='100%' height='100%' fill='white'/>"
                + "".join(parts) + "</svg>")


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class progress:
    """Loop with a bar: for x, y in lockstep.progress(loader, "epoch 1"): ...

    A terminal shows one line, a notebook one box; a pipe or a file gets a line for each tenth. set_postfix(loss=...)
    adds values to it.
    """

    def __init__(self, iterable: typing.Iterable[typing.Any], desc: str = "", total: int | None = None,
                 file: typing.Any = None) -> None:
        self.iterable = iterable
        self.desc = desc
        self.total = total if total is not None else len(iterable) if hasattr(iterable, "__len__") else None
        self.file = file if file is not None else sys.stderr
        self.done = 0
        self._values = ""
        self._shown = -math.inf
        self._tenths = 0
        self._display: typing.Any = None

    def set_postfix(self, **values: typing.Any) -> None:
        """Show these values after the bar: numbers with four digits, or text."""
        self._values = "".join(f", {name} {value:.4g}" if isinstance(value, (int, float)) else f", {name} {value}"
                               for name, value in values.items())

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("progress: the iterable has no length")
        return self.total

    def __iter__(self) -> typing.Iterator[typing.Any]:
        self._begin = time.monotonic()
        try:
            for item in self.iterable:
                yield item
                self.done += 1
                self._show(False)
        finally:
            self._show(True)

    def _text(self) -> str:
        seconds = time.monotonic() - self._begin
        rate = f", {self.done / seconds:.3g}/s" if seconds > 0 and self.done else ""
        count = f"{self.done}" if self.total is None else f"{self.done}/{self.total}"
        return f"{self.desc + ': ' if self.desc else ''}{count}, {seconds:.1f} s{rate}{self._values}"

    def _show(self, last: bool) -> None:
        now = time.monotonic()
        terminal = self.file.isatty() if hasattr(self.file, "isatty") else False
        if _in_notebook():
            if not last and now - self._shown < 0.2:
                return
            from IPython.display import HTML, display  # type: ignore[import]
            bar = "" if not self.total else f"<progress max='{self.total}' value='{self.done}'></progress> "
            content = HTML(bar + html.escape(self._text()))
            if self._display is None:
                self._display = display(content, display_id=True)
            else:
                self._display.update(content)
        elif terminal:
            if not last and now - self._shown < 0.1:
                return
            bar = ""
            if self.total:
                full = 20 * self.done // self.total
                bar = "[" + "#" * full + " " * (20 - full) + "] "
            self.file.write("\r" + (bar + self._text())[:119] + "\x1b[K" + ("\n" if last else ""))
            self.file.flush()
        else:
            tenths = 10 * self.done // self.total if self.total else 0
            if not last and tenths <= self._tenths and (self.total or now - self._shown < 10):
                return
            if last and tenths == self._tenths and self.done == self.total:
                return
            self._tenths = tenths
            self.file.write(self._text() + "\n")
            self.file.flush()
        self._shown = now


def install() -> None:
    """Give tensors and modules their pictures."""
    Tensor._repr_html_ = tensor_html  # type: ignore[attr-defined]
    _core.Module._repr_html_ = module_html  # type: ignore[attr-defined]
