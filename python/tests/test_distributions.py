import math

import pytest

import lockstep as torch
from lockstep import distributions as D

numpy = pytest.importorskip("numpy")

# Two sets of parameters of each.
CASES = {
    "Normal": [dict(loc=[[0.0, 1.0, -2.0]], scale=[[1.0], [0.3]]), dict(loc=[0.5, 0.0, 1.0], scale=[2.0, 1.0, 0.7])],
    "Uniform": [dict(low=[0.0, -1.0], high=[1.0, 0.5]), dict(low=[-1.0, 0.0], high=[2.0, 3.0])],
    "Exponential": [dict(rate=[0.5, 2.0]), dict(rate=[1.5, 0.3])],
    "Laplace": [dict(loc=[0.0, 1.0], scale=[0.5, 2.0]), dict(loc=[0.4, -1.0], scale=[1.5, 1.0])],
    "Bernoulli": [dict(probs=[0.2, 0.7, 0.5]), dict(logits=[0.0, 25.0, -1.5])],
    "Categorical": [dict(probs=[[0.2, 0.5, 0.3], [1.0, 2.0, 1.0]]), dict(logits=[[0.0, 1.0, -2.0], [3.0, 0.0, 0.1]])],
}
VALUES = {"Normal": [0.3, -1.0, 2.0], "Uniform": [0.25, 0.3], "Exponential": [0.7, 3.0], "Laplace": [-0.3, 2.5],
          "Bernoulli": [1.0, 0.0, 1.0], "Categorical": [2.0, 0.0]}


def made(module, tensor, name, which):
    parameters = {k: tensor(v, dtype=module.float64, requires_grad=True) for k, v in CASES[name][which].items()}
    return getattr(module.distributions, name)(**parameters), list(parameters.values())


@pytest.mark.parametrize("name", CASES)
def test_they_are_pytorchs(name):
    peer = pytest.importorskip("torch")

    # Values and gradients of what f makes.
    def compare(f):
        found = []
        for module in (torch, peer):
            (p, a), (q, b) = (made(module, module.tensor, name, which) for which in (0, 1))
            y = f(module, p, q)
            if y.requires_grad:
                y.sum().backward()
            found.append([y.detach().numpy()] + [None if t.grad is None else t.grad.numpy() for t in a + b])
        for mine, theirs in zip(*found):
            mine = numpy.zeros_like(theirs) if mine is None and theirs is not None else mine
            theirs = numpy.zeros_like(mine) if theirs is None and mine is not None else theirs
            if mine is not None:
                numpy.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)

    for which in (0, 1):
        compare(lambda m, *pq: pq[which].log_prob(m.tensor(VALUES[name], dtype=m.float64)))
        compare(lambda m, *pq: pq[which].entropy())
        if name != "Categorical":
            compare(lambda m, *pq: pq[which].mean)
            compare(lambda m, *pq: pq[which].variance)
            compare(lambda m, *pq: pq[which].stddev)
        if hasattr(getattr(D, name), "cdf"):
            compare(lambda m, *pq: pq[which].cdf(m.tensor(VALUES[name], dtype=m.float64)))
        if hasattr(getattr(D, name), "icdf"):
            compare(lambda m, *pq: pq[which].icdf(m.full((1,), 0.3, dtype=m.float64)))
        p, _ = made(torch, torch.tensor, name, which)
        q, _ = made(peer, peer.tensor, name, which)
        assert p.batch_shape == tuple(q.batch_shape) and p.event_shape == tuple(q.event_shape)
        assert tuple(p.sample((2, 3)).shape) == tuple(q.sample((2, 3)).shape) and p.has_rsample == q.has_rsample
    compare(lambda m, p, q: m.distributions.kl_divergence(p, q))
    compare(lambda m, p, q: m.distributions.Independent(p, 1).log_prob(m.tensor(VALUES[name], dtype=m.float64)))
    compare(lambda m, p, q: m.distributions.kl_divergence(m.distributions.Independent(p, 1),
                                                          m.distributions.Independent(p, 1)))


