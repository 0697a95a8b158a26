"""Where functions of Python are easily wrong: infinities, nan, 0 extents, no axes, bytes, short types. All as PyTorch.

Each line is a program of both libraries: T is the package. Values, types, and shapes are compared, or that both refuse.
"""

import math

import pytest

import lockstep

NAMES = {"inf": math.inf, "nan": math.nan, "math": math}

# What is beside the diagonal is 0, also beside an inf.
ARRANGED = """
T.diag(T.tensor([inf, nan, -1.0]))
T.diag(T.tensor([1.0, inf]), 0)
T.diag_embed(T.tensor([[1.0, nan], [inf, 2.0]]))
T.diag_embed(T.tensor([1.0, nan]), 0, -1, -2)
T.diagflat(T.tensor([[inf], [2.0]]))
T.diagflat(T.tensor([True, False]))
T.diag(T.ones(2, 2, 2))
T.diag(T.tensor([[1.0, 2.0], [3.0, 4.0]])).mul_(2)
T.diff(T.tensor([True, False, False]))
T.diff(T.zeros(2, 0))
T.diff(T.tensor([1.0, 4.0]), 5)
T.diff(T.tensor([1, 4, 9]), 2, prepend=T.tensor([0]), append=T.tensor([7]))
T.take(T.tensor([[1, 2], [3, 4]]), T.tensor([-1, 0, -4]))
T.take(T.tensor([1, 2]), T.tensor([True]))
T.tensor_split(T.arange(3), [-10])[1]
T.tensor_split(T.arange(5), T.tensor([1, 3]))[1]
T.tensor_split(T.arange(5), T.tensor(2))[0]
T.tensor_split(T.arange(5), T.tensor([1.0]))
T.block_diag(T.tensor([1.0, inf]), T.zeros(0, 3), T.tensor(2))
T.block_diag(T.zeros(0, 3))
T.block_diag(T.ones(1, 1, 1))
T.cartesian_prod(T.tensor(1), T.tensor(2))
T.tensordot(T.zeros(2, 0), T.zeros(0, 3), 1)
T.inner(T.zeros(0), T.zeros(0))
T.addmv(T.tensor([nan, inf]), T.eye(2), T.tensor([1.0, 2.0]), beta=0)
T.addr(T.tensor([nan, inf]), T.tensor([1.0, 2.0]), T.tensor([1.0, 2.0]), beta=0)
T.addr(T.tensor([1.0, 2.0]), T.tensor([inf, 2.0]), T.tensor([1.0, nan]), alpha=0)
T.FloatTensor(T.Size([2, 3])).shape[1]
T.LongTensor(T.tensor([1]).shape).shape[0]
T.FloatTensor((2, 3))
str(3 * T.Size([2]))
len(T.broadcast_tensors(T.ones(2, 1), T.ones(3)))
"""

# Bytes wrap no more than in PyTorch, and 16 bits are rounded once.
ELEMENTWISE = """
T.asin(T.tensor([1, 2, 250], dtype=T.uint8))
T.acos(T.tensor([1, 2, 250], dtype=T.uint8))
T.atanh(T.tensor([1, 2, 250], dtype=T.uint8))
T.atanh(T.tensor([True, False]))
T.logit(T.tensor([1, 2, 250], dtype=T.uint8))
T.logit(T.tensor([0.0, 0.8, inf, nan]), 0.7)
T.logit(T.tensor([0.0, 0.8, inf, nan]), 0.1)
T.exp2(T.tensor([0.5, 100.0, -30.0], dtype=T.bfloat16))
T.exp2(T.tensor([3.0, 10.0, -2.0, 127.0]))
T.asinh(T.tensor([0.3, 200.0], dtype=T.bfloat16))
T.hypot(T.tensor([inf, nan, -inf, 3.0]), T.tensor([nan, inf, 1.0, 4.0]))
T.hypot(T.tensor([True, False]), T.tensor([1.0, 2.0]))
T.xlogy(T.tensor([0.0, 2.0, nan]), 3)
T.xlogy(2, T.tensor([1.0, 0.0, nan]))
T.xlogy(T.tensor([0.5, 2.0], dtype=T.float64), T.tensor([3, 5]))
T.xlogy(T.tensor([0.5, 2.0], dtype=T.float16), T.tensor(2.0))
T.logaddexp(T.tensor([0.5, 2.0], dtype=T.bfloat16), T.tensor(2.0))
T.logaddexp(T.tensor([-inf, inf, nan, 1.0]), T.tensor([-inf, inf, 1.0, -inf]))
"""

