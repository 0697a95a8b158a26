"""Gradients around DataParallel and DistributedDataParallel: of inputs, heads, layers before, losses inside.

Random programs. Each runs unwrapped in this process for the rows of every rank, which gives PyTorch's gradients: of a
wrapped model's parameters the mean over the ranks, of everything else each rank's own. Programs of one loss of all
ranks have the bits of one process. LOCKSTEP_TEST_CASES=3000 runs more of them, LOCKSTEP_TEST_SEED=7 others; a failure
names the seed of its program.
"""

import contextlib
import json
import os
import random

import numpy as np
import pytest

import lockstep as torch
import lockstep.distributed as dist
import lockstep.multiprocessing as mp
import lockstep.nn.functional as F
from lockstep import nn
from lockstep.nn.parallel import DistributedDataParallel as DDP
from lockstep.utils.data import DataLoader, TensorDataset

CASES = int(os.environ.get("LOCKSTEP_TEST_CASES", 16))
SEEDS = range(first := 1000 * int(os.environ.get("LOCKSTEP_TEST_SEED", 0)), first + CASES)
WIDTH = 3


@pytest.fixture(scope="module", autouse=True)
def devices():
    torch.set_devices(3)


class Body(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.first = values.layer(WIDTH, 7)
        self.second = values.layer(7, WIDTH)

    def forward(self, x, scale=None, y=None):
        h = torch.tanh(self.first(x))
        h = self.second(h if scale is None else h * scale)
        return h if y is None else (h, F.cross_entropy(h, y))


def plain(net):
    return net.to(torch.devices()[0])


class Values:
    """Weights and data that follow from a seed."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)

    def tensor(self, *shape):
        return torch.tensor(self.random.uniform(-1, 1, shape).astype("f"))

    def parameter(self, *shape):
        return nn.Parameter(self.tensor(*shape))

    def layer(self, inputs, outputs):
        layer = nn.Linear(inputs, outputs)
        with torch.no_grad():
            layer.weight.copy_(self.tensor(outputs, inputs))
            layer.bias.copy_(self.tensor(outputs))
        return layer


def run_program(seed, rank, wrap, no_sync=None, rows=None):
    """Run the program of `seed` for the rows of `rank`, or for all `rows`. Return the gradients by name."""
    draw, values = random.Random(seed), Values(seed)
    a, b = Body(values), Body(values)
    outer, head = (values.layer(WIDTH, WIDTH).to(torch.devices()[0]) for _ in range(2))
    centers = values.parameter(WIDTH, WIDTH)
    scale, temperature = values.parameter(7), values.parameter()
    named = {f"{name} {n}": p for name, m in (("a", a), ("b", b), ("outer", outer), ("head", head))
             for n, p in m.named_parameters()}
    named.update(centers=centers, scale=scale, temperature=temperature)
    before, after = draw.choice(["", "outer", "scale"]), draw.choice(["", "head", "temperature", "tied", "detached"])
    two, twice, inside = (draw.random() < p for p in (0.4, 0.2, 0.3))
    scaled, own_scale = draw.random() < 0.4, draw.random() < 0.5
    terms = [term for term in ("centers", "penalty", "own penalty", "outer penalty", "norm") if draw.random() < 0.3]
    how, passes, hooks = draw.choice(["backward", "backward", "grad"]), draw.choice([1, 1, 2]), draw.random() < 0.3
    count = draw.choice([3, 4, 5])
    wrapped_a, wrapped_b = wrap(a), wrap(b)
    if hooks:
        a.first.weight.register_hook(lambda g: g * 2)
        head.weight.register_hook(lambda g: g * 3)
    found = {}
    for number in range(passes):
        data = np.random.RandomState(seed + 7919 * number)
        ranks = 4 if rows is None else rows
        xs, ys = data.uniform(-1, 1, (ranks * count, WIDTH)).astype("f"), data.randint(0, WIDTH, ranks * count)
        mine = slice(rank * count, (rank + 1) * count) if rows is None else slice(0, rows * count)
        x, y = torch.tensor(xs[mine]).requires_grad_(), torch.tensor(ys[mine])
        h = outer(x) if before == "outer" else x * temperature if before == "scale" else x
        # DataParallel cuts every input, and losses of shards are not gathered.
        more = [scale if own_scale else scale.detach()] if scaled and rows is None else []
        loss = 0
        if inside and rows is None:
            f, loss = wrapped_a(h, more[0] if more else torch.ones(7), y)
        else:
            f = wrapped_a(h, *more)
        if twice:
            f = f + wrapped_a(h * 0.5, *more)
        if two:
            f = wrapped_b(f)
        if after == "head":
            f = head(f)
        elif after == "temperature":
            f = f * temperature
        elif after == "tied":
            f = F.linear(f, a.first.weight)
        elif after == "detached":
            f = f + head(f.detach())
        loss = loss + F.cross_entropy(f[:, :WIDTH], y)
        if "centers" in terms:
            loss = loss + (f[:, :WIDTH] - centers[y]).square().mean()
        if "penalty" in terms:
            loss = loss + 0.1 * a.first.weight.square().sum()
        if "own penalty" in terms:
            loss = loss + 0.1 * (rank + 1) * a.second.weight.square().sum()
        if "outer penalty" in terms:
            loss = loss + 0.1 * (rank + 1) * head.weight.square().sum()
        if "norm" in terms:
            loss = loss + f.square().mean()
        if how == "grad":
            wanted = {"x": x, "a first.weight": a.first.weight, "a second.bias": a.second.bias}
            found.update({f"{n} {number}": g for n, g in zip(wanted, torch.autograd.grad(loss, list(wanted.values())))})
            continue
        with contextlib.ExitStack() as stack:
            if no_sync and number + 1 < passes:
                for model in {wrapped_a, wrapped_b} if two else {wrapped_a}:
                    stack.enter_context(no_sync(model))
            loss.backward()
        found[f"x {number}"] = x.grad
    if how == "backward":
        found.update({n: p.grad for n, p in named.items()})
    return how, {n: None if g is None else g.tolist() for n, g in found.items()}


def run_job_program(seed, wrap, on):
    """Run the program of `seed` whose loss is that of all ranks. Return the gradients of its models by name."""
    draw, values = random.Random(seed), Values(seed)
    a, b = Body(values), Body(values)
    wrapped_a, wrapped_b = wrap(a), wrap(b)
    count, two, twice, inside = draw.choice([5, 6, 11]), *(draw.random() < p for p in (0.4, 0.2, 0.3))
    terms = [term for term in ("penalty", "norm", "tied") if draw.random() < 0.3]
    rows = DataLoader(TensorDataset(values.tensor(count, WIDTH), torch.arange(count) % WIDTH), count)
    for x, y in on(rows, wrapped_a):
        f, loss = wrapped_a(x, None, y) if inside else (wrapped_a(x), 0)
        if twice:
            f = f + wrapped_a(x * 0.5)
        if two:
            f = wrapped_b(f)
        if "tied" in terms:
            f = F.linear(f, a.first.weight)[:, :WIDTH]
        loss = loss + F.cross_entropy(f, y)
        if "penalty" in terms:
            loss = loss + 0.1 * a.second.weight.square().sum()
        if "norm" in terms:
            loss = loss + f.square().mean()
        loss.backward()
    named = [*a.named_parameters(), *(b.named_parameters() if two else ())]
    return [(n, None if p.grad is None else p.grad.tolist()) for n, p in named]


def in_rank(rank, world, folder):
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=60)
    shards = random.Random(world)
    results = {}
    for seed in SEEDS:
        wrap = lambda net: DDP(net, shards=shards.choice([0, world * len(torch.devices()), 12]))  # noqa: E731
        results[seed] = run_program(seed, rank, wrap, lambda model: model.no_sync())[1]
        results[f"job {seed}"] = run_job_program(seed, lambda net: DDP(net, shards=6), DataLoader.on)
    with open(f"{folder}/{rank}", "w") as file:
        json.dump(results, file)
    dist.destroy_process_group()


def check_equal(found, expected, where):
    assert found.keys() == expected.keys(), where
    for name in found:
        assert (found[name] is None) == (expected[name] is None), f"{where}: {name} is {found[name]}"
        if found[name] is not None:
            np.testing.assert_allclose(found[name], expected[name], rtol=2e-4, atol=2e-5, err_msg=f"{where}: {name}")


def mean(values):
    return None if values[0] is None else np.mean(np.array(values), 0).tolist()


def alone_on(count, seed):
    """Return the gradients of the job's program in this process."""
    def placed(net):
        nn.DataParallel(net, range(count))
        return net

    return run_job_program(seed, placed, lambda loader, net: loader.on(net, shards=6))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_programs_of_ranks(world, count, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_DEVICES", str(count))
    mp.spawn(in_rank, args=(world, str(tmp_path)), nprocs=world)
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(world)]
    for seed in SEEDS:
        alone = [run_program(seed, rank, plain) for rank in range(world)]
        for rank, (how, own) in enumerate(alone):
            summed = {n for n in own if how == "backward" and n[:2] in ("a ", "b ")}
            expected = {n: mean([g[n] for _, g in alone]) if n in summed else own[n] for n in own}
            where = f"seed {seed}, rank {rank} of {world}, {count} devices"
            check_equal(found[rank][str(seed)], expected, where)
            assert found[rank][f"job {seed}"] == [list(g) for g in alone_on(1, seed)], where


@pytest.mark.parametrize("count", [1, 2, 3])
def test_programs_of_devices(count):
    draw = random.Random(count)
    for seed in SEEDS:
        wrap = lambda net: nn.DataParallel(net, range(count), shards=draw.choice([0, 4]))  # noqa: E731
        _, found = run_program(seed, 0, wrap, None, 3)
        _, expected = run_program(seed, 0, plain, None, 3)
        check_equal(found, expected, f"seed {seed}, {count} devices")
        assert alone_on(count, seed) == alone_on(1, seed), f"seed {seed}, {count} devices"
