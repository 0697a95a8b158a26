"""Functions that Python composes: values and gradients are PyTorch's."""

import math

import pytest

import lockstep as torch

numpy = pytest.importorskip("numpy")


def numbers(*shape, low=-2.0, high=2.0, seed=0):
    return numpy.random.RandomState(seed).uniform(low, high, shape)


def within(*shape):
    return numbers(*shape, low=-0.95, high=0.95)


def with_nan():
    x = numbers(3, 4)
    x[1, 2] = x[0, 0] = math.nan
    return x


def at(*values):
    return numpy.array(values)


INF, NAN = math.inf, math.nan
# Where a composition's own derivatives are 0, infinite, or no number.
LIMITS = {
    "asin": [at(0.0, -0.0, 1.0, -1.0)], "acos": [at(0.0, 1.0, -1.0)], "atan": [at(0.0, INF, -INF)],
    "sinh": [at(0.0, 1e-30, -1e-8, 700.0, INF)],
    "cosh": [at(0.0, 1e-30, -1e-8, 0.999, -1.0, 1.001, -700.0, INF, -INF)],
    "asinh": [at(0.0, -0.0, 1e-30, 9e7, 1.1e8, -1e25, INF, -INF, NAN)],
    "acosh": [at(1.0, 1.0 + 1e-12, 9e7, 1.1e8, 1e25, INF)], "atanh": [at(0.0, 1.0, -1.0, 1e-30)],
    "logit": [at(0.0, 1.0, 1e-30)],
    "hypot": [at(0.0, 1e200, 1e-200, INF, 3.0, -4.0), at(1e-300, 1e200, -1e-200, 1.0, 0.0, 0.0)],
    "xlogy": [at(0.0, 0.0, 0.0, 2.0), at(0.5, -1.0, 3.0, 0.0)],
    "logaddexp": [at(INF, 1.0, -INF, 2.0, -700.0), at(1.0, -INF, 3.0, 2.0, 700.0)],
}
ZEROS = numpy.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [1.0, -2.0, 3.0]])

A, B, C = numbers(3, 4), numbers(3, 4, seed=1), numbers(4, 3, seed=2)

