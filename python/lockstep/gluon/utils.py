"""split_and_load(): a piece of a batch for each device."""

from .._core import internal as _internal
from .arrays import _array


def _list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def split_data(data, num_slice, batch_axis=0, even_split=True):
    """Cut axis 0 into num_slice arrays. With even_split, it must come out even."""
    if batch_axis != 0:
        raise ValueError(f"split_data: batch_axis {batch_axis}, expected 0")
    n = data.shape[0]
    if even_split and n % num_slice:
        raise ValueError(f"data with shape {tuple(data.shape)} cannot be evenly split into {num_slice} slices along "
                         "axis 0")
    # As Gluon: every slice but the last has n // num_slice rows.
    rows = n // num_slice
    ends = [(i + 1) * rows for i in range(num_slice - 1)] + [n]
    return [_array(data[a:b]) for a, b in zip([0, *ends], ends)]


def split_and_load(data, ctx_list, batch_axis=0, even_split=True):
    """Cut axis 0 of a batch and move each piece to its device. Returns a list, one array for each device."""
    ctx_list = _list(ctx_list)
    pieces = split_data(data, len(ctx_list), batch_axis, even_split)
    return [_array(_internal.on_device(piece, device)) for piece, device in zip(pieces, ctx_list)]
