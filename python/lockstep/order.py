"""Functions that sort elements, or that skip nan, with PyTorch's names."""

import math

from . import _core
from .return_types import pair_class

_Kthvalue = pair_class("kthvalue", "values", "indices")
_Aminmax = pair_class("aminmax", "min", "max")


def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """Return the q-quantiles of all elements, or along an axis; several q make a new first axis."""
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(f"quantile: interpolation='{interpolation}', expected 'linear', 'lower', 'higher', "
                           "'midpoint', or 'nearest'")
    if not input.is_floating_point() or input.numel() == 0:
        raise RuntimeError(f"quantile: {list(input.shape)} of {input.dtype}, expected elements of float or double")
    one = not isinstance(q, _core.Tensor) or q.dim() == 0
    shares = [float(q)] if one else q.tolist()
    differentiable = interpolation == "linear" and isinstance(q, _core.Tensor) and q.requires_grad
    if any(not 0 <= s <= 1 for s in shares):
        raise RuntimeError(f"quantile: q is {shares}, expected values from 0 to 1")
    axes = input.dim()
    dim = None if axes == 0 and dim in (0, -1) else dim
    x = input.flatten() if dim is None else input.movedim(dim, -1)
    ordered = x.sort(-1)[0]
    n = ordered.size(-1)
    results = []
    for number, share in enumerate(shares):
        # Computes in the type of the elements, as PyTorch does for the position.
        place = (_core.tensor(share, dtype=input.dtype) * (n - 1)).item()
        low, high = math.floor(place), math.ceil(place)
        weight = {"linear": place - low, "lower": 0.0, "higher": 1.0, "midpoint": 0.5,
                  "nearest": float(round(place) - low)}[interpolation]
        a, b = ordered.select(-1, low), ordered.select(-1, high)
        if differentiable:  # the weight, with the gradient of q
            weight = (q if one else q[number]) * (n - 1) - low
            y = a + (b - a) * weight
        else:
            y = a if weight == 0 else b if weight == 1 else a + (b - a) * weight
        results.append(_core.where((x != x).any(-1), _core.full_like(y, math.nan), y))
    if keepdim:
        results = [y.reshape([1] * axes) if dim is None else y.unsqueeze(dim) for y in results]
    if not results:  # of no q: the shape of several
        return quantile(input, _core.tensor([0.0]), dim, keepdim).narrow(0, 0, 0)
    return results[0] if one else _core.stack(results)


def kthvalue(input, k, dim=-1, keepdim=False):
    """Return the k-th smallest element along an axis, and its index."""
    n = input.size(dim) if input.dim() or dim not in (0, -1) else 1
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue: k is {k}, expected 1 to {n}")
    if input.dim() == 0:
        return _Kthvalue(input.clone(), _core.zeros_like(input, dtype=_core.int64, requires_grad=False))
    values, indices = input.sort(dim)
    # Copies, so that the results are not views of all sorted elements.
    parts = (t.narrow(dim, k - 1, 1) if keepdim else t.select(dim, k - 1) for t in (values, indices))
    return _Kthvalue(*(t.clone() for t in parts))


def aminmax(input, *, dim=None, keepdim=False):
    """Return the smallest and the largest element."""
    axes = tuple(range(input.dim())) if dim is None else dim
    return _Aminmax(input.amin(axes, keepdim), input.amax(axes, keepdim))


def msort(input):
    """Return the elements, sorted along the first axis."""
    return input.sort(0)[0]


def _without_nan(input):
    return _core.where(input != input, _core.zeros_like(input), input)


def nansum(input, dim=None, keepdim=False):
    """Return the sum of the elements that are not nan."""
    return _without_nan(input).sum(dim, keepdim)


def nanmean(input, dim=None, keepdim=False):
    """Return the mean of the elements that are not nan."""
    return nansum(input, dim, keepdim) / (input == input).to(input.dtype).sum(dim, keepdim)


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None):
    """Return where each number fits into the sorted last axis: before equal elements, or after them with right."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted: side='{side}', expected 'left' or 'right'")
    right = right or side == "right"
    number = not isinstance(input, _core.Tensor)
    dtype = sorted_sequence.dtype if sorted_sequence.is_floating_point() else None  # of a number
    x = _core.tensor(input, dtype=dtype, device=sorted_sequence.device) if number else input
    if sorted_sequence.dim() != 1 and tuple(sorted_sequence.shape[:-1]) != tuple(x.shape[:-1]):
        raise RuntimeError(f"searchsorted: {list(sorted_sequence.shape)} and {list(x.shape)}, expected one axis, or "
                           "equal extents but the last")
    return _places(sorted_sequence, x, right)


def _places(sequence, x, right):
    """Return where the elements of x fit into the last axis, by bisection, with the memory of a few tensors like x."""
    n = sequence.size(-1)
    low = _core.zeros_like(x, dtype=_core.int64, requires_grad=False)
    high = low + n
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        if sequence.dim() == 1:
            at = sequence.take(middle.clamp(max=n - 1))
        else:
            at = sequence.gather(-1, middle.clamp(max=n - 1))
        # nan comes last.
        behind = ((at > x) if right else (at >= x)).logical_not().logical_and(low < high)
        low, high = _core.where(behind, middle + 1, low), _core.where(behind, high, middle)
    return low


def bucketize(input, boundaries, *, out_int32=False, right=False):
    """Return the number of the bucket, between sorted boundaries, of each number."""
    if boundaries.dim() != 1:
        raise RuntimeError(f"bucketize: boundaries are {list(boundaries.shape)}, expected one axis")
    return searchsorted(boundaries, input, right=right)


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Return which elements are among test_elements."""
    # The type of a number does not count, and neither does that of a tensor without axes beside one with axes.
    if not isinstance(test_elements, _core.Tensor) or test_elements.dim() == 0:
        found = elements == test_elements
    elif not isinstance(elements, _core.Tensor) or elements.dim() == 0:
        found = (test_elements == elements).any()
    else:
        found = _is_among(elements.detach(), test_elements.detach().flatten())
    return found.logical_not() if invert else found


def _is_among(elements, tests):
    if elements.numel() * tests.numel() <= 1 << 20:
        return (elements.unsqueeze(-1) == tests).any(-1)
    dtype = _core.cat([elements.flatten()[:0], tests[:0]]).dtype
    elements, tests = elements.to(dtype), tests.to(dtype)
    tests = tests[tests == tests].sort()[0]  # nan is equal to nothing
    places = _places(tests, elements, False).clamp(max=tests.numel() - 1)
    return tests.take(places) == elements


def dist(input, other, p=2):
    """Return the norm of the difference."""
    from .linalg import vector_norm

    difference = input - other
    return vector_norm(difference, p) if difference.numel() else difference.sum()


_FUNCTIONS = "searchsorted bucketize isin".split()
_METHODS = "quantile kthvalue aminmax msort nansum nanmean dist".split()


def install(package):
    """Add the functions to the package, and those that PyTorch has as methods to tensors."""
    for name in _FUNCTIONS + _METHODS:
        setattr(package, name, globals()[name])
    for name in _METHODS:
        setattr(_core.Tensor, name, globals()[name])