def test_fixed_values():
    assert D.Normal(0.0, 1.0).log_prob(torch.tensor(0.0)).item() == pytest.approx(-0.9189385)
    assert D.Normal(1.0, 2.0).entropy().item() == pytest.approx(2.1120857)
    assert D.Categorical(torch.tensor([1.0, 3.0])).log_prob(torch.tensor(1)).item() == pytest.approx(math.log(0.75))
    assert D.Bernoulli(0.25).log_prob(torch.tensor(1.0)).item() == pytest.approx(math.log(0.25))
    assert D.Uniform(0.0, 2.0).log_prob(torch.tensor(2.0)).item() == -math.inf
    assert D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(1.0, 1.0)).item() == pytest.approx(0.5)
    certain, other = (D.Categorical(torch.tensor(p)) for p in ([1.0, 0.0], [0.0, 1.0]))
    assert D.kl_divergence(certain, other).item() == math.inf and D.kl_divergence(certain, certain).item() == 0
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_distribution(name):
    for which in (0, 1):
        p, parameters = made(torch, torch.tensor, name, which)
        torch.manual_seed(3)
        x = p.sample((20000,))
        assert not x.requires_grad
        torch.manual_seed(3)
        assert torch.equal(x, p.sample((20000,)))
        if name == "Categorical":
            shares = torch.stack([(x == i).double().mean(0) for i in range(3)], -1)
            numpy.testing.assert_allclose(shares.numpy(), p.probs.detach().numpy(), atol=0.015)
        else:
            mean, deviation = p.mean.detach().numpy(), p.stddev.detach().numpy()
            numpy.testing.assert_allclose(x.double().mean(0).numpy(), mean, atol=0.04 * deviation.max() + 1e-9)
            numpy.testing.assert_allclose(x.double().std(0).numpy(), deviation, rtol=0.05, atol=1e-4)
        if p.has_rsample:
            p.rsample((3,)).sum().backward()
            assert all(t.grad is not None for t in parameters)


# The gradient of a draw is that of loc + scale * e.
def test_the_gradient_of_a_draw():
    loc, scale = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([0.5, 3.0], requires_grad=True)
    x = D.Normal(loc, scale).rsample()
    x.sum().backward()
    assert loc.grad.tolist() == [1, 1]
    numpy.testing.assert_allclose(scale.grad.numpy(), ((x - loc) / scale).detach().numpy(), rtol=1e-5)


def test_wrong_parameters_and_values_are_errors():
    for make, text in [(lambda: D.Normal(0.0, -1.0), "parameter scale"), (lambda: D.Uniform(1.0, 0.0), "parameter low"),
                       (lambda: D.Bernoulli(1.5), "from 0 to 1"), (lambda: D.Bernoulli(), "Either `probs` or `logits`"),
                       (lambda: D.Categorical(torch.tensor([-1.0, 2.0])), "at least 0"),
                       (lambda: D.Exponential(1.0).log_prob(torch.tensor(-1.0)), "at least 0"),
                       (lambda: D.Categorical(torch.ones(2)).log_prob(torch.tensor(2)), "from 0 to 1"),
                       (lambda: D.Uniform(0.0, 1.0).log_prob(torch.tensor(2.0)), "from low to high"),
                       (lambda: D.Normal(torch.zeros(2), torch.ones(3)), "do not broadcast"),
                       (lambda: D.Bernoulli(0.5).log_prob(torch.tensor(0.5)), "0 or 1")]:
        with pytest.raises(ValueError, match=text):
            make()
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    with pytest.raises(NotImplementedError, match="Normal and q type Uniform"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Uniform(0.0, 1.0))
    with pytest.raises(NotImplementedError, match="Bernoulli: rsample"):
        D.Bernoulli(0.5).rsample()


def test_logits_without_a_softmax_are_errors():
    for logits in ([math.inf, 0.0], [-math.inf, -math.inf]):
        with pytest.raises(ValueError, match="parameter logits"):
            D.Categorical(logits=torch.tensor(logits))
    assert D.Categorical(logits=torch.tensor([-math.inf, 0.0])).probs.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_draws_of_half_types(dtype):
    torch.manual_seed(1)
    one = torch.tensor([1.0], dtype=dtype)
    for d in (D.Exponential(one), D.Laplace(one, one)):
        x = d.sample((20000,))
        assert x.dtype == dtype and x.float().abs().max().item() < 20
    x = D.Uniform(one, one * 2).sample((20000,))
    assert x.dtype == dtype and 1 <= x.float().min().item() and x.float().max().item() < 2
    rare = D.Bernoulli(torch.tensor([0.0005], dtype=dtype)).sample((20000,))
    assert rare.dtype == dtype and 0 < rare.float().sum().item() < 40


def test_uniform_excludes_its_end():
    assert D.Uniform(torch.tensor(1.0), torch.tensor(1 + 2**-23)).sample((1000,)).unique().tolist() == [1]
