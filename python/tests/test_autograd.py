"""torch.autograd: functions of the program, hooks and gradients of results, graphs that are kept."""

import collections
import concurrent.futures
import gc
import os
import weakref

import lockstep as torch
import pytest
from lockstep import nn
from lockstep.autograd import Function
from lockstep.autograd.function import once_differentiable
from lockstep.utils.data import DataLoader, TensorDataset


@pytest.fixture(scope="module", autouse=True)
def devices():
    torch.set_devices(3)


def on_first(net):
    return net.to(torch.devices()[0])


class LinearFunction(Function):
    """y = x w^T + b, with the arguments that need no gradient left out."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        y = x.mm(weight.t())
        return y if bias is None else y + bias.unsqueeze(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, bias = ctx.saved_tensors
        dx = dy.mm(weight) if ctx.needs_input_grad[0] else None
        dw = dy.t().mm(x) if ctx.needs_input_grad[1] else None
        db = dy.sum(0) if bias is not None and ctx.needs_input_grad[2] else None
        return dx, dw, db


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def test_gradients_are_those_of_the_library():
    x, w, b = (torch.randn(*shape, requires_grad=True) for shape in ((5, 3), (2, 3), (2,)))
    expected = torch.autograd.grad(nn.functional.linear(x, w, b).square().sum(), (x, w, b))
    found = torch.autograd.grad(LinearFunction.apply(x, w, b).square().sum(), (x, w, b))
    for a, e in zip(found, expected):
        assert torch.allclose(a, e, 1e-5, 1e-5)
    assert len(torch.autograd.grad(LinearFunction.apply(x, w).sum(), (x, w))) == 2


def test_setup_context_is_the_other_form():
    class Square(Function):
        @staticmethod
        def forward(x, times):
            return x * x * times

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.times = inputs
            ctx.save_for_backward(x, output)

        @staticmethod
        def backward(ctx, dy):
            x, y = ctx.saved_tensors
            assert torch.equal(y, x * x * ctx.times)
            return 2 * x * dy * ctx.times, None

    x = leaf(1.0, 3.0)
    Square.apply(x, 2).sum().backward()
    assert x.grad.tolist() == [4, 12]


def test_several_results_and_those_that_no_loss_needs():
    seen = []

    def functions(materialize):
        class Two(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialize)
                index = (x > 0).long()
                ctx.mark_non_differentiable(index)
                return x * 2, x * 3, index, "text", None

            @staticmethod
            def backward(ctx, a, b, *rest):
                seen.append(b)
                return a * 2

        return Two

    x = leaf(1.0, -1.0)
    a, b, index, text, none = functions(True).apply(x)
    assert (text, none, index.tolist(), index.requires_grad, b.requires_grad) == ("text", None, [1, 0], False, True)
    a.sum().backward()
    assert x.grad.tolist() == [2, 2] and seen[0].tolist() == [0, 0]
    functions(False).apply(x)[0].sum().backward()
    assert seen[1] is None


def test_inputs_that_are_changed_in_place():
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 3

    x = leaf(1.0, 2.0)
    z = x * 1
    assert AddOne.apply(z) is z and z.tolist() == [2, 3]
    z.sum().backward()
    assert x.grad.tolist() == [3, 3]
    with pytest.raises(torch.Error, match="leaf that requires a gradient"):
        AddOne.apply(leaf(1.0))


def test_a_result_that_is_the_input_is_another_tensor():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            assert not torch.is_grad_enabled() and x.requires_grad
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 5

    x = leaf(2.0)
    y = Same.apply(x)
    assert y is not x and x.is_leaf and not y.is_leaf
    y.sum().backward()
    assert x.grad.tolist() == [5]


def test_gradients_are_fitted_to_their_inputs():
    class Broadcast(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return torch.ones(4, 2, dtype=torch.float64)

    x = leaf(1.0, 2.0)
    Broadcast.apply(x).sum().backward()
    assert x.grad.tolist() == [4, 4] and x.grad.dtype == torch.float32


def returning(result):
    class Returns(Function):
        @staticmethod
        def forward(ctx, x, n):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return result

    return Returns


@pytest.mark.parametrize("result, error, message", [
    (torch.ones(2), torch.Error, "returned 1 gradients, expected 2, one for each"),
    ((torch.ones(2), torch.ones(2)), torch.Error, "returned a tensor as gradient 1, expected None"),
    ((torch.ones(3), None), torch.Error, r"returned \[3\] as the gradient of tensor 0, expected \[2\]"),
    ((5, None), TypeError, "returned int as gradient 0, expected a tensor or None"),
])
def test_wrong_gradients_are_errors(result, error, message):
    x = leaf(1.0, 2.0)
    with pytest.raises(error, match=message):
        returning(result).apply(x, 1).sum().backward()
    assert x.grad is None
    returning((torch.ones(2), None, None)).apply(x, 1).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_wrong_functions_are_errors():
    class NoTensor(Function):
        @staticmethod
        def forward(ctx, x):
            return [x]

    class NoBackward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class Saves(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(5)

    class Dirty(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x * 1)
            return x

    x = leaf(1.0)
    for f, error, message in ((NoTensor, TypeError, "returned list"), (Saves, TypeError, "argument 0 is of type int"),
                              (Dirty, torch.Error, "no argument of forward")):
        with pytest.raises(error, match=message):
            f.apply(x)
    with pytest.raises(NotImplementedError, match="backward"):
        NoBackward.apply(x).backward()
    with pytest.raises(TypeError, match="keyword"):
        Scale.apply(x, factor=2)
    with pytest.raises(torch.Error, match="expected Scale.apply"):
        Scale()(x, 2)


def test_a_saved_tensor_that_changed_is_an_error():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, dy):
            return 2 * ctx.saved_tensors[0] * dy

    x = leaf(1.0, 2.0)
    y = Square.apply(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(torch.Error, match="Square: a tensor needed for its gradient was changed in place"):
        y.sum().backward()


def test_a_function_may_compute_gradients_in_backward():
    class Recomputes(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp().sin()

        @staticmethod
        def backward(ctx, dy):
            with torch.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                y = x.exp().sin()
            return torch.autograd.grad(y, x, dy)[0]

    x = leaf(0.1, 0.2)
    Recomputes.apply(x).sum().backward()
    assert torch.allclose(x.grad, (x.exp().cos() * x.exp()).detach())


def test_functions_keep_nothing_after_their_pass():
    class Holds(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.note = Note()
            notes.append(weakref.ref(ctx.note))
            ctx.save_for_backward(x * 1)
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy

    class Note:
        pass

    notes = []
    x = leaf(1.0)
    Holds.apply(x).backward()
    Holds.apply(x)  # no pass
    gc.collect()
    assert [note() for note in notes] == [None, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3) / 10)
        self.bias = nn.Parameter(torch.tensor([0.5, -0.5]))

    def forward(self, x):
        return LinearFunction.apply(Scale.apply(x, 2.0), self.weight, self.bias)


def in_parallel(net):
    return nn.DataParallel(net)


def cut_over_devices(net):
    """The model of one batch that is cut: its functions see all rows."""
    def call(x):
        (batch,), = DataLoader(TensorDataset(x), len(x)).on(net)
        return net(batch)

    return call


@pytest.mark.parametrize("wrap", [on_first, in_parallel, cut_over_devices])
def test_functions_in_a_model_on_several_devices(wrap):
    x = torch.arange(24.0).reshape(8, 3) / 24
    net, reference = Net(), on_first(Net())
    wrap(net)(x).square().mean().backward()
    nn.functional.linear(2 * x, reference.weight, reference.bias).square().mean().backward()
    for a, b in zip(net.parameters(), reference.parameters()):
        assert torch.allclose(a.grad.cpu(), b.grad.cpu(), 1e-5, 1e-6)


def test_functions_in_threads():
    def work(seed):
        x = torch.full((50,), float(seed), requires_grad=True)
        for _ in range(20):
            Scale.apply(x, seed).sum().backward()
        return x.grad[0].item()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(1, 9))) == [20.0 * seed for seed in range(1, 9)]


def test_hooks_of_results_and_leaves():
    x = leaf(1.0, 2.0)
    y = x * 3
    seen = []
    handle = y.register_hook(lambda g: seen.append(("first", g.tolist())))
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: seen.append(("last", g.tolist())))
    of_leaf = x.register_hook(lambda g: g + 1)
    (y * y).sum().backward()
    assert seen == [("first", [6, 12]), ("last", [12, 24])] and x.grad.tolist() == [37, 73]
    handle.remove()
    handle.remove()
    of_leaf.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(torch.Error, match="requires no gradient"):
        torch.ones(2).register_hook(print)


def test_a_hook_in_place_and_one_that_is_a_context():
    x = leaf(1.0, 2.0)
    y = x * 1

    def clear_first(g):
        g[0] = 0

    with y.register_hook(clear_first):
        y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert x.grad.tolist() == [1, 2]


def test_wrong_results_of_hooks_are_errors():
    for result, error in ((torch.ones(3), torch.Error), (5, TypeError)):
        x = leaf(1.0, 2.0)
        y = x * 1
        y.register_hook(lambda g, result=result: result)
        with pytest.raises(error, match="hook"):
            y.sum().backward()
        assert x.grad is None


def test_retained_gradients_of_results():
    x = leaf(1.0, 2.0)
    y = x * 3
    z = y * y
    assert not y.retains_grad
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    x.retain_grad()
    z.sum().backward(retain_graph=True)
    assert y.retains_grad and y.grad.tolist() == [60, 120] and z.grad is None
    z.sum().backward()
    assert y.grad.tolist() == [120, 240] and x.grad.tolist() == [360, 720]
    y.grad = None
    assert y.grad is None
    with pytest.raises(torch.Error):
        torch.ones(2).retain_grad()


@pytest.mark.parametrize("wrap, rows", [(on_first, 6), (in_parallel, 2), (cut_over_devices, 6)])
def test_hooks_of_a_batch_on_several_devices(wrap, rows):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    shapes, hidden = [], []

    def keep(module, args, y):
        y.retain_grad()
        hidden.append(y)

    net[1].register_forward_hook(keep)
    net[1].register_full_backward_hook(lambda m, i, o: shapes.append((i[0].shape, o[0].shape)))
    y = wrap(net)(torch.ones(6, 3))
    y.register_hook(lambda g: g * 0)
    y.sum().backward()
    assert shapes == [((rows, 4), (rows, 4))] * (6 // rows) and hidden[0].grad.shape == (rows, 4)
    assert net[0].weight.grad.abs().sum().item() == 0


def test_graphs_that_are_kept():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    assert torch.autograd.grad(y, x, retain_graph=True)[0].tolist() == [2, 4]
    torch.autograd.backward(y)
    assert x.grad.tolist() == [6, 12]
    with pytest.raises(torch.Error, match="retain_graph"):
        y.backward()
    with pytest.raises(torch.Error, match="create_graph"):
        (x * x).sum().backward(create_graph=True)


def test_a_model_has_the_same_gradients_twice():
    net = on_first(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                 nn.Dropout(0.5), nn.Linear(36, 3)))
    x = torch.rand(5, 1, 8, 8)
    loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 2, 1, 0]))
    first = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(net.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_module_backward_hooks():
    net = on_first(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
    calls = []
    pre = net[2].register_full_backward_pre_hook(lambda m, go: calls.append(("pre", go[0].tolist())))
    net[2].register_full_backward_hook(lambda m, gi, go: calls.append(("post", gi[0].shape, go[0].tolist())))
    first = net[0].register_full_backward_hook(lambda m, gi, go: calls.append((gi, go[0].shape)))
    net(torch.ones(1, 2)).sum().backward()
    assert calls == [("pre", [[1]]), ("post", (1, 3), [[1]]), ((None,), (1, 3))]
    pre.remove()
    with first:
        pass
    net[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0,))
    net.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    assert net[0].weight.grad.abs().sum() == 0 and net[2].weight.grad.abs().sum() > 0
    net[2].register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(torch.Error, match="returned 2 gradients, expected 1"):
        net(torch.ones(1, 2)).sum().backward()


def test_grad_of_inputs_that_nothing_depends_on_and_of_one_twice():
    x, other = leaf(1.0, 2.0), leaf(1.0)
    assert torch.autograd.grad((x * x).sum(), other, allow_unused=True) == (None,)
    with pytest.raises(torch.Error, match="no output depends on input 0"):
        torch.autograd.grad((x * x).sum(), other)
    assert [g.tolist() for g in torch.autograd.grad((x * x).sum(), [x, x])] == [[2, 4], [2, 4]]


def test_a_kept_graph_has_all_gradients_after_a_pass_for_some():
    for first in (lambda loss, x, y: torch.autograd.grad(loss, y, retain_graph=True),
                  lambda loss, x, y: loss.backward(inputs=[x], retain_graph=True)):
        x, other = leaf(1.0, 2.0), leaf(3.0, 4.0)
        y = x * x
        loss = (y * other + x).sum()
        first(loss, x, y)
        x.grad = None
        loss.backward()
        assert (x.grad.tolist(), other.grad.tolist()) == ([7, 17], [1, 4])


def test_a_tensor_of_one_axis_that_is_flattened_is_itself():
    x = leaf(1.0, 2.0)
    y = x * 3
    assert y.flatten() is y and torch.flatten(y, -1, 0) is y and (y * y).sum().flatten().shape == (1,)
    assert torch.autograd.grad((y.flatten() + 2 * y).sum(), y)[0].tolist() == [3, 3]


def test_gradients_are_retained_in_grad_too():
    x = leaf(1.0, 2.0)
    y = x * 3
    y.retain_grad()
    torch.autograd.grad(y.sum(), x)
    assert y.grad.tolist() == [1, 1] and x.grad is None


@pytest.mark.parametrize("write", [lambda y: y.zero_(), lambda y: y.fill_(2), lambda y: y.copy_(torch.ones(2)),
                                   lambda y: y.copy_(leaf(1.0, 1.0)), lambda y: y.normal_()])
def test_what_is_written_over_keeps_its_history(write):
    x = leaf(1.0, 2.0)
    y = x * 3
    write(y)
    assert y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [0, 0]


@pytest.mark.parametrize("copied", ["contiguous", "flatten", "clone"])
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, :2], lambda x: x[::2]])
def test_a_view_has_one_history_before_and_after_it_is_copied(view, copied):
    x = torch.ones(3, 3, requires_grad=True)
    v = view(x)
    before = getattr(v, copied)()
    seen = []
    v.register_hook(seen.append)
    after = getattr(v, copied)()
    loss = before.sum() + 2 * after.sum() + 4 * v.sum()
    assert torch.autograd.grad(loss, v, retain_graph=True)[0].unique().tolist() == [7]
    loss.backward()
    assert [g.unique().tolist() for g in seen] == [[7], [7]]


def test_random_programs():
    pytest.importorskip("torch", reason="PyTorch, with which the programs are compared, is not installed")
    import autograd_programs

    count = int(os.environ.get("LOCKSTEP_AUTOGRAD_PROGRAMS", "200"))
    used = collections.Counter()
    assert list(autograd_programs.disagreements(0, count, used)) == []
    assert len(used) > 150


def test_grad_fn_tells_of_the_history():
    x = leaf(1.0, 2.0)
    y = Scale.apply(x.exp(), 2).sum()
    assert x.grad_fn is None and y.grad_fn.name().endswith("Backward0")
    (scale, index), = y.grad_fn.next_functions
    assert scale.name() == "ScaleBackward" and index == 0
    assert scale.next_functions[0][0].name() == "ExpBackward0"
    assert scale.next_functions[0][0].next_functions[0][0].name() == "AccumulateGrad"
    assert y.grad_fn == y.grad_fn and "Backward0 object at" in repr(y.grad_fn)


def test_gradcheck_finds_wrong_derivatives():
    x = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    w = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: (a.mm(b).sin(), a.exp()), (x, w))

    class Wrong(Scale):
        @staticmethod
        def backward(ctx, dy):
            return dy * 1.01 * ctx.factor, None

    assert torch.autograd.gradcheck(lambda a: Scale.apply(a, 3), x)
    assert not torch.autograd.gradcheck(lambda a: Wrong.apply(a, 3), x, raise_exception=False)
    with pytest.raises(torch.Error, match="Jacobian mismatch for output 0 with respect to input 0"):
        torch.autograd.gradcheck(lambda a: Wrong.apply(a, 3), x)
    with pytest.raises(ValueError, match="float64"):
        torch.autograd.gradcheck(torch.exp, leaf(1.0))
    with pytest.raises(ValueError, match="requires_grad"):
        torch.autograd.gradcheck(torch.exp, torch.ones(1))


def test_old_names():
    x = torch.ones(2)
    v = torch.autograd.Variable(x, requires_grad=True)
    assert v.requires_grad and not x.requires_grad and isinstance(v, torch.autograd.Variable)
    with torch.autograd.set_detect_anomaly(True), torch.autograd.detect_anomaly():
        (v * 2).sum().backward()
    assert v.grad.tolist() == [2, 2]


def test_set_grad_enabled_is_a_decorator():
    x = torch.ones(1, requires_grad=True)

    @torch.set_grad_enabled(False)
    def without(x):
        return x * 2

    @torch.set_grad_enabled(False)
    def steps(x):
        yield x * 2
        yield x * 3

    assert torch.is_grad_enabled() and not without(x).requires_grad and not without(x).requires_grad
    assert [y.requires_grad for y in steps(x)] == [False, False] and (x * 2).requires_grad
    with torch.no_grad():
        assert torch.set_grad_enabled(True)(lambda: x * 2)().requires_grad and not torch.is_grad_enabled()
