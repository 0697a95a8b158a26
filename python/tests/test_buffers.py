"""Assigning a buffer, or the data of a parameter: who keeps the old values, beside PyTorch."""

import copy
import functools

import pytest

import lockstep
from lockstep import nn


def net_of(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("h", torch.zeros(2))
            self.register_buffer("a", torch.ones(2))
            self.register_buffer("b", torch.full((2,), 5.0))
            self.w = torch.nn.Parameter(torch.full((2,), 3.0))

        def forward(self, x):
            before = self.h
            self.h = self.h + 1
            return (self.h - before) * self.w + x

    net = Net()
    net(torch.ones(2))
    return net


def old_object(torch):
    net = net_of(torch)
    old, state = net.h, net.state_dict()
    net.h = net.h + 1
    seen = [old, state["h"], net.h, net.state_dict()["h"], net.get_buffer("h"), dict(net.named_buffers())["h"]]
    net.h += 1
    return [*seen, net._buffers["h"]]


def in_forward(torch):
    net = net_of(torch)
    return [net(torch.ones(2)), net(torch.ones(2)), net.h]


def exchanged(torch):
    net = net_of(torch)
    net.a, net.b = net.b, net.a
    return [net.a, net.b]


def views_of_the_old_one(torch):
    net = net_of(torch)
    views = [net.h[0], net.h[:1], net.h.detach(), net.h.data, net.h.view(2, 1), net.h.reshape(1, 2).t()]
    net.h = torch.tensor([7.0, 8.0])
    views[2].mul_(3)
    net.h.add_(1)
    return [*views, net.h]


def other_shapes_and_types(torch):
    net = net_of(torch)
    old = net.h
    net.h = torch.zeros(3, 1)
    middle = net.h
    net.h = torch.ones(2, dtype=torch.int64)
    return [old, middle, net.h]


def before_the_first_use(torch):
    layer = torch.nn.BatchNorm1d(2)
    old = layer.running_mean
    layer.running_mean = torch.ones(2)
    seen = [old, layer.running_mean, layer.eval()(torch.ones(1, 2))]
    layer.reset_running_stats()
    return [*seen, layer.running_mean]


def statistics(torch):
    layer = torch.nn.BatchNorm1d(2)
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    layer(x)
    old = layer.running_mean
    layer(x)  # in place
    seen = [old, old.clone()]
    layer.running_mean = torch.ones(2)
    layer(x)
    seen += [old, layer.running_mean, layer.eval()(x)]
    layer.reset_running_stats()
    return [*seen, layer.running_mean]


def history(torch):
    net = net_of(torch)
    loss = (net.h * net.w).sum()
    net.h = net.h + 10
    loss.backward()
    return [net.w.grad, net.h]


def applied(torch):
    net = net_of(torch)
    old = net.h
    net._apply(lambda x: x * 2)
    seen = [old, net.h, net.w.detach()]
    old = net.h
    net._apply(lambda x: x.mul_(2))
    return [*seen, old, net.h]


def module_with_the_same_buffer(torch):
    one, other = net_of(torch), net_of(torch)
    other.register_buffer("h", one.h)
    one.h.add_(2)
    seen = [one.h, other.h]
    one.h = torch.zeros(2)
    return [*seen, one.h, other.h]


def copied(torch):
    pair = torch.nn.ModuleList([net_of(torch), net_of(torch)])
    pair[1].register_buffer("h", pair[0].h)
    pair = copy.deepcopy(pair)
    pair[0].h.add_(2)
    return [pair[0].h, pair[1].h, *(value for _, value in sorted(pair.state_dict().items()))]


PROGRAMS = [old_object, in_forward, exchanged, views_of_the_old_one, other_shapes_and_types, before_the_first_use,
            statistics, history, applied, module_with_the_same_buffer, copied]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_that_assign_buffers(program):
    torch = pytest.importorskip("torch", reason="PyTorch, with which the programs are compared, is not installed")
    found, expected = program(lockstep), program(torch)
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert x.shape == y.shape, f"result {i}"
        assert x.flatten().tolist() == pytest.approx(y.flatten().tolist(), rel=1e-4), f"result {i}"


def test_the_old_buffer_keeps_its_value():
    net = net_of(lockstep)
    old = net.h
    net.h = net.h + 1
    assert old.tolist() == [1, 1] and net.h.tolist() == [2, 2] and net.h is not old


def test_a_buffer_that_takes_a_tensor_is_a_copy():
    net, x = net_of(lockstep), lockstep.zeros(2)
    net.h = x
    x.add_(3)
    assert net.h.tolist() == [0, 0]
    with pytest.raises(lockstep.Error, match="expected at least one element"):
        net.h = lockstep.zeros(0)
    with pytest.raises(lockstep.Error, match=r"expected value.detach\(\)"):
        net.h = net.w * 2
    assert net.h.tolist() == [0, 0]


@pytest.mark.parametrize("where", ["forward", "callback"])
def test_a_recorded_step_sees_an_assigned_buffer(where):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", lockstep.zeros(2))

        def forward(self, x):
            before = self.count
            if where == "forward":
                self.count = self.count + 1
            return x * (self.count - before + 1) + self.count

    def run(record_steps):
        lockstep.manual_seed(1)
        net = nn.Sequential(nn.Linear(2, 2), Counting(), nn.Linear(2, 2))
        data = lockstep.utils.data.TensorDataset(lockstep.rand(96, 2), lockstep.arange(96) % 2)
        trainer = lockstep.Trainer(net, lockstep.optim.SGD(net.parameters(), lr=0.1), data, batch_size=8,
                                   record_steps=record_steps)

        def on_update(step):
            if where == "callback" and step in (5, 6):
                net[1].count = net[1].count + step
                net[1].count = net[1].count + 1

        trainer.on_update = on_update
        trainer.train()
        return {name: x.tolist() for name, x in net.state_dict().items()}

    assert run(True) == run(False)


def test_an_export_has_what_an_assigned_buffer_is_made_of(tmp_path):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", lockstep.zeros(1, 2))

        def forward(self, x):
            self.last = x * 2
            return self.last + 1

    def exported(x):
        lockstep.export_onnx(str(tmp_path / "x.onnx"), Last(), x, dynamic_batch=False)
        return (tmp_path / "x.onnx").read_bytes()

    file = exported(lockstep.ones(1, 2))
    assert b"Mul" in file and b"Add" in file and file == exported(lockstep.full((1, 2), 7.0))


# PyTorch shares the memory from then on.
@pytest.mark.parametrize("of", [
    lambda q: q.data, lambda q: q.detach(), lambda q: q, lambda q: q.data.t(), lambda q: q.detach().t().t(),
    lambda q: q.data.view(4).view(2, 2), lambda q: q.data[:, :2], lambda q: q.data[0:2], lambda q: q.data.data,
    lambda q: q.data.float(), lambda q: q.data.to(q.device), lambda q: q.data.contiguous(),
    lambda q: q.data.expand(2, 2)])
def test_data_of_another_parameter_is_refused(of):
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    holder = nn.Module()
    holder.register_buffer("h", lockstep.ones(2, 2))
    x = lockstep.zeros(2, 2)
    before = b.weight.tolist()
    for source in (a.weight, holder.h):
        with pytest.raises(lockstep.Error, match=r"the memory of another parameter or buffer.*other.data.clone\(\)"):
            b.weight.data = of(source)
        with pytest.raises(lockstep.Error, match="b.weight = a.weight"):
            x.data = of(source)
    with pytest.raises(lockstep.Error, match="the memory of another parameter or buffer"):
        holder.h.data = of(a.weight)
    assert b.weight.tolist() == before and x.tolist() == [[0, 0], [0, 0]]


def tied(torch):
    torch.manual_seed(0)
    a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    b.weight = a.weight
    a.weight.data.fill_(2)
    return [b.weight.detach()]


def written(torch, write):
    a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    with torch.no_grad():
        a.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    b.weight.data = torch.zeros(2, 2)
    write(torch, a.weight, b.weight)
    a.weight.data.add_(1)
    return [a.weight.detach(), b.weight.detach()]


def _set(value):
    def write(torch, q, p):
        p.data = value(torch, q, p)

    return write


@pytest.mark.parametrize("program", [tied, *(functools.partial(written, write=write) for write in (
    _set(lambda torch, q, p: q.data.clone()), _set(lambda torch, q, p: q.detach().t().clone()),
    _set(lambda torch, q, p: q.data * 2), _set(lambda torch, q, p: 0.9 * p.data + 0.1 * q.data),
    _set(lambda torch, q, p: p.data), _set(lambda torch, q, p: p.data.view(4).view(2, 2)),
    _set(lambda torch, q, p: torch.ones(2, 2)), _set(lambda torch, q, p: p.data.clone()),
    _set(lambda torch, q, p: q.data[:, [1, 0]]), _set(lambda torch, q, p: torch.cat([q.data[:1], q.data[:1]])),
    lambda torch, q, p: p.data.copy_(q.data), lambda torch, q, p: p.data.copy_(q.data.t())))])
def test_copies_of_data_are_as_in_pytorch(program):
    torch = pytest.importorskip("torch", reason="PyTorch, with which the programs are compared, is not installed")
    found, expected = program(lockstep), program(torch)
    for x, y in zip(found, expected, strict=True):
        assert x.flatten().tolist() == pytest.approx(y.flatten().tolist())


def test_a_vector_that_is_a_parameter_is_copied():
    layer, vector = nn.Linear(2, 1), nn.Parameter(lockstep.arange(3.0))
    nn.utils.vector_to_parameters(vector, layer.parameters())
    assert layer.weight.tolist() == [[0, 1]] and layer.bias.tolist() == [2]
