"""Who has which memory: results and their operands, views, threads, objects that refer to each other."""

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest

import lockstep as torch
from lockstep import nn
from lockstep.nn import functional as F
from lockstep.utils.data import TensorDataset

DEVICES = ["cpu", torch.devices()[0]]


def in_memory_of(x, y):
    """Whether a write to y changes x."""
    before = x.detach().to_host().clone()
    with torch.no_grad():
        y.detach().add_(1)
    return not torch.equal(before, x.detach().to_host())


# Functions with arguments that leave nothing to compute, of x [3, 1].
WITHOUT_WORK = {
    "+": lambda x: x + 0, "-": lambda x: x - 0, "*": lambda x: x * 1, "** 1": lambda x: x**1, "// 1": lambda x: x // 1,
    "add": lambda x: x.add(0), "mul": lambda x: x.mul(1), "pow": lambda x: torch.pow(x, 1), "abs": torch.abs,
    "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc,
    "round to digits": lambda x: torch.round(x, decimals=0), "nan_to_num": torch.nan_to_num,
    "clamp": lambda x: x.clamp(-100, 100), "clamp by tensors": lambda x: torch.clamp(x, x, x),
    "maximum": lambda x: torch.maximum(x, x), "where": lambda x: torch.where(x == x, x, x),
    "masked_fill": lambda x: x.masked_fill(x != x, 0), "repeat": lambda x: x.repeat(1, 1), "tile": lambda x: x.tile(1),
    "repeat_interleave": lambda x: x.repeat_interleave(1, 0), "flip": lambda x: x.flip(1), "roll": lambda x: x.roll(0),
    "roll of an axis": lambda x: x.roll(3, 0), "pad": lambda x: F.pad(x, (0, 0)),
    "pad with less": lambda x: F.pad(x, (0, 0, -1, 0)), "prod": lambda x: x.prod(1), "sum": lambda x: x.sum(1),
    "sum of a scalar": lambda x: x[0, 0].sum(), "amax": lambda x: x.amax(1), "max": lambda x: x.max(1).values,
    "max of a scalar": lambda x: x[0, 0].max(0).values, "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1), "sort": lambda x: x.sort(1).values, "topk": lambda x: x.topk(1, 1).values,
    "cat": lambda x: torch.cat([x]), "stack": lambda x: torch.stack([x]), "hstack": lambda x: torch.hstack([x]),
    "vstack": lambda x: torch.vstack([x]), "gather": lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.int64)),
    "index": lambda x: x[torch.arange(3)], "mask": lambda x: x[x == x], "einsum": lambda x: torch.einsum("ij->ij", x),
    "diff": lambda x: x.diff(n=0), "tril": lambda x: x.tril(9), "clone": torch.clone,
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 3, 1), 1),
    "masked_select": lambda x: x.masked_select(x == x), "unique": lambda x: x.unique(),
    "scatter": lambda x: x.scatter(0, torch.zeros(0, 1, dtype=torch.int64), x[:0]),
    "tensor": torch.tensor, "to": lambda x: x.to(x.dtype, copy=True),
}
OF_FRACTIONS = {
    "/": lambda x: x / 1, "mean": lambda x: x.mean(1), "logsumexp": lambda x: x.logsumexp(1), "relu": torch.relu,
    "threshold": lambda x: F.threshold(x, -100, 0), "hardtanh": lambda x: F.hardtanh(x, -100, 100),
    "softshrink": lambda x: F.softshrink(x, 0), "leaky_relu": F.leaky_relu,
    "prelu": lambda x: F.prelu(x, torch.ones(1)),
    "interpolate": lambda x: F.interpolate(x.reshape(1, 1, 3, 1), size=(3, 1)),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x.reshape(1, 1, 3, 1), (3, 1)),
    "max_pool2d": lambda x: F.max_pool2d(x.reshape(1, 1, 3, 1), 1),
    "unfold": lambda x: F.unfold(x.reshape(1, 1, 3, 1), 1), "Upsample": lambda x: nn.Upsample(scale_factor=1)(
        x.reshape(1, 1, 3, 1)),
    "ZeroPad2d": lambda x: nn.ZeroPad2d(0)(x.reshape(1, 1, 3, 1)), "normalize": lambda x: F.normalize(x, dim=0),
    "addmm": lambda x: torch.addmm(x, torch.zeros(3, 1), torch.zeros(1, 1)), "lerp": lambda x: torch.lerp(x, x, 0.5),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_results_have_memory_of_their_own(device, dtype):
    functions = {**WITHOUT_WORK, **(OF_FRACTIONS if dtype == torch.float32 else {})}
    for name, f in functions.items():
        for x in (torch.tensor([[3], [1], [2]], dtype=dtype, device=device), ):
            assert not in_memory_of(x, f(x)), name
        if dtype == torch.float32:
            x.requires_grad_()
            assert not in_memory_of(x, f(x)), name
            column = torch.tensor([[3.0, 0], [1, 0], [2, 0]])[:, :1]
            assert not in_memory_of(column, f(column)), name


