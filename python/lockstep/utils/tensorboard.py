"""The writer of torch.utils.tensorboard. Trainer writes curves by itself: Trainer(tensorboard=FOLDER).

>>> with SummaryWriter("runs/7") as board:
...     board.add_scalar("train/loss", loss, step)
"""

import math
import os
import struct
import time

from .. import _core
from .._core import TensorBoardWriter, Tensor


def _tensor(values):
    return values if isinstance(values, Tensor) else _core.as_tensor(values)


# Returns a picture as [C, H, W]. dataformats has one letter for each axis.
def _as_chw(image, dataformats):
    image, axes = _tensor(image).detach().cpu(), dataformats.upper()
    if image.ndim != len(axes) or sorted(axes) not in (["C", "H", "W"], ["H", "W"]):
        raise ValueError(f"add_image: {list(image.shape)} with dataformats '{dataformats}', expected an axis for each "
                         "of C, H, W, or of H, W")
    return image.permute(*(axes.index(a) for a in "CHW")) if "C" in axes else \
        image.permute(axes.index("H"), axes.index("W")).unsqueeze(0)


class SummaryWriter:
    """Writes curves, histograms, pictures, texts, and graphs to a file in log_dir. Each event is in the file at once.

    Without log_dir: runs/TIME_HOST. A step of None means 0. walltime: seconds since 1970, instead of the current time.
    """

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if filename_suffix:
            raise ValueError(f"SummaryWriter: filename_suffix={filename_suffix!r}, expected ''")
        if not log_dir:
            import socket

            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S_") + socket.gethostname() + comment)
        self.log_dir = os.fspath(log_dir)
        self._purge_step = purge_step
        self._writer = TensorBoardWriter(self.log_dir, purge_step)
        self._writers = {}  # of add_scalars(), by folder

    @property
    def path(self):
        """The file."""
        return self._writer.path

    def get_logdir(self):
        """Return the folder."""
        return self.log_dir

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def flush(self):
        """Do nothing: each event is in the file at once."""

    def close(self):
        """Do nothing: each event is in the file at once."""

    def _add(self, kind, walltime, *arguments, writer=None):
        writer = writer or self._writer
        writer._set_wall_time(walltime or 0)
        try:
            getattr(writer, kind)(*arguments)
        finally:
            writer._set_wall_time(0)

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        """Add a point of a curve."""
        self._add("add_scalar", walltime, tag, float(scalar_value), global_step or 0)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Add a point to each of several curves in one plot. Each curve is a separate run in a folder below log_dir."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag}_{tag}".replace("/", "_").replace("\\", "_"))
            if folder not in self._writers:
                self._writers[folder] = TensorBoardWriter(folder, self._purge_step)
            self._add("add_scalar", walltime, main_tag, float(value), global_step or 0, writer=self._writers[folder])

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        """Add a histogram of the values."""
        if bins != "tensorflow" or max_bins is not None:
            raise ValueError(f"add_histogram: bins={bins!r}, max_bins={max_bins}, expected 'tensorflow' and None")
        self._add("add_histogram", walltime, tag, _tensor(values), global_step or 0)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """Add a picture of bytes, or of values in [0, 1]; dataformats: its axes, such as "HWC" or "HW"."""
        self._add("add_image", walltime, tag, _as_chw(img_tensor, dataformats), global_step or 0)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Add a batch of pictures as one picture, at most eight side by side."""
        images, axes = _tensor(img_tensor).detach().cpu(), dataformats.upper()
        if "N" not in axes or images.ndim != len(axes):
            raise ValueError(f"add_images: {list(images.shape)} with dataformats '{dataformats}', expected an axis for "
                             "each of N, C, H, W, or of N, H, W")
        rest = axes.replace("N", "")
        images = [_as_chw(image, rest) for image in images.unbind(axes.index("N"))]
        columns = min(len(images), 8)
        rows = math.ceil(len(images) / columns)
        images += [_core.zeros_like(images[0])] * (rows * columns - len(images))
        grid = _core.cat([_core.cat(images[i * columns:(i + 1) * columns], 2) for i in range(rows)], 1)
        self._add("add_image", walltime, tag, grid, global_step or 0)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """Add a figure of Matplotlib, or a list of them, as a picture."""
        import numpy
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        pictures = []
        figures = figure if isinstance(figure, list) else [figure]
        for one in figures:
            canvas = FigureCanvasAgg(one)
            canvas.draw()
            pictures.append(numpy.array(canvas.buffer_rgba())[:, :, :3].copy())
            if close:
                pyplot.close(one)
        if isinstance(figure, list):
            self.add_images(tag, numpy.stack(pictures), global_step, walltime, "NHWC")
        else:
            self.add_image(tag, pictures[0], global_step, walltime, "HWC")

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """Add a text in Markdown."""
        self._add("add_text", walltime, tag, text_string, global_step or 0)

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """Add the graph of what model(input_to_model) computes."""
        self._writer.add_graph(model, input_to_model)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None):
        """Add a row to the table of hyperparameters: a separate run, run_name, below log_dir, with these metrics."""
        if hparam_domain_discrete:
            raise ValueError("add_hparams: hparam_domain_discrete, expected None")
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        writer = TensorBoardWriter(folder)
        for tag, content in _hparams_messages(hparam_dict, metric_dict):
            writer._add_plugin_data(tag, "hparams", content)
        for tag, value in metric_dict.items():
            writer.add_scalar(tag, float(value), 0)


# ---- The messages of TensorBoard's plugin hparams: plugin_data.proto and api.proto


def _varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def _field(number, value):
    """Return a field of a message: an int or bool, a float (double), a str, or bytes (a message)."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


_STRING, _BOOL, _FLOAT64 = 1, 2, 3  # DataType


def _hparam(name, value):
    """Return the type and the google.protobuf.Value of a hyperparameter."""
    if isinstance(value, bool):
        return _BOOL, _field(4, value)
    if isinstance(value, str):
        return _STRING, _field(3, value)
    if isinstance(value, Tensor) or hasattr(value, "__float__"):
        return _FLOAT64, _field(2, float(value))
    raise ValueError(f"add_hparams: {name} is a {type(value).__name__}, expected a number, a bool, a str, or a tensor")


def _hparams_messages(hparams, metrics):
    if not isinstance(hparams, dict) or not isinstance(metrics, dict):
        raise TypeError("hparam_dict and metric_dict should be dictionary.")
    infos = values = b""
    for name, value in hparams.items():
        kind, message = _hparam(name, value)
        infos += _field(4, _field(1, name) + _field(4, kind))
        values += _field(1, _field(1, name) + _field(2, message))
    for tag in metrics:
        infos += _field(5, _field(1, _field(2, tag)))
    yield "_hparams_/experiment", _field(2, infos)
    yield "_hparams_/session_start_info", _field(3, values)
    yield "_hparams_/session_end_info", _field(4, _field(1, 1))  # STATUS_SUCCESS