CASES = {
    **{f"{name} at its limits": (lambda m, *x, n=name: getattr(m, n)(*x), arrays) for name, arrays in LIMITS.items()},
    **{f"norm of order {order} of zeros": (lambda m, x, order=order: m.linalg.vector_norm(x, order, 1), [ZEROS])
       for order in (-2.5, -1, 0.5, 1, 1.5, 2, 3.5)},
    "quantile of weights": (lambda m, x, q: m.quantile(x, q, 1), [numbers(3, 5), at(0.3, 0.5, 1.0)]),
    "trace": (lambda m, x: m.trace(x), [numbers(3, 5)]),
    "a mask without axes": (lambda m, x: x[m.tensor(True)] + x[:, m.tensor(True), 1] + x[m.tensor(False)].sum(),
                            [numbers(3, 4)]),
    **{name: (lambda m, x, n=name: getattr(m, n)(x), [A])
       for name in "atan sinh cosh asinh exp2 frac deg2rad rad2deg arctan msort".split()},
    **{name: (lambda m, x, n=name: getattr(m, n)(x), [within(3, 4)])
       for name in "asin acos atanh arcsin arccos arctanh".split()},
    "acosh": (lambda m, x: m.acosh(x), [numbers(5, low=1.1, high=9)]),
    "logit": (lambda m, x: m.logit(x), [numbers(5, low=0.1, high=0.9)]),
    "logit, eps": (lambda m, x: m.logit(x, 0.3), [numbers(5, low=0.1, high=0.9)]),
    "clamp_min": (lambda m, x: m.clamp_min(x, 0.5), [A]), "clamp_max": (lambda m, x: x.clamp_max(0.5), [A]),
    "hypot": (lambda m, x, y: m.hypot(x, y), [A, B]), "logaddexp": (lambda m, x, y: m.logaddexp(x, y), [A, B]),
    "xlogy": (lambda m, x, y: m.xlogy(x, y), [A, numbers(3, 4, low=0.1)]),
    "atleast_1d": (lambda m, x: m.atleast_1d(x.sum()), [A]), "atleast_2d": (lambda m, x: m.atleast_2d(x[0]), [A]),
    "atleast_3d": (lambda m, x: m.cat([t.flatten() for t in m.atleast_3d(x, x[0])]), [A]),
    "shape of atleast_3d": (lambda m, x: m.atleast_3d(x[0]) + m.atleast_3d(x), [A]),
    "column_stack": (lambda m, x, y: m.column_stack([x, y, x[:, 0]]), [A, B]),
    "dstack": (lambda m, x, y: m.dstack([x, y]), [A, B]), "row_stack": (lambda m, x, y: m.row_stack([x, y]), [A, B]),
    "tensor_split": (lambda m, x: m.tensor_split(x, 3, 1)[0] * 2, [A]),
    "tensor_split at": (lambda m, x: m.cat([2 * t for t in x.tensor_split([1, 3], dim=1)[1:]], 1), [A]),
    "block_diag": (lambda m, x, y: m.block_diag(x, y[0], y), [A, C]),
    "cartesian_prod": (lambda m, x, y: m.cartesian_prod(x[0], y[0]), [A, C]),
    "diag_embed": (lambda m, x: m.diag_embed(x), [A]), "diagflat": (lambda m, x: m.diagflat(x), [A]),
    "diag_embed, axes": (lambda m, x: m.diag_embed(x, dim1=0, dim2=1), [A]),
    **{f"rot90 {k}": (lambda m, x, k=k: m.rot90(x, k, (0, 1)), [A]) for k in (-1, 0, 1, 2, 3)},
    "rot90, axes": (lambda m, x: m.rot90(x, 1, (2, 1)), [numbers(2, 3, 4)]),
    "kron": (lambda m, x, y: m.kron(x, y), [A, C]), "kron of axes": (lambda m, x, y: m.kron(x[0], y), [A, C]),
    "take": (lambda m, x: m.take(x, m.tensor([[0, 5], [11, 5]])), [A]),
    "addmv": (lambda m, x, y, z: m.addmv(z, x, y, beta=2, alpha=3), [A, numbers(4), numbers(3)]),
    "addr": (lambda m, x, y, z: x.addr(y, z, alpha=2), [A, numbers(3), numbers(4)]),
    "ger": (lambda m, y, z: m.ger(y, z), [numbers(3), numbers(4)]),
    "inner": (lambda m, x, y: m.inner(x, y), [A, numbers(2, 5, 4)]),
    "vdot": (lambda m, x, y: m.vdot(x, y), [A[0], B[0]]),
    "tensordot": (lambda m, x, y: m.tensordot(x, y, 1), [A, C]),
    "tensordot, axes": (lambda m, x, y: m.tensordot(x, y, ([2, 0], [0, 1])), [numbers(2, 3, 4), numbers(4, 2, 5)]),
    "cross": (lambda m, x, y: m.cross(x, y), [A, B]),
    **{f"quantile {q} {i}": (lambda m, x, q=q, i=i: m.quantile(x, q, 1, True, interpolation=i), [numbers(3, 5)])
       for q in (0, 0.3, 0.5, 1) for i in ("linear", "lower", "higher", "midpoint", "nearest")},
    "quantiles": (lambda m, x: m.quantile(x, m.tensor([0.1, 0.9], dtype=m.float64)), [A]),
    "quantile, nan": (lambda m, x: m.quantile(x, 0.4, dim=0), [with_nan()]),
    "kthvalue": (lambda m, x: m.kthvalue(x, 2).values, [A]),
    "kthvalue, axis": (lambda m, x: x.kthvalue(3, 0, True)[0], [A]),
    "nansum": (lambda m, x: m.nansum(x, 1), [with_nan()]),
    "nanmean": (lambda m, x: m.nanmean(x, 0, True), [with_nan()]),
    "dist": (lambda m, x, y: m.dist(x, y), [A, B]), "dist, p": (lambda m, x, y: m.dist(x, y, 3), [A, B]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_pytorchs(name):
    peer = pytest.importorskip("torch")
    f, arrays = CASES[name]
    found = []
    for module in (torch, peer):
        inputs = [module.tensor(a, dtype=module.float64, requires_grad=True) for a in arrays]
        y = f(module, *inputs)
        weights = numpy.random.RandomState(5).randn(*y.shape) if y.dim() else numpy.array(1.0)
        (y * module.tensor(weights, dtype=module.float64)).nansum().backward()
        found.append([y.detach().numpy()] + [x.grad.numpy() for x in inputs])
    for mine, theirs in zip(*found):
        assert mine.shape == theirs.shape
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


WHOLE = {
    "searchsorted": lambda m: m.searchsorted(m.tensor([1.0, 3.0, 3.0, 5.0]), m.tensor([[0.0, 3.0], [5.0, 9.0]])),
    "searchsorted, right": lambda m: m.searchsorted(m.tensor([1, 3, 3, 5]), m.tensor([3, 5, 0]), right=True),
    "searchsorted, rows": lambda m: m.searchsorted(m.tensor([[1, 3], [2, 4]]), m.tensor([[2, 9], [4, 3]]),
                                                   side="right"),
    "searchsorted, number": lambda m: m.searchsorted(m.tensor([1.0, 3.0]), 2.0),
    "searchsorted, nan": lambda m: m.searchsorted(m.tensor([1.0, 3.0, math.nan]), m.tensor([math.nan, 2.0])),
    "bucketize": lambda m: m.bucketize(m.tensor([[3, 6], [9, 1]]), m.tensor([1, 3, 5, 7])),
    "isin": lambda m: m.isin(m.tensor([[1, 2], [3, 4]]), m.tensor([2, 3])).long(),
    "isin, inverted": lambda m: m.isin(m.tensor([1, 2]), 2, invert=True).long(),
    "argwhere": lambda m: m.argwhere(m.tensor([[1, 0], [0, 3]])),
    "tril_indices": lambda m: m.tril_indices(3, 4, 1), "triu_indices": lambda m: m.triu_indices(3, 3, 1),
    "broadcast_shapes": lambda m: m.tensor(m.broadcast_shapes((3, 1), (2,), (1, 1))),
    "broadcast_tensors": lambda m: m.broadcast_tensors(m.tensor([[1], [2]]), m.tensor([3, 4, 5]))[0],
    "aminmax": lambda m: m.stack(list(m.aminmax(m.tensor([[3, 1], [2, 5]]), dim=1))),
    "addr of masks": lambda m: m.addr(m.zeros(2, 2) > 0, m.tensor([True, False]), m.tensor([True, True])),
    "addmv": lambda m: m.addmv(m.tensor([1, 2]), m.tensor([[1, 2], [3, 4]]), m.tensor([5, 6]), beta=2, alpha=-1),
    "kthvalue": lambda m: m.kthvalue(m.tensor([3, 1, 2]), 2).indices,
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_pytorchs(name):
    peer = pytest.importorskip("torch")
    mine, theirs = WHOLE[name](torch), WHOLE[name](peer)
    assert mine.tolist() == theirs.tolist() and str(mine.dtype) == str(theirs.dtype)


def test_constant_results_have_the_gradient_0():
    x = torch.eye(2).requires_grad_()
    for f in (lambda x: torch.linalg.slogdet(x)[0], lambda x: torch.linalg.matrix_power(x, 0),
              lambda x: torch.linalg.vector_norm(x, 0), lambda x: torch.linalg.vector_norm(x, 0, 1)):
        assert torch.autograd.grad(f(x).sum(), x)[0].tolist() == [[0, 0], [0, 0]]


def test_fixed_values():
    x = torch.tensor([1.0, 2.0, 4.0, 8.0])
    assert torch.quantile(x, 0.5).item() == 3 and torch.quantile(x, torch.tensor([0.0, 1.0])).tolist() == [1, 8]
    assert torch.searchsorted(x, torch.tensor([2.0, 9.0])).tolist() == [1, 4]
    assert torch.kron(torch.eye(2), torch.ones(1, 2)).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert torch.asin(torch.tensor(1.0)).item() == pytest.approx(math.pi / 2)
    assert torch.sinh(torch.tensor(1e-7)).item() == pytest.approx(1e-7, rel=1e-6)
    assert torch.asinh(torch.tensor(-1e-7)).item() == pytest.approx(-1e-7, rel=1e-6)
    assert torch.randint_like(torch.zeros(50), 2, 4).unique().tolist() == [2, 3]
    assert torch.xlogy(torch.tensor(0.0), torch.tensor(0.0)).item() == 0
    with pytest.raises(RuntimeError, match=r"addmv: alpha is 0.5, expected a whole number"):
        torch.addmv(torch.tensor([1]), torch.tensor([[1]]), torch.tensor([1]), alpha=0.5)
    with pytest.raises(RuntimeError, match=r"kthvalue: k is 5, expected 1 to 4"):
        torch.kthvalue(x, 5)
    with pytest.raises(RuntimeError, match="values from 0 to 1"):
        torch.quantile(x, 1.5)


# The keywords of PyTorch's methods and functions.
def test_keywords():
    x = torch.arange(6.0).reshape(shape=(2, 3))
    assert x.permute(dims=(1, 0)).shape == x.swapaxes(axis0=0, axis1=1).shape == x.view(size=(3, 2)).shape == (3, 2)
    assert torch.swapaxes(x, axis0=0, axis1=1).shape == (3, 2)
    assert x[:1].expand(size=(4, 3)).shape == x.repeat(repeats=(2, 1)).shape == x.tile(dims=(2, 1)).shape == (4, 3)
    assert x.new_zeros(size=(2,)).shape == x.new_ones(size=2).shape == (2,)
    assert torch.equal(x.pow(exponent=2), torch.pow(input=x, exponent=2))
    assert torch.equal(torch.mm(input=x, mat2=x.T), x.mm(mat2=x.T)) and torch.mv(x, vec=torch.ones(3)).shape == (2,)
    assert torch.equal(torch.bmm(x[None], mat2=x.T[None])[0], x @ x.T)
    with pytest.raises(TypeError, match="size"):
        x.reshape(size=(3, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gumbel_softmax_of_half_types_is_finite(dtype):
    torch.manual_seed(1)
    for hard in (False, True):
        y = torch.nn.functional.gumbel_softmax(torch.zeros(8000, 4, dtype=dtype), hard=hard)
        assert y.dtype == dtype
        numpy.testing.assert_allclose(y.float().sum(1).numpy(), numpy.ones(8000), atol=0.03)


def test_uniform_excludes_its_end():
    """Half of the sums round to it."""
    assert torch.zeros(1000).uniform_(1, 1 + 2**-23).unique().tolist() == [1]
    assert torch.zeros(1000, dtype=torch.bfloat16).uniform_(1, 1 + 2**-7).float().unique().tolist() == [1]