def test_a_parameter_is_not_the_result_of_a_function():
    p = nn.Linear(1, 3).weight
    for name, f in {**WITHOUT_WORK, **OF_FRACTIONS}.items():
        assert not in_memory_of(p, f(p)), name


def test_gradients_have_memory_of_their_own():
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    (a + b).sum().backward()
    assert not in_memory_of(a.grad, b.grad)
    seed = torch.ones(3)
    first, second = torch.autograd.grad((a + b), [a, b], seed)
    assert not in_memory_of(first, second) and not in_memory_of(seed, first)


WRITES = {
    "copy_": lambda x, y: x.copy_(y), "fill_": lambda x, y: x.fill_(y.sum() * 0 + 1),
    "x[:] =": lambda x, y: x.__setitem__(slice(None), y),
    "x[0] =": lambda x, y: x.__setitem__(0, y[0]), "mask": lambda x, y: x.__setitem__(x == x, y),
    "add_": lambda x, y: x.add_(y), "mul_": lambda x, y: x.mul_(y), "lerp_": lambda x, y: x.lerp_(y, 1.0),
    "clamp_": lambda x, y: x.clamp_(y, y), "masked_fill_": lambda x, y: x.masked_fill_(x == x, y[0]),
    "index_add_": lambda x, y: x.index_add_(0, torch.arange(3), y),
    "scatter_": lambda x, y: x.scatter_(0, torch.arange(3), y), "addcmul_": lambda x, y: x.addcmul_(y, y),
    "/=": lambda x, y: x.__itruediv__(y), "+=": lambda x, y: x.__iadd__(y), "**=": lambda x, y: x.__ipow__(1),
    "view": lambda x, y: x.copy_(y.view(3, 1).view(3)), "expanded": lambda x, y: x.copy_(y.expand(3)),
    "same type": lambda x, y: x.copy_(y.to(y.dtype)),
}


@pytest.mark.parametrize("device", DEVICES)
def test_a_write_makes_no_alias_of_the_source(device):
    one = torch.ones(3, device=device)
    targets = {"plain": lambda: torch.zeros(3, device=device),
               "result": lambda: torch.ones(3, device=device, requires_grad=True) * 2}
    sources = {"plain": lambda: one.clone(), "leaf": lambda: one.clone().requires_grad_(),
               "result": lambda: one.clone().requires_grad_() * 1,
               "detached": lambda: one.clone().requires_grad_().detach(),
               "parameter": lambda: nn.Parameter(torch.ones(3))}
    for write_name, write in WRITES.items():
        for target_name, target in targets.items():
            for source_name, source in sources.items():
                x, y = target(), source()
                write(x, y)
                name = write_name, target_name, source_name
                assert not in_memory_of(y, x), name
                assert not in_memory_of(x, y), name


def test_a_scalar_that_fills_is_not_what_it_fills():
    x, y = torch.zeros((), requires_grad=True) * 1, torch.ones(())
    x.fill_(y)
    assert not in_memory_of(y, x)


