import math

import pytest

import lockstep as torch

numpy = pytest.importorskip("numpy")


def matrices(*shape, seed=0):
    x = numpy.random.RandomState(seed).randn(*shape)
    return x + 2 * numpy.eye(shape[-1]) if len(shape) > 1 and shape[-1] == shape[-2] else x


def symmetric(*shape):
    x = matrices(*shape)
    return x @ numpy.swapaxes(x, -1, -2) + numpy.eye(shape[-1])


CASES = {
    "inv": (lambda m, a: m.linalg.inv(a), [matrices(4, 4)]),
    "inv of a batch": (lambda m, a: m.inverse(a), [matrices(2, 3, 3, 3)]),
    "solve": (lambda m, a, b: m.linalg.solve(a, b), [matrices(4, 4), matrices(4, 2)]),
    "solve a vector": (lambda m, a, b: m.linalg.solve(a, b), [matrices(4, 4), matrices(4)]),
    "solve a batch": (lambda m, a, b: m.linalg.solve(a, b), [matrices(3, 3), matrices(2, 3, 5)]),
    "solve from the right": (lambda m, a, b: m.linalg.solve(a, b, left=False), [matrices(4, 4), matrices(2, 4)]),
    "det": (lambda m, a: m.linalg.det(a), [matrices(2, 4, 4)]),
    "det below 0": (lambda m, a: m.det(a), [matrices(3, 3)[[1, 0, 2]]]),
    "logdet": (lambda m, a: m.logdet(a), [symmetric(3, 3)]),
    "slogdet": (lambda m, a: m.linalg.slogdet(a).logabsdet, [matrices(5, 5)]),
    "cholesky": (lambda m, a: m.linalg.cholesky(a), [symmetric(2, 4, 4)]),
    "cholesky, upper": (lambda m, a: m.linalg.cholesky(a, upper=True), [symmetric(3, 3)]),
    "power": (lambda m, a: m.linalg.matrix_power(a, 5), [matrices(3, 3)]),
    "negative power": (lambda m, a: m.linalg.matrix_power(a, -2), [matrices(3, 3)]),
    "multi_dot": (lambda m, a, b, c: m.linalg.multi_dot([a, b, c]), [matrices(2, 5), matrices(5, 3), matrices(3, 4)]),
    "multi_dot of vectors": (lambda m, *all: m.linalg.multi_dot(all), [matrices(5), matrices(5, 3), matrices(3)]),
    "cross": (lambda m, a, b: m.linalg.cross(a, b), [matrices(4, 3), matrices(4, 3, seed=1)]),
    "vecdot": (lambda m, a, b: m.linalg.vecdot(a, b), [matrices(4, 3), matrices(4, 3, seed=1)]),
    "norm": (lambda m, a: m.linalg.norm(a), [matrices(4, 3, 2)]),
    "norm of rows": (lambda m, a: m.linalg.norm(a, dim=1), [matrices(4, 3)]),
    "norm of a matrix": (lambda m, a: m.linalg.norm(a, "fro"), [matrices(4, 3)]),
    **{f"norm {p}": (lambda m, a, p=p: m.linalg.vector_norm(a, p, dim=-1, keepdim=True), [matrices(4, 3)])
       for p in (1, 2, 3, 0.5, math.inf, -math.inf, -1)},
    **{f"matrix norm {p}": (lambda m, a, p=p: m.linalg.matrix_norm(a, p), [matrices(2, 4, 3)])
       for p in ("fro", 1, -1, math.inf, -math.inf)},
    **{f"norm {p}, kept axes": (lambda m, a, p=p: m.linalg.norm(a, p, (2, 0), True), [matrices(2, 4, 3)])
       for p in (1, -math.inf)},
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
        (y * module.tensor(weights, dtype=module.float64)).sum().backward()
        found.append([y.detach().numpy()] + [x.grad.numpy() for x in inputs])
    for mine, theirs in zip(*found):
        numpy.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10)


def test_fixed_values():
    a = torch.tensor([[0.0, 2.0], [1.0, 3.0]])
    assert torch.linalg.inv(a).tolist() == [[-1.5, 1.0], [0.5, 0.0]]
    assert torch.linalg.det(a).item() == pytest.approx(-2) and a.det().item() == pytest.approx(-2)
    assert torch.linalg.solve(a, torch.tensor([2.0, 4.0])).tolist() == [1, 1]
    assert torch.linalg.cholesky(torch.tensor([[4.0, 2.0], [2.0, 5.0]])).tolist() == [[2, 0], [1, 2]]
    assert torch.linalg.norm(torch.tensor([3.0, 4.0])).item() == 5
    assert torch.linalg.vector_norm(torch.tensor([3.0, 0.0]), 0).item() == 1
    assert torch.linalg.slogdet(torch.zeros(2, 2)) == (0, -math.inf)
    assert torch.linalg.matrix_power(a, 0).tolist() == [[1, 0], [0, 1]]
    big = torch.tensor(matrices(60, 60), dtype=torch.float32)
    assert (torch.linalg.inv(big) @ big - torch.eye(60)).abs().max().item() < 1e-3


def test_errors():
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    for f in (torch.linalg.inv, lambda a: torch.linalg.solve(a, torch.ones(2))):
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            f(singular)
    with pytest.raises(torch.linalg.LinAlgError, match="minor of order 2 is not positive-definite"):
        torch.linalg.cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    with pytest.raises(RuntimeError, match=r"inv: \[2, 3\] of torch.float32, expected square"):
        torch.linalg.inv(torch.ones(2, 3))
    with pytest.raises(AttributeError, match=r"no svd\(\): it has norms"):
        torch.linalg.svd
    with pytest.raises(AttributeError, match="no attribute 'no'"):
        torch.linalg.no
    with pytest.raises(RuntimeError, match="ord='nuc', expected 'fro', 1"):
        torch.linalg.matrix_norm(singular, "nuc")
