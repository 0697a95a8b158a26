"""Norms, inverses, and determinants, under the names of torch.linalg.

Inverses, determinants, and factors are computed in float64 by elimination, one matrix after another, with the same bits
on every processor; they suit matrices of a few hundred rows. The matrices [.., n, n] may be a batch.
"""

import math

from . import _core
from ._core import Tensor, matmul  # noqa: F401
from .composed import diagonal as _diagonal
from .distributions.distribution import broadcast_shape
from .grad_mode import no_grad
from .return_types import pair_class

_Slogdet = pair_class("linalg_slogdet", "sign", "logabsdet")


class LinAlgError(RuntimeError):
    """A matrix that has no inverse, or no factor."""


_ABSENT = ("cholesky_ex cond eig eigh eigvals eigvalsh householder_product inv_ex ldl_factor ldl_factor_ex ldl_solve "
           "lstsq lu lu_factor lu_factor_ex lu_solve matrix_exp matrix_rank pinv qr solve_ex solve_triangular svd "
           "svdvals tensorinv tensorsolve vander").split()


def __getattr__(name):
    if name in _ABSENT:
        raise AttributeError(f"module 'lockstep.linalg' has no {name}(): it has norms, inv, solve, det, slogdet, "
                             "cholesky, matrix_power, multi_dot, cross, and vecdot")
    raise AttributeError(f"module 'lockstep.linalg' has no attribute '{name}'")


def _constant(value, x):
    """Return value with a gradient of 0 for x, which broadcasts to it: PyTorch's constant functions have one."""
    return _core.where(_core.ones_like(value, dtype=_core._bool), value, x) if x.requires_grad else value


# ---- Norms


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """Return the norm of order `ord` of all elements, or along axes."""
    x = x if dtype is None else x.to(dtype)
    if not x.is_floating_point():
        raise RuntimeError(f"linalg.vector_norm: expected a floating point tensor as input, got {x.dtype}")
    axes = (dim,) if isinstance(dim, int) else tuple(dim or range(x.dim()))  # of no axes: all, as in PyTorch
    if ord == 0:
        counted = _constant((x != 0).to(x.dtype), x)
        return counted.sum(axes, keepdim) if axes else counted
    if not axes:
        return x.abs()
    if ord == math.inf:
        return x.abs().amax(axes, keepdim)
    if ord == -math.inf:
        return x.abs().amin(axes, keepdim)
    if ord == 1:
        return x.abs().sum(axes, keepdim)
    if ord == 2:
        return x.norm(2, axes, keepdim)
    # If an element, or the norm, is 0, so is its derivative, as in PyTorch.
    is_zero = x == 0
    powers = _core.where(is_zero, _core.ones_like(x), x.abs()) ** ord
    if ord > 0:
        sums = _core.where(is_zero, _core.zeros_like(x), powers).sum(axes, keepdim)
        nothing = sums == 0
    else:
        if 0 in [x.size(axis) for axis in axes]:
            raise RuntimeError(f"linalg.vector_norm: the {ord}-norm of {list(x.shape)}, expected elements")
        sums = powers.sum(axes, keepdim)
        nothing = is_zero.to(x.dtype).sum(axes, keepdim) > 0
    norms = _core.where(nothing, _core.ones_like(sums), sums) ** (1.0 / ord)
    return _core.where(nothing, _core.zeros_like(norms), norms)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """Return the norm of matrices: "fro", or the largest (1, inf) or smallest (-1, -inf) sum of a column or row."""
    if A.dim() < 2 or len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: {list(A.shape)} and dim={dim}, expected two axes")
    if ord == "fro":
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if ord not in (1, -1, math.inf, -math.inf):
        raise RuntimeError(f"linalg.matrix_norm: ord={ord!r}, expected 'fro', 1, -1, inf, or -inf")
    A = A if dtype is None else A.to(dtype)
    axis, other = (d % A.dim() for d in (dim if abs(ord) == 1 else dim[::-1]))
    sums = A.abs().sum(axis, keepdim=True)
    extreme = (sums.amax if ord > 0 else sums.amin)(other, True)
    return extreme if keepdim else extreme.squeeze(max(axis, other)).squeeze(min(axis, other))


def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """Return a norm of vectors or matrices. Without ord: the root of the sum of all squares."""
    if dim is not None and not isinstance(dim, int) and len(dim) == 2 and ord is not None:
        return matrix_norm(A, ord, dim, keepdim, dtype=dtype)
    if dim is None and ord is not None:
        if A.dim() == 2:
            return matrix_norm(A, ord, (0, 1), keepdim, dtype=dtype)
        if A.dim() != 1:
            raise RuntimeError(f"linalg.norm: ord={ord!r} of {list(A.shape)}, expected one or two axes, or dim")
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.norm: ord={ord!r} of {list(A.shape)}, expected a matrix")
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


