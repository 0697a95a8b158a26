"""Functions that put tensors together, take them apart, and multiply them, with PyTorch's names."""

import itertools
import math
import operator

from . import _core
from .composed import on_diagonal
from .distributions.distribution import broadcast_shape
from .size import Size


def broadcast_shapes(*shapes):
    """Return the shape of a sum of tensors of these shapes."""
    return broadcast_shape(*((s,) if isinstance(s, int) else tuple(s) for s in shapes)) if shapes else Size([])


def broadcast_tensors(*tensors):
    """Return the tensors, expanded to one shape."""
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(shape) for t in tensors)


def _at_least(n):
    def at_least(*tensors):
        tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
        out = []
        for t in tensors:
            if t.dim() == 0:
                t = t.reshape((1,) * n)
            elif t.dim() == 1 and n > 1:
                t = t.unsqueeze(0)
            if t.dim() == 2 and n > 2:
                t = t.unsqueeze(2)
            out.append(t)
        return out[0] if len(out) == 1 else tuple(out)

    at_least.__name__, at_least.__doc__ = f"atleast_{n}d", f"Return the tensors with at least {n} axes."
    return at_least


atleast_1d, atleast_2d, atleast_3d = map(_at_least, (1, 2, 3))


def column_stack(tensors):
    """Return the tensors side by side; those of one axis become columns."""
    return _core.cat([t.reshape(-1, 1) if t.dim() <= 1 else t for t in tensors], 1)


def dstack(tensors):
    """Return the tensors one after another along the third axis."""
    return _core.cat([atleast_3d(t) for t in tensors], 2)


def tensor_split(input, indices_or_sections, dim=0):
    """Return this many parts along an axis, the first ones longer by one; or the parts between these indices."""
    n = input.size(dim)
    if isinstance(indices_or_sections, _core.Tensor):
        if indices_or_sections.dtype != _core.int64 or indices_or_sections.dim() > 1:
            raise RuntimeError(f"tensor_split: {list(indices_or_sections.shape)} of {indices_or_sections.dtype}, "
                               "expected one axis or a number, of int64")
        indices_or_sections = indices_or_sections.tolist()
    if hasattr(indices_or_sections, "__index__"):
        indices_or_sections = operator.index(indices_or_sections)
        if indices_or_sections < 1:
            raise RuntimeError(f"tensor_split: {indices_or_sections} parts, expected at least 1")
        least, longer = divmod(n, indices_or_sections)
        ends = list(itertools.accumulate(least + (i < longer) for i in range(indices_or_sections)))
    else:
        ends = [min(max(i + n, 0) if i < 0 else i, n) for i in indices_or_sections] + [n]
    starts = [0, *ends[:-1]]
    return tuple(input.narrow(dim, a, max(b - a, 0)) for a, b in zip(starts, ends))


def block_diag(*tensors):
    """Return a matrix with these matrices along its diagonal."""
    if any(t.dim() > 2 for t in tensors):
        raise RuntimeError(f"block_diag: {[list(t.shape) for t in tensors]}, expected at most two axes")
    blocks = [t.reshape(1, -1) if t.dim() < 2 else t for t in tensors]
    width, rows, before = sum(b.size(1) for b in blocks), [], 0
    for b in blocks:
        after = width - before - b.size(1)
        rows.append(_core.functional.pad(b, (before, after)) if b.numel() else b.new_zeros(b.size(0), width))
        before += b.size(1)
    return _core.cat(rows, 0)


def cartesian_prod(*tensors):
    """Return all combinations of one element of each tensor, as rows."""
    if any(t.dim() != 1 for t in tensors):
        raise RuntimeError(f"cartesian_prod: {[list(t.shape) for t in tensors]}, expected one axis each")
    if len(tensors) == 1:
        return tensors[0]
    return _core.stack([g.reshape(-1) for g in _core.meshgrid(*tensors, indexing="ij")], 1)


