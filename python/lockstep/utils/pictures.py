"""Batches of pictures as one picture, under the names of torchvision.utils.

>>> save_image(x, "digits.png", nrow=8)
"""

import math

from .. import _core
from .._core import Tensor, internal as _internal


def make_grid(tensor, nrow=8, padding=2, normalize=False, value_range=None, scale_each=False, pad_value=0.0):
    """Return pictures [N, C, H, W], or a list of [C, H, W], as one with `nrow` columns; one channel becomes three.

    normalize: scale the values, clamped to value_range (or to their minimum and maximum), to [0, 1]; scale_each: each
    picture separately.
    """
    if not isinstance(tensor, Tensor):
        tensor = _core.stack(list(tensor), 0)
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        tensor = tensor if tensor.size(0) != 1 else _core.cat([tensor] * 3, 0)
        tensor = tensor.unsqueeze(0)
    if tensor.dim() != 4:
        raise TypeError(f"make_grid: {list(tensor.shape)}, expected [N, C, H, W]")
    if tensor.size(1) == 1:
        tensor = _core.cat([tensor] * 3, 1)
    if normalize:
        parts = tensor.unbind(0) if scale_each else [tensor]
        parts = [_scaled(x, value_range) for x in parts]
        tensor = _core.stack(parts) if scale_each else parts[0]
    elif scale_each:
        raise TypeError("make_grid: scale_each without normalize")
    if tensor.size(0) == 1:
        return tensor.squeeze(0)
    n, c, h, w = tensor.shape
    columns = min(nrow, n)
    rows = math.ceil(n / columns)
    h, w = h + padding, w + padding
    grid = _core.full((c, h * rows + padding, w * columns + padding), pad_value, dtype=tensor.dtype)
    for i in range(n):
        y, x = divmod(i, columns)
        grid[:, y * h + padding:(y + 1) * h, x * w + padding:(x + 1) * w] = tensor[i].detach().cpu()
    return grid


def _scaled(x, value_range):
    low, high = value_range if value_range is not None else (x.min().item(), x.max().item())
    return (x.clamp(low, high) - low) / max(high - low, 1e-5)


def save_image(tensor, fp, format=None, **kwargs):
    """Write the pictures as one PNG file; see make_grid()."""
    grid = make_grid(tensor, **kwargs)
    name = str(fp)
    if (format or name.rpartition(".")[2]).lower() != "png":
        raise ValueError(f"save_image: {name}, format={format}, expected a name that ends with .png")
    _internal.write_png(name, (grid * 255 + 0.5).clamp(0, 255).to(_core.uint8))