def test_a_refused_write_leaves_no_trace():
    x = torch.zeros(3)
    w = x.expand(2, 3)
    v = w.t()
    for target in (w, v, v[0], w.reshape(2, 3)):
        for write in (lambda t: t.add_(1), lambda t: t.zero_().sub_(1), lambda t: t.__setitem__(..., 1),
                      lambda t: t.copy_(torch.ones(t.shape))):
            with pytest.raises(torch.Error):
                write(target)
            for t in (x, w, v, target):
                assert not t.any().item()
    w = torch.zeros(3).expand(2, 3)  # of a tensor that has no name
    row = w[0]
    for target in (w, w.t(), row):
        with pytest.raises(torch.Error):
            target.add_(1)
        assert not w.any().item() and not row.any().item()
    held = torch.from_numpy(np.zeros((2, 3), np.int32))  # a converted copy, which must not be written
    column = held[:, 1]
    with pytest.raises(torch.Error):
        column.add_(1)
    assert not column.any().item() and not held.any().item()
    y = torch.zeros(3)
    for refused in (lambda: y.add_(torch.ones(4)), lambda: y.__setitem__(torch.tensor([0, 9]), 1.0),
                    lambda: y.index_add_(0, torch.tensor([0, 9]), torch.ones(2)), lambda: y.copy_(torch.ones(2, 3)),
                    lambda: y.masked_fill_(torch.tensor([0, 1, 1, 1]) > 0, 1)):
        with pytest.raises((torch.Error, IndexError)):
            refused()
            y.tolist()
        assert not y.any().item()
    leaf = torch.zeros(3, requires_grad=True)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with pytest.raises(torch.Error):
        leaf.normal_()
    assert torch.equal(torch.rand(3), expected)


def run_threads(*functions, seconds=1.5):
    stop, errors = threading.Event(), []

    def repeat(f):
        try:
            while not stop.is_set():
                f()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_threads_read_views_of_what_another_one_writes():
    x = torch.rand(120, 120)
    columns, turned = x[:, ::2], x.t()
    part = columns.t()
    run_threads(lambda: x.add_(0.001), lambda: F.cosine_similarity(columns, columns), lambda: part.std(1),
                lambda: (turned + 1).sum(), lambda: part.mul_(1.0))


def test_threads_read_what_becomes_another_tensor():
    h = torch.ones(120, 120, requires_grad=True) * 1

    def write():
        nonlocal h
        h += 0.0

    def read():
        with torch.no_grad():
            F.cosine_similarity(h, h)

    run_threads(write, read, read, read)


def test_threads_read_views_of_a_parameter_that_is_trained():
    net = nn.Embedding(100, 32)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    ids = torch.arange(100)
    net(ids)
    part = net.weight[:, ::2]

    def train():
        net(ids).sum().backward()
        optimizer.step()

    def read():
        with torch.no_grad():
            F.normalize(part)

    run_threads(train, read, read)


def freed(make):
    references = [weakref.ref(x) for x in make()]
    gc.collect()
    return all(reference() is None for reference in references)


def test_models_whose_functions_refer_to_them_are_freed():
    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.factor = 2
            self.layer.weight.register_hook(lambda g: g * self.factor)

        def forward(self, x):
            return self.layer(x)

    class Activated(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(4, 1, 4, activation=self.activation)
            self.layers = nn.TransformerEncoder(layer, 2)

        def activation(self, x):
            return x

        def forward(self, x):
            return self.layers(x)

    class Predicting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x)

    class Task(torch.utils.data.Dataset):
        def __init__(self):
            self.net = nn.Linear(2, 2)
            optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            self.trainer = torch.Trainer(self.net, optimizer, self, None, batch_size=4, epochs=1, loss=self.loss,
                                         batch_transform=self.transform, schedule={"kind": "constant"},
                                         metrics=[torch.Metric("count", self.values)])

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.ones(2), 0

        def transform(self, x, y):
            return x, y

        def loss(self, y, labels):
            return F.cross_entropy(y, labels)

        def values(self, y, labels):
            return labels

    def hooked():
        net = Hooked()
        net(torch.ones(1, 2)).sum().backward()
        assert net.layer.weight.grad.tolist() == [[2, 2], [2, 2]]
        return [net, net.layer]

    def activated():
        net = Activated()
        net(torch.ones(1, 1, 4))
        return [net]

    def predicting():
        net = Predicting()
        net.predictor = torch.Predictor(net)
        net.predictor(torch.ones(1, 2))
        return [net]

    def wrapped():
        net = Predicting()
        net.__dict__["wrapper"] = nn.DataParallel(net)
        return [net, net.__dict__["wrapper"]]

    def task():
        task = Task()
        task.trainer.train()
        return [task, task.net, task.trainer]

    for make in (hooked, activated, predicting, wrapped, task):
        assert freed(make), make.__name__