ORDERED = """
T.quantile(T.tensor([1.0, 2.0]), T.zeros(0))
T.quantile(T.tensor([[1.0, 2.0]]), T.zeros(0), 1, True)
T.quantile(T.tensor(4.0), 0.4, 0, True)
T.kthvalue(T.tensor(4.0), 1).indices
T.kthvalue(T.tensor(4.0), 2)
T.searchsorted(T.tensor([1.0, 3.0, 5.0]), T.tensor([[0.0, 1.0], [5.0, nan]]), right=True)
T.searchsorted(T.tensor([[1, 3], [2, 2]]), T.tensor([[3, 4, 0], [2, 1, 3]]))
T.searchsorted(T.tensor([3.0, 1.0, nan, 2.0]), 2.5)
T.searchsorted(T.tensor([0.1, 0.2], dtype=T.float64), 0.1)
T.searchsorted(T.zeros(0), T.tensor([1.0]))
T.bucketize(T.tensor([3, 1, 9]), T.tensor([1, 3, 5]))
T.isin(T.tensor([0.1, 0.2], dtype=T.float64), 0.1)
T.isin(T.tensor([0.1, 0.2]), T.tensor(0.1, dtype=T.float64))
T.isin(T.arange(2000) % 7, T.arange(600) * 3)
T.isin(T.tensor([nan, 1.0]), T.tensor([1.0, nan]))
T.isin((T.arange(1500.0) / 3).log(), (T.arange(1500.0) / 6).log())
T.dist(T.zeros(0), T.zeros(0), inf)
"""

LINALG = """
T.linalg.det(T.tensor([[nan, 1.0], [1.0, 1.0]]))
T.linalg.det(T.tensor([[[inf, inf], [inf, 1.0]], [[1.0, 2.0], [3.0, 4.0]]]))
T.linalg.det(T.zeros(0, 0))
T.linalg.det(T.zeros(0, 2, 2))
T.linalg.slogdet(T.zeros(2, 0, 0))[1]
T.logdet(T.tensor([[nan, 1.0], [1.0, 1.0]]))
T.linalg.inv(T.zeros(0, 3, 3))
T.linalg.inv(T.zeros(0, 0))
T.linalg.cholesky(T.zeros(0, 3, 3))
T.linalg.solve(T.eye(2), T.zeros(2, 0))
T.linalg.solve(T.zeros(0, 2, 2), T.zeros(0, 2, 3))
T.linalg.vector_norm(T.tensor([3.0, 4.0]), dim=[])
T.linalg.vector_norm(T.zeros(2, 0), -1)
"""

OTHERS = """
T.nn.utils.rnn.pad_sequence(T.tensor([i, i]) if i else T.tensor([5]) for i in range(3))
T.nn.utils.rnn.pad_sequence([])
T.nn.functional.affine_grid(T.tensor([[[1, 0.2, 0], [0.1, 1, 0.3]]], dtype=T.float64), (1, 1, 5, 5)).sum()
T.nn.functional.batch_norm(T.ones(2, 3).to(T.bfloat16), T.zeros(3), T.ones(3))
T.nn.functional.batch_norm(T.ones(2, 3), None, None)
T.nn.functional.local_response_norm(T.zeros(0, 3, 4), 2)
T.nn.functional.local_response_norm(T.zeros(2, 3), 2)
T.nn.init.kaiming_uniform_(T.zeros(2, 3), mode="FAN_OUT").shape[0]
T.nn.init.kaiming_normal_(T.zeros(2, 3), mode="fan")
T.iinfo(T.float32)
T.iinfo(T.bool)
T.finfo(T.int64)
str(T.finfo(T.bfloat16))
str(T.iinfo(T.uint8))
T.distributions.Bernoulli(logits=T.tensor([-5.0, 0.0, 5.0])).log_prob(T.tensor([[0.0], [1.0]]))
T.distributions.Bernoulli(logits=T.tensor([0.0, 5.0])).entropy()
T.distributions.Bernoulli(T.tensor([0.2, 0.5, 0.7])).mode
T.distributions.Bernoulli(T.tensor([0.2])).param_shape[0]
T.distributions.Categorical(T.zeros(3))
T.distributions.Categorical(T.tensor([1.0, inf]))
T.distributions.Categorical(T.tensor([[1, 3]])).mean
T.distributions.Uniform(1.0, 0.0, validate_args=False).log_prob(T.tensor([0.0, 1.0, 0.5]))
T.distributions.Uniform(0.0, 1.0).mode
T.distributions.Exponential(T.tensor([2.0])).mode
str(T.distributions.Normal(T.zeros(2, 1), 1.0))
str(T.distributions.Normal(T.zeros(1), T.ones(1)))
"""


def result(package, program):
    try:
        x = eval(program, dict(NAMES, T=package, F=package.nn.functional))
    except Exception as error:
        assert not isinstance(error, (SyntaxError, NameError, AttributeError, AssertionError)), error
        return "refused"
    if not hasattr(x, "dtype"):
        return x
    return tuple(x.shape), str(x.dtype), x.requires_grad, x.detach().double().flatten().tolist()


