"""torch.utils.checkpoint: the same bits with and without."""

import gc
import weakref

import pytest

import lockstep as torch
from lockstep import nn
from lockstep.nn import functional as F
from lockstep.utils.checkpoint import checkpoint, checkpoint_sequential


def plain(function, *args, **kwargs):
    return function(*args, **kwargs)


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 6)).to(
        torch.devices()[0])


def data():
    return torch.arange(48, dtype=torch.float32).reshape(8, 6).sin().to(torch.devices()[0])


def bits(run):
    """Return the result of run(net, x), all gradients, the buffers, and the next random numbers."""
    model, x = net(), data().requires_grad_()
    torch.manual_seed(7)
    y = run(model, x)
    (y * y).sum().backward()
    found = [y, x.grad, *(p.grad for p in model.parameters()), *model.buffers(), torch.rand(3)]
    return [t.detach().to_host().tolist() for t in found]


def test_a_model_has_the_same_bits():
    expected = bits(lambda model, x: model(x))
    assert bits(lambda model, x: checkpoint(model, x)) == expected
    for use_reentrant in (True, False):
        assert bits(lambda model, x, r=use_reentrant: checkpoint(model, x, use_reentrant=r)) == expected


def test_a_sequence_has_the_same_bits():
    def one_after_the_other(model, x):
        for layer in model:
            x = layer(x)
        return x
    assert bits(lambda model, x: checkpoint_sequential(model, 2, x)) == bits(one_after_the_other)
    assert bits(lambda model, x: checkpoint_sequential(list(model), 5, x)) == bits(one_after_the_other)


def test_nested_and_shared():
    def run(call):
        def forward(model, x):
            h = call(lambda a: call(model, a) + call(model, a * 2), x * 1.5)
            return h + call(model, h) * model[0].weight.sum()
        return forward
    assert bits(run(checkpoint)) == bits(run(plain))


def test_arguments_and_results_keep_their_form():
    x = torch.ones(3, requires_grad=True)

    def function(a, factor, b=None, scale=1):
        return {"sum": a * factor + b * scale, "parts": [a * 2, "text"]}
    found = checkpoint(function, x * 1, 3, b=x * 2, scale=5)
    assert found["parts"][1] == "text"
    (found["sum"] + found["parts"][0]).sum().backward()
    assert x.grad.tolist() == [3 + 10 + 2] * 3


def test_parameters_have_gradients_without_an_input_that_needs_one():
    def gradient(call):
        model = net()
        torch.manual_seed(7)
        call(model, data()).sum().backward()
        return [p.grad.to_host().tolist() for p in model.parameters()]
    assert gradient(checkpoint) == gradient(plain)


def test_the_function_runs_again_in_backward_alone():
    calls = []
    x = torch.ones(2, requires_grad=True)

    def function(a):
        calls.append(torch.is_grad_enabled())
        return a.exp()
    y = checkpoint(function, x)
    assert calls == [True]
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert calls == [True] * 3
    assert x.grad.tolist() == (2 * x.detach().exp()).tolist()
    with torch.no_grad():
        assert not checkpoint(function, x).requires_grad


def test_the_modes_of_the_first_call():
    def run(call):
        def forward(model, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = call(model, x)
            model.eval()
            return y
        return forward
    assert bits(run(checkpoint)) == bits(run(plain))


def test_contexts():
    log = []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append(self.name)

        def __exit__(self, *args):
            pass
    x = torch.ones(2, requires_grad=True)
    checkpoint(torch.exp, x, context_fn=lambda: (Context("first"), Context("second"))).sum().backward()
    assert log == ["first", "second"]


def test_functional_batch_norm_moves_its_statistics_once():
    def statistics(call):
        mean, var = torch.zeros(6), torch.ones(6)
        x = data().to_host().requires_grad_()
        y = call(lambda a: F.batch_norm(a, mean, var, training=True), x)
        (y * y * y).sum().backward()
        return mean.tolist(), var.tolist(), x.grad.tolist()
    assert statistics(checkpoint) == statistics(plain)


def test_a_generator_draws_once():
    def gradient(call):
        generator = torch.Generator().manual_seed(5)
        x = torch.ones(4, requires_grad=True)
        call(lambda a: (a * torch.rand(4, generator=generator)).exp(), x).sum().backward()
        return x.grad.tolist(), torch.rand(2, generator=generator).tolist()
    assert gradient(checkpoint) == gradient(plain)


def test_changes_are_errors():
    w = torch.ones(3)
    x = torch.ones(3, requires_grad=True)
    y = checkpoint(lambda a: (a * w).exp(), x)
    w.add_(1)
    with pytest.raises(torch.Error, match="checkpoint: a tensor, which .* read, was changed in place after forward"):
        y.sum().backward()
    model = net()
    y = checkpoint(model, data())
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(torch.Error, match="checkpoint: parameter 0.weight, which .* read, was changed in place"):
        y.sum().backward()


def test_another_function_is_an_error():
    calls = []
    x = torch.ones(3, requires_grad=True)

    def function(a):
        calls.append(a)
        return a.exp() if len(calls) == 1 else a.sin()
    with pytest.raises(torch.Error, match="operation 0 of the function is .* in backward.., expected"):
        checkpoint(function, x).sum().backward()
    assert x.grad is None
    checkpoint(torch.exp, x).sum().backward()
    assert x.grad.tolist() == x.detach().exp().tolist()
    with pytest.raises(TypeError, match="checkpoint: 3, expected a function"):
        checkpoint(3, x)
    with pytest.raises(torch.Error, match="checkpoint_sequential: 9 segments, expected 1 to the number of functions"):
        checkpoint_sequential(net(), 9, data())


def test_a_failure_of_the_second_call_is_its_own():
    calls = []

    def function(a):
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("again")
        return a.exp()
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="again"):
        checkpoint(function, x).sum().backward()
    assert torch.is_grad_enabled()


def test_a_function_lives_as_long_as_the_graph():
    class Function:
        def __call__(self, a):
            return a.exp()
    function = Function()
    alive = weakref.ref(function)
    y = checkpoint(function, torch.ones(2, requires_grad=True))
    del function
    y.sum().backward()
    gc.collect()
    assert alive() is None


def test_a_long_chain_of_checkpoints_ends():
    y = torch.ones(1, requires_grad=True)
    for _ in range(20000):
        y = checkpoint(torch.neg, y)
    del y
    gc.collect()
