"""Hooks and functions of one's own in a DistributedDataParallel: what each rank gets, beside one process.

The reference is each rank's rows in this process, without a wrapper: the mean over the ranks of its gradients are those
of the model's parameters, and hooks of parameters get that mean, as they do without ranks. Everything else, such as
hooks of results and of modules, sees the rows of its own rank.
"""

import json

import numpy as np
import pytest

import lockstep as torch
import lockstep.distributed as dist
import lockstep.multiprocessing as mp
import lockstep.nn.functional as F
from lockstep import nn
from lockstep.nn.parallel import DistributedDataParallel as DDP
from lockstep.utils.data import DataLoader, TensorDataset

ROWS, WORLD = 6, 2  # of each rank


@pytest.fixture(scope="module", autouse=True)
def devices():
    torch.set_devices(3)


def plain(net):
    return net.to(torch.devices()[0])


class Bounded(torch.autograd.Function):
    """A gradient that is no linear function of its own, and depends on what forward() kept."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return (grad * (x.abs() < ctx.limit).float() * 3).clamp(-0.02, 0.02), None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        values = np.random.RandomState(3)
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 4)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.tensor(values.uniform(-1, 1, tuple(p.shape)).astype("f")))
        self.inside = None

    def forward(self, x):
        h = self.first(x)
        return self.second(torch.tanh(h if self.inside is None else self.inside(h)))


def of_parameters(net, ddp, seen):
    net.first.weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
    net.second.bias.register_hook(lambda g: seen.append(g.tolist()))


def of_results(net, ddp, seen):
    def inside(h):
        h.register_hook(lambda g: (seen.append(list(g.shape)), (g * 3).clamp(-0.02, 0.02))[1])
        return h

    net.inside = inside


def function(net, ddp, seen):
    net.inside = lambda h: Bounded.apply(h, 0.7)


def of_modules_backward(net, ddp, seen):
    def hook(module, grad_input, grad_output):
        seen.append([list(grad_input[0].shape), list(grad_output[0].shape)])
        return (grad_input[0].clamp(-0.01, 0.01),)

    net.second.register_full_backward_hook(hook)


def that_read(net, ddp, seen):
    net.second.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_output[0].tolist()))


def of_modules_before_backward(net, ddp, seen):
    net.second.register_full_backward_pre_hook(lambda module, grad: (grad[0].clamp(-0.05, 0.05) * 2,))


def of_calls(net, ddp, seen):
    net.first.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    net.first.register_forward_hook(lambda module, args, y: (seen.append(list(y.shape)), y.square())[1])


def of_the_wrapper(net, ddp, seen):
    ddp.register_forward_hook(lambda module, args, y: (seen.append(list(y.shape)), y * 2)[1])


def none(net, ddp, seen):
    pass


KINDS = [none, of_parameters, of_results, function, of_modules_backward, that_read, of_modules_before_backward,
         of_calls, of_the_wrapper]


def rows(rank):
    values = np.random.RandomState(11)
    x, y = values.uniform(-1, 1, (WORLD * ROWS, 3)).astype("f"), values.randint(0, 4, WORLD * ROWS)
    mine = slice(None) if rank is None else slice(rank * ROWS, (rank + 1) * ROWS)
    return torch.tensor(x[mine]), torch.tensor(y[mine])


def gradients(net):
    return {n: p.grad.tolist() for n, p in net.named_parameters()}


def of_own_rows(kind, rank, wrap):
    """Return the gradients of two passes, and what the hooks have seen."""
    net, seen = Net(), []
    model = wrap(net)
    kind(net, model, seen)
    x, y = rows(rank)
    x.requires_grad_()
    for _ in range(2):
        F.cross_entropy(model(x), y).backward()
    return {"gradients": gradients(net), "x": x.grad.tolist(), "seen": seen}


def of_whole_batches(kind, wrap, on):
    net = Net()
    model = wrap(net)
    kind(net, model, [])
    data = TensorDataset(*rows(None))
    for _ in range(2):
        for x, y in on(DataLoader(data, WORLD * ROWS), model):
            F.cross_entropy(model(x), y).backward()
    return gradients(net)


# The error is part of the result: it is the same on all ranks, or none has one.
def or_error(f, *args):
    try:
        return f(*args)
    except torch.Error as error:
        return {"error": str(error)}


def in_rank(rank, folder):
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=60)
    found = {}
    for kind in KINDS:
        found[kind.__name__] = or_error(of_own_rows, kind, rank, DDP)
        dist.barrier()
        wrap = lambda net: DDP(net, shards=4)  # noqa: E731
        found["whole " + kind.__name__] = or_error(of_whole_batches, kind, wrap, DataLoader.on)
        dist.barrier()
    with open(f"{folder}/{rank}", "w") as file:
        json.dump(found, file)
    dist.destroy_process_group()


def near(found, expected, where):
    np.testing.assert_allclose(np.array(found), np.array(expected), rtol=2e-4, atol=2e-6, err_msg=where)


def alone(kind):
    """Return what each rank should have, from runs in this process."""
    ranks = [of_own_rows(none if kind is of_parameters else kind, rank, plain) for rank in range(WORLD)]
    for name in ranks[0]["gradients"]:
        mean = np.mean([np.array(r["gradients"][name]) for r in ranks], 0)
        if kind is of_parameters and name == "first.weight":
            mean = mean.clip(-0.01, 0.01)
        for r in ranks:
            r["gradients"][name] = mean
    for r in ranks:
        if kind is of_parameters:
            r["seen"] = [ranks[0]["gradients"]["second.bias"]]
    return ranks


def placed(net):
    nn.DataParallel(net, [0])
    return net


@pytest.mark.parametrize("count", [1, 2])
def test_ranks_get_what_one_process_gets(count, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_DEVICES", str(count))
    mp.spawn(in_rank, args=(str(tmp_path),), nprocs=WORLD)
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(WORLD)]
    for kind in KINDS:
        for rank, expected in enumerate(alone(kind)):
            where, own = f"{kind.__name__}, rank {rank}, {count} devices", found[rank][kind.__name__]
            assert "error" not in own, where
            near(own["x"], expected["x"], where + ": x")
            near(own["seen"], expected["seen"], where + ": seen")
            for name, gradient in expected["gradients"].items():
                near(own["gradients"][name], gradient, f"{where}: {name}")
            whole = found[rank]["whole " + kind.__name__]
            if kind is that_read:  # a rank has some of the rows, and reading them is an error on all
                assert "are in other processes: gather() it, in every process" in whole["error"], where
                continue
            assert "error" not in whole, where
            for name, gradient in of_whole_batches(kind, placed, lambda data, net: data.on(net, shards=4)).items():
                near(whole[name], gradient, f"{where}, of whole batches: {name}")


def test_the_hooks_matter():
    without = of_own_rows(none, 0, plain)["gradients"]
    for kind in KINDS:
        changed = of_own_rows(kind, 0, plain)["gradients"]
        assert (changed == without) == (kind in (none, that_read)), kind.__name__