# ---- Products


def multi_dot(tensors):
    """Return the product of matrices; the first and the last may be vectors. The sizes decide the order of products."""
    tensors = list(tensors)
    if len(tensors) < 2:
        raise RuntimeError("linalg.multi_dot: expected at least two tensors")
    first, last = tensors[0].dim() == 1, tensors[-1].dim() == 1
    if first:
        tensors[0] = tensors[0].unsqueeze(0)
    if last:
        tensors[-1] = tensors[-1].unsqueeze(1)
    sizes = [t.size(0) for t in tensors] + [tensors[-1].size(1)]
    n = len(tensors)
    cost, cut = [[0] * n for _ in range(n)], [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], cut[i][j] = min((cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                                        for k in range(i, j))

    def product(i, j):
        return tensors[i] if i == j else product(i, cut[i][j]).mm(product(cut[i][j] + 1, j))

    result = product(0, n - 1)
    result = result.squeeze(1) if last else result
    return result.squeeze(0) if first else result


def matrix_power(A, n):
    """Return the n-th power of A; for a negative n, that of the inverse."""
    if n < 0:
        return matrix_power(inv(A), -n)
    result, power = None, A
    while n:
        if n & 1:
            result = power if result is None else result.matmul(power)
        n >>= 1
        if n:
            power = power.matmul(power)
    if result is A:
        return A.clone()
    return _constant(_identity_like(A), A) if result is None else result


def vecdot(x, y, *, dim=-1):
    """Return the dot product of vectors along an axis."""
    return (x * y).sum(dim)


def cross(input, other, *, dim=-1):
    """Return the cross product of vectors with three elements."""
    if input.size(dim) != 3 or other.size(dim) != 3:
        raise RuntimeError(f"linalg.cross: {list(input.shape)} and {list(other.shape)}, expected 3 elements along axis "
                           f"{dim}")
    a, b = input.unbind(dim), other.unbind(dim)
    return _core.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], dim)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """Return the diagonal of two axes."""
    return _diagonal(A, offset, dim1, dim2)


# ---- Elimination. Values come without a history; the code after them adds 0 with the right gradient.


def _square(name, A):
    if A.dim() < 2 or A.size(-1) != A.size(-2) or not A.is_floating_point():
        raise RuntimeError(f"linalg.{name}: {list(A.shape)} of {A.dtype}, expected square matrices [.., n, n] of "
                           "floating point numbers")
    return A


def _identity_like(A):
    return _core.eye(A.size(-1), dtype=A.dtype, device=A.device).expand_as(A)


def _each(function, *batches):
    """Return the results of function(matrices in float64), called for one matrix of each batch, stacked."""
    A = batches[0]
    n = math.prod(A.shape[:-2])
    with no_grad():
        rows = [x.detach().double().cpu().reshape(n, *x.shape[-2:]) for x in batches]
        if n == 0:  # the shapes are those of any matrix
            ones = [_core.eye(*x.shape[-2:], dtype=x.dtype) for x in rows]
            return [x.new_zeros(*A.shape[:-2], *x.shape).to(A.dtype).to(A.device) for x in function(*ones)]
        rows = [x.unbind(0) for x in rows]
        stacked = [_core.stack(list(parts)) for parts in zip(*map(function, *rows))]
        return [x.reshape(*A.shape[:-2], *x.shape[1:]).to(A.dtype).to(A.device) for x in stacked]


def _eliminated(name, a):
    """Return the inverse, the sign of the determinant, and the logarithm of its magnitude, by pivoted elimination."""
    n = a.size(0)
    rows = _core.cat([a, _core.eye(n, dtype=a.dtype)], 1)
    sign, log = 1.0, 0.0
    for i in range(n):
        best = i + int(rows[i:, i].abs().argmax())
        pivot = rows[best, i].item()
        if pivot == 0 or pivot != pivot:
            if name is None and pivot != pivot:
                return None, 0.0, math.nan
            if name is None:
                return None, 0.0, -math.inf
            raise LinAlgError(f"linalg.{name}: The diagonal element {i + 1} is {pivot}, the matrix is singular")
        sign *= math.copysign(1.0, pivot) * (1 if best == i else -1)
        log += math.log(abs(pivot))
        order = list(range(n))
        order[i], order[best] = best, i
        rows = rows.index_select(0, _core.tensor(order)) if best != i else rows
        row = rows[i] / pivot
        factor = rows[:, i].clone()
        factor[i] = 0
        rows = rows - factor.unsqueeze(1) * row
        rows[i] = row
    return rows[:, n:], sign, log