# The sign of 0, bounds that are nan, small losses beside large logits, what lies outside of a picture.
COMPUTED = """
1 / (T.tensor([-0.0, 0.0]) * 2)
1 / (T.tensor([-0.0, 0.0]) - 0)
1 / (T.tensor([-0.0, 0.0]) * -1)
1 / (T.tensor([-0.0, 0.0]) + 0)
T.tensor([-0.0]).double() * 2
T.clamp(T.tensor([1.0, 5.0, nan]), nan, 2.0)
T.clamp(T.tensor([1.0, 5.0]), 0.0, nan)
T.clamp_min(T.tensor([1.0]), nan)
T.isclose(T.tensor([2**60]), T.tensor([2**60 + 1]), 0, 0)
T.isclose(T.tensor([1.0]), T.tensor([1.0]), -1.0)
T.isclose(T.tensor([100, 7, 3]), T.tensor([101, 7, 5]), 0.01, 0)
T.lerp(T.tensor([1e30]), T.tensor([1.0]), 1.0)
T.lerp(T.tensor([1e30, 1.0]), T.tensor([1.0, 3.0]), T.tensor([1.0, 0.25]))
T.nonzero(T.tensor(5), as_tuple=True)[0]
T.nonzero(T.tensor(0), as_tuple=True)[0]
T.where(T.tensor(True))[0]
T.vstack([T.tensor([1.5, 2.0]), T.tensor([1, 2])])
T.hstack([T.tensor([1.5]), T.tensor([1, 2])])
F.grid_sample(T.tensor([[[[inf, 1.0]]]]), T.tensor([[[[3.0, 3.0], [1.0, 0.0]]]]), mode="nearest", align_corners=False)
"""

PROGRAMS = [line for part in (ARRANGED, ELEMENTWISE, ORDERED, LINALG, OTHERS, COMPUTED)
            for line in part.strip().splitlines()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_pytorch(program):
    torch = pytest.importorskip("torch", reason="PyTorch, with which results are compared, is not installed")
    ours, theirs = result(lockstep, program), result(torch, program)
    if not isinstance(theirs, tuple) or not isinstance(ours, tuple):
        assert ours == theirs
        return
    assert ours[:3] == theirs[:3]
    digits = 1e-2 if ours[1] == "torch.bfloat16" else 1e-12 if ours[1] == "torch.float64" else 2e-3
    assert ours[3] == pytest.approx(theirs[3], rel=digits, abs=1e-12, nan_ok=True)


def test_coins_that_are_almost_certain():
    """log(1 / (1 + exp(-12))), without the difference of two large numbers."""
    coin = lockstep.distributions.Bernoulli(logits=lockstep.tensor([-12.0, 12.0]))
    assert coin.log_prob(lockstep.tensor([0.0, 1.0])).tolist() == pytest.approx([-6.1441934e-06] * 2, rel=1e-5)
    assert coin.entropy().tolist() == pytest.approx([7.98744e-05] * 2, rel=1e-3)


def test_small_losses_beside_large_logits():
    """log(1 + exp(-16)), for which PyTorch 1.13 gives two digits, and none at 20."""
    x = lockstep.tensor([-16.0, 20.0, 90.0, -200.0], requires_grad=True)
    y = lockstep.tensor([0.0, 1.0, 0.25, 0.5])
    loss = lockstep.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none")
    assert loss.tolist() == pytest.approx([1.1253517e-07, 2.0611537e-09, 67.5, 100.0], rel=1e-6)
    loss.sum().backward()
    assert x.grad.tolist() == pytest.approx([1.1253516e-07, -2.0611537e-09, 0.75, -0.5], rel=1e-5)


def test_results_are_no_aliases():
    x = lockstep.tensor([[1.0, 2.0], [3.0, 4.0]])
    lockstep.linalg.matrix_power(x, 1).zero_()
    lockstep.diag(x).zero_()
    assert x.tolist() == [[1, 2], [3, 4]]


def test_many_numbers_are_found_in_little_memory():
    many = lockstep.arange(300000) * 2
    assert int(lockstep.isin(many, many + 2).sum()) == 299999  # n * n bools would be 90 GB
    assert int(lockstep.searchsorted(many, many, right=True)[-1]) == 300000


def test_clipped_gradients():
    nn, torch = lockstep.nn, lockstep
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    x.grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    seen = x.grad
    assert nn.utils.clip_grad_norm_(x, torch.tensor(2.0), "inf").dtype == torch.float64
    assert seen.tolist() == pytest.approx([1.5, 2.0], rel=1e-5)
    nn.utils.clip_grad_value_(x, 0)
    assert seen.tolist() == [0, 0]
    p = nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([3.0, -4.0])
    nn.utils.clip_grad_value_([p], "1")
    assert p.grad.tolist() == [1, -1]
    with pytest.raises(TypeError, match="list, expected a tensor"):
        nn.utils.vector_to_parameters([1.0, 2.0], [p])


def test_widths_with_sci_mode_are_pytorchs():
    torch = pytest.importorskip("torch", reason="PyTorch, with which results are compared, is not installed")
    for mode in (True, False):
        for package in (lockstep, torch):
            package.set_printoptions(sci_mode=mode)
        try:
            for data in ([1.0, 2000.5], [1e-6, 1.0], [1e10, 2.0], [nan := math.nan, 1.0, 3.25], [nan]):
                assert repr(lockstep.tensor(data)) == repr(torch.tensor(data))
        finally:
            for package in (lockstep, torch):
                package.set_printoptions(profile="default")