def test_functions_that_only_the_library_needs_stay():
    net = nn.Sequential(nn.Linear(2, 2))
    seen = []
    net[0].weight.register_hook(lambda g: seen.append(g))
    layer = nn.TransformerEncoderLayer(4, 1, 4, activation=lambda x: x * 2, dropout=0)
    stack = nn.Sequential(layer)
    metrics = [torch.Metric("rows", lambda y, labels: labels.float())]
    del layer
    gc.collect()
    net(torch.ones(1, 2)).sum().backward()
    assert net[0].weight.grad is not None and len(seen) == 1
    stack(torch.ones(1, 1, 4))
    data = TensorDataset(torch.rand(8, 2), torch.ones(8, dtype=torch.int64))
    assert torch.evaluate(net, data, metrics)["rows"] == 1
    handle = net[0].weight.register_hook(lambda g: g * 0)
    handle.remove()
    gc.collect()
    net(torch.ones(1, 2)).sum().backward()
    assert net[0].weight.grad.abs().sum().item() > 0


def test_a_copy_of_a_model_with_functions():
    import copy

    layer = nn.TransformerEncoderLayer(4, 1, 4, activation=lambda x: x * 2, dropout=0)
    twin = copy.deepcopy(layer)
    x = torch.rand(1, 1, 4)
    expected = layer(x).tolist()
    del layer
    gc.collect()
    assert twin(x).tolist() == expected


def test_clone_keeps_the_order_in_memory():
    x = torch.arange(6).reshape(2, 3)
    c = x.t().clone()
    assert not c.is_contiguous()
    c.flatten().add_(1)
    assert c.tolist() == x.t().tolist()
    assert c.t().is_contiguous()
    c.t().flatten().add_(1)
    assert c.tolist() == (x.t() + 1).tolist()
    assert x[:, ::2].clone().is_contiguous() and x.expand(2, 2, 3).clone().is_contiguous()
    with pytest.raises(torch.Error, match="view: a type"):
        x.view(torch.float32)


def test_a_gradient_may_be_given_before_the_first_use():
    p = nn.Parameter(torch.zeros(3))
    p.grad = torch.ones(3)
    torch.optim.SGD([p], lr=1.0).step()
    assert p.tolist() == [-1, -1, -1]
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.grad = torch.ones(1, 2)
    assert layer.weight.grad.tolist() == [[1, 1]]


def test_a_write_to_a_part_of_an_expanded_view_is_refused_without_its_base_too():
    x = torch.arange(3.0)
    wide = x.view(3, 1).expand(2, 3, 1)
    del x
    row = wide[1:]
    part = row[:, :1]
    for view in (row, part):
        with pytest.raises(torch.Error, match="expand: a write"):
            view.mul_(2)
    assert wide.tolist() == [[[0], [1], [2]]] * 2


def test_views_of_a_view_that_is_gone_see_each_other():
    x = torch.arange(8.0).reshape(2, 2, 2)
    middle = x.select(2, 1)  # a copy that is written back, as its views are
    part, turned = middle[:, :1], middle.t()
    del x, middle
    turned[0:1]
    turned.fill_(5)
    assert part.tolist() == [[5], [5]]


def test_what_shares_memory_with_a_view_follows_it_when_it_is_copied():
    x = torch.zeros(4, 4)
    column = x[:, 3:]
    flat = column.squeeze()
    del x
    row = flat[None]
    del flat
    row[0]
    copy = column.contiguous()
    copy += 7
    column += 1
    assert (row.tolist(), column.flatten().tolist(), copy.flatten().tolist()) == ([[1] * 4], [1] * 4, [7] * 4)


def test_random_programs_of_views_and_writes():
    pytest.importorskip("torch", reason="PyTorch, with which the programs are compared, is not installed")
    import view_programs

    count = int(os.environ.get("LOCKSTEP_VIEW_PROGRAMS", "400"))
    assert list(view_programs.disagreements(0, count)) == []