def inv(A):
    """Return the inverse. Raises LinAlgError for a singular matrix."""
    x, = _each(lambda m: (_eliminated("inv", m)[0],), _square("inv", A))
    # A step of Newton's method from x has the derivative of the inverse: -x dA x.
    return x if not A.requires_grad else x + x.matmul(_without_value(-A)).matmul(x)


def _without_value(x):
    """Return zeros with the gradient of x."""
    return x - x.detach()


def solve(A, B, *, left=True):
    """Return X with A X = B (or X A = B with left=False). B is a vector [.., n] or matrices [.., n, k]."""
    _square("solve", A)
    vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    if not left:
        if vector:
            raise RuntimeError("linalg.solve: a vector B with left=False, expected matrices")
        return solve(A.mT, B.mT).mT
    if B.size(-1 if vector else -2) != A.size(-1):
        raise RuntimeError(f"linalg.solve: A is {list(A.shape)}, B is {list(B.shape)}, expected equal numbers of rows")
    B = B.unsqueeze(-1) if vector else B
    batch = broadcast_shape(A.shape[:-2], B.shape[:-2])
    A, B = A.expand(*batch, *A.shape[-2:]), B.expand(*batch, *B.shape[-2:])

    def parts(a, b):
        x = _eliminated("solve", a)[0]
        return x, x.mm(b)

    x, y = _each(parts, A, B)
    if A.requires_grad or B.requires_grad:
        y = y + x.matmul(_without_value(B) - _without_value(A).matmul(y))
    return y.squeeze(-1) if vector else y


def slogdet(A):
    """Return the sign of the determinant, and the logarithm of its magnitude."""
    def parts(m):
        x, sign, log = _eliminated(None, m)
        x = _core.full_like(m, math.nan) if x is None else x
        return x, _core.tensor(sign, dtype=m.dtype), _core.tensor(log, dtype=m.dtype)

    x, sign, log = _each(parts, _square("slogdet", A))
    if A.requires_grad:
        if bool((sign == 0).any()):
            raise LinAlgError("linalg.slogdet: a singular matrix has no gradient")
        log = log + (x.mT * _without_value(A)).sum((-2, -1))
        sign = _constant(sign, A.sum((-2, -1)))
    return _Slogdet(sign, log)


def det(A):
    """Return the determinant. Its gradient needs nonsingular matrices."""
    sign, log = slogdet(A)
    return sign * log.exp()


def cholesky(A, *, upper=False):
    """Return the lower triangle L with L L' = A, of symmetric positive definite matrices; its transpose with upper."""
    def factor(m):
        n = m.size(0)
        lower = _core.zeros_like(m)
        for j in range(n):
            done = lower[j, :j]
            pivot = (m[j, j] - (done * done).sum()).item()
            if not pivot > 0:
                raise LinAlgError(f"linalg.cholesky: The leading minor of order {j + 1} is not positive-definite")
            lower[j:, j] = (m[j:, j] - (lower[j:, :j] * done).sum(1)) / math.sqrt(pivot)
        return lower, _eliminated("cholesky", lower)[0]

    lower, x = _each(factor, _square("cholesky", A))
    if A.requires_grad:
        # dL = L f(L^-1 dA L^-T), where f takes the lower triangle, with half of the diagonal.
        change = _without_value((A + A.mT) * 0.5)
        inner = x.matmul(change).matmul(x.mT)
        half = _core.tril(_core.ones_like(lower)) - 0.5 * _identity_like(lower)
        lower = lower + lower.matmul(inner * half)
    return lower.mT if upper else lower


def _logdet(A):
    """Return the logarithm of the determinant; nan if it is negative."""
    sign, log = slogdet(A)
    return _core.where(sign < 0, _core.full_like(log, math.nan), log)


def _old_cholesky(input, upper=False):
    """As linalg.cholesky()."""
    return cholesky(input, upper=upper)


def _chain_matmul(*matrices):
    """As linalg.multi_dot()."""
    return multi_dot(matrices)


def install(package):
    """Add the functions that PyTorch has outside of linalg, too."""
    functions = {"inverse": inv, "det": det, "logdet": _logdet, "slogdet": slogdet, "cholesky": _old_cholesky,
                 "matrix_power": matrix_power}
    for name, function in functions.items():
        setattr(package, name, function)
        setattr(Tensor, name, function)
    package.chain_matmul = _chain_matmul