def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Return matrices with the last axis along their diagonal."""
    if offset:
        raise _core.Error(f"diag_embed: offset is {offset}, expected 0")
    out = on_diagonal(input)
    return out if (dim1, dim2) == (-2, -1) else out.movedim((-2, -1), (dim1, dim2))


def diagflat(input, offset=0):
    """Return a matrix with all elements along its diagonal."""
    return diag_embed(input.flatten(), offset)


def rot90(input, k=1, dims=(0, 1)):
    """Return the tensor rotated k times by 90 degrees, from the first axis of dims towards the second."""
    a, b = dims
    if k % 4 == 2:
        return input.flip((a, b))
    if k % 4 == 1:
        return input.flip(b).transpose(a, b).clone()
    return input.flip(a).transpose(a, b).clone() if k % 4 == 3 else input.clone()


def kron(input, other):
    """Return the Kronecker product."""
    n = max(input.dim(), other.dim())
    a, b = ([1] * (n - t.dim()) + list(t.shape) for t in (input, other))
    product = (input.reshape([e for x in a for e in (x, 1)]) * other.reshape([e for x in b for e in (1, x)]))
    return product.reshape([x * y for x, y in zip(a, b)])


def take(input, index):
    """Return the elements at these indices of the flattened tensor; negative indices count from its end."""
    if index.dtype != _core.int64:
        raise RuntimeError(f"take: the index is of {index.dtype}, expected int64")
    flat = index.flatten()
    return input.flatten().index_select(0, _core.where(flat < 0, flat + input.numel(), flat)).reshape(index.shape)


def argwhere(input):
    """Return the indices of the elements that are not 0, as rows."""
    return input.nonzero()


def _triangle(keep):
    def indices(row, col, offset=0, *, dtype=None, device=None):
        places = [(i, j) for i in range(row) for j in range(col) if keep(j - i, offset)]
        return _core.tensor([list(part) for part in zip(*places)] or [[], []], dtype=dtype or _core.int64,
                            device=device)

    return indices


tril_indices, triu_indices = _triangle(lambda d, o: d <= o), _triangle(lambda d, o: d >= o)
tril_indices.__name__, tril_indices.__doc__ = "tril_indices", "Return rows and columns of the lower triangle."
triu_indices.__name__, triu_indices.__doc__ = "triu_indices", "Return rows and columns of the upper triangle."


def _weighted_sum(name, input, product, beta, alpha):
    for what, factor in (("beta", beta), ("alpha", alpha)):
        if not product.is_floating_point() and factor != int(factor):
            raise RuntimeError(f"{name}: {what} is {factor}, expected a whole number for whole numbers")
    if input.dtype == product.dtype == _core._bool:
        return (input if beta else _core.zeros_like(input)) | (product if alpha else _core.zeros_like(product))
    if beta == 0:  # nan of the input does not count
        input = _core.zeros_like(input)
    return beta * input + alpha * product


def addmv(input, mat, vec, *, beta=1, alpha=1):
    """Return beta * input + alpha * mat @ vec."""
    product = mat.mv(vec)
    return _weighted_sum("addmv", input, product if alpha else _core.zeros_like(product), beta, alpha)


def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """Return beta * input + alpha * the outer product."""
    return _weighted_sum("addr", input, vec1.outer(vec2), beta, alpha)


def ger(input, vec2):
    """Return the outer product."""
    return input.outer(vec2)


def inner(input, other):
    """Return the inner products along the last axes."""
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    return tensordot(input, other, ([-1], [-1]))


def vdot(input, other):
    """Return the dot product of vectors."""
    return input.dot(other)


def tensordot(a, b, dims=2):
    """Return the sum of products over the last axes of a and the first ones of b, or over dims = (axes of a, of b)."""
    if isinstance(dims, int):
        left, right = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        left, right = ([d % t.dim() for d in ([axes] if isinstance(axes, int) else axes)]
                       for axes, t in zip(dims, (a, b)))
    if [a.size(d) for d in left] != [b.size(d) for d in right]:
        raise RuntimeError(f"tensordot: axes {left} of {list(a.shape)} and {right} of {list(b.shape)}, expected equal "
                           "extents")
    rows = [d for d in range(a.dim()) if d not in left]
    columns = [d for d in range(b.dim()) if d not in right]
    m, n, k = (math.prod(t.size(d) for d in axes) for t, axes in ((a, rows), (a, left), (b, columns)))
    out = a.permute(rows + left).reshape(m, n).mm(b.permute(right + columns).reshape(n, k))
    return out.reshape([a.size(d) for d in rows] + [b.size(d) for d in columns])


def cross(input, other, dim=None):
    """Return the cross product of vectors with three elements. Without dim: along the first axis of extent 3."""
    from .linalg import cross as along

    if dim is None:
        dim = next((d for d in range(input.dim()) if input.size(d) == 3), None)
        if dim is None:
            raise RuntimeError(f"cross: {list(input.shape)}, expected an axis of 3 elements")
    return along(input, other, dim=dim)


def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False):
    """Return a tensor with one number and no axes."""
    return _core.tensor(s, dtype=dtype or _core.float32, device=device, requires_grad=requires_grad)


def randint_like(input, low, high=None, *, dtype=None, device=None):
    """Return whole numbers from low to high - 1, with the shape, type, and device of input."""
    low, high = (0, low) if high is None else (low, high)
    x = _core.randint(low, high, tuple(input.shape))
    return x.to(dtype or input.dtype).to(input.device if device is None else device)


_FUNCTIONS = ("broadcast_shapes broadcast_tensors atleast_1d atleast_2d atleast_3d column_stack dstack block_diag "
              "cartesian_prod tril_indices triu_indices tensordot scalar_tensor randint_like").split()
_METHODS = "tensor_split diag_embed diagflat rot90 kron take argwhere addmv addr ger inner vdot cross".split()


def install(package):
    """Add the functions to the package, and to tensors those that PyTorch has as methods."""
    for name in _FUNCTIONS + _METHODS:
        setattr(package, name, globals()[name])
    for name in _METHODS:
        setattr(_core.Tensor, name, globals()[name])
    package.row_stack = _core.vstack
