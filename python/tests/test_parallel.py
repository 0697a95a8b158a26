"""Several devices and several processes: DataParallel, loader.on, DistributedDataParallel, spawn, collectives."""

import copy
import os
import re
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import lockstep as torch
import lockstep.distributed as dist
import lockstep.multiprocessing as mp
import lockstep.nn.functional as F
from lockstep import nn
from lockstep.nn.parallel import DistributedDataParallel as DDP
from lockstep.utils.data import DataLoader, DistributedSampler, TensorDataset


@pytest.fixture(scope="module", autouse=True)
def devices():
    torch.set_devices(3)


def data(n=48):
    x = torch.arange(float(n * 3)).reshape(n, 3) % 7 - 3
    return TensorDataset(x, (torch.arange(n) * 5) % 4)


def make_net():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4))
    for layer in (net[0], net[2]):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return net


def train(net, batches, epochs=2, call=None):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for x, y in batches():
            optimizer.zero_grad()
            F.cross_entropy((call or net)(x), y).backward()
            optimizer.step()
    return torch.weights_sha256(net)


# Two epochs of batches of 16, in eight shards, on the devices of this process.
def trained_alone(count=1, parallel=False):
    net = make_net()
    wrapped = nn.DataParallel(net, device_ids=range(count), shards=8)
    loader = DataLoader(data(), 16, shuffle=True)
    return train(net, lambda: loader, call=wrapped) if parallel else train(net, lambda: loader.on(net, shards=8))


@pytest.mark.parametrize("count", [2, 3])
def test_an_assigned_buffer_is_on_all_devices_of_its_module(count):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.zeros(2))

        def forward(self, x):
            return x + self.shift

    net = Shifted()
    wrapped = nn.DataParallel(net, device_ids=range(count))
    old, state = net.shift, net.state_dict()
    assert wrapped(torch.ones(12, 2)).tolist() == [[1, 1]] * 12
    devices = net._devices()
    net.shift = net.shift + 1
    assert old.tolist() == state["shift"].tolist() == [0, 0] and net.shift.tolist() == [1, 1]
    assert net._devices() == devices and len(devices) == count
    net.shift = torch.tensor([4.0, 5.0])
    assert wrapped(torch.ones(12, 2)).tolist() == [[5, 6]] * 12


def test_an_assigned_buffer_stays_on_its_device():
    net = nn.Module()
    net.register_buffer("h", torch.zeros(2))
    net.to("cpu:1")
    device = net.h.device
    net.h = torch.ones(2)
    assert net.h.device == device != torch.devices()[0] and net.h.tolist() == [1, 1]
    net.to("cpu:2")
    assert net.h.device == torch.devices()[2]


# As PyTorch's tutorials choose one; current_accelerator() is None without GPUs.
def test_default_backend():
    assert dist.get_default_backend_for_device(torch.accelerator.current_accelerator()) == "gloo"
    assert dist.get_default_backend_for_device(torch.devices()[1]) == "gloo"
    assert dist.get_default_backend_for_device("cuda:1") == "nccl"


def test_bits_do_not_depend_on_devices():
    assert len({trained_alone(count, parallel) for count in (1, 2, 3) for parallel in (False, True)}) == 1


def test_data_parallel():
    seen = []

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 2)

        def forward(self, x, scale=1, mask=None):
            seen.append(x.size(0))
            y = self.fc(x) * scale
            return {"y": y, "more": (x, mask)}

    net = Model()
    model = nn.DataParallel(net)
    assert repr(model).startswith("DataParallel(\n  (module): Model(\n    (fc): Linear(")
    assert [name for name, _ in model.named_parameters()] == ["fc.weight", "fc.bias"] and model.module is net
    assert model.to(torch.devices()[0]) is model
    with pytest.raises(ValueError, match="expected the first"):
        model.to(torch.devices()[1])
    x = torch.randn(10, 5)
    out = model(x, scale=2, mask=torch.arange(10))
    assert seen == [4, 4, 2] and out["y"].shape == (10, 2) and out["more"][1].tolist() == list(range(10))
    assert out["y"].device == torch.devices()[0] and out["more"][0].tolist() == x.tolist()
    out["y"].sum().backward()
    # Of a row of ones, with the scale.
    assert torch.allclose(net.fc.weight.grad.cpu(), (2 * x.sum(0)).expand(2, 5), atol=1e-5)
    model.eval()
    assert not net.training
    with pytest.raises(ValueError, match="dim is 1"):
        nn.DataParallel(net, dim=1)
    with pytest.raises(ValueError, match="expected one of the program's 3"):
        nn.DataParallel(net, device_ids=[3])


def test_a_copy_of_a_wrapper():
    class Tagged(nn.DataParallel):
        def __init__(self, module):
            super().__init__(module, device_ids=[0, 1])
            self._set("tag", ["a"])

    x = torch.rand(4, 2)
    for model in (nn.DataParallel(nn.Linear(2, 2)), Tagged(nn.Linear(2, 2))):
        other = copy.deepcopy(model.eval())
        assert type(other) is type(model) and not other.training and other.module is not model.module
        assert other.device_ids == model.device_ids and repr(other) == repr(model)
        assert torch.equal(other(x), model(x))
        with torch.no_grad():
            other.module.weight.zero_()
        assert not torch.equal(other(x), model(x))
    assert other.tag == ["a"] and other.tag is not model.tag
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    assert torch.equal(average(x), model(x))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.scale = nn.DataParallel(nn.Linear(2, 2)), nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.body(x) * self.scale

    outer = Outer()
    outer(x).sum().backward()
    assert outer.body.module.weight.grad is not None and outer.scale.grad is not None


def test_wrapped_models_elsewhere(tmp_path):
    model = nn.DataParallel(nn.Linear(3, 4))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for use in (lambda: torch.Trainer(model, sgd, data()), lambda: torch.evaluate(model, data()),
                lambda: torch.find_learning_rate(model, sgd, data()),
                lambda: torch.export_onnx(tmp_path / "x", model, torch.ones(1, 3))):
        with pytest.raises(torch.Error, match="wrapped by DataParallel, expected the model itself: model.module"):
            use()
    with pytest.raises(torch.Error, match="not to its DataParallel"):
        for x, _ in DataLoader(data(), 16).on(model, shards=3):
            model(x)
    batch = nn.Parameter(torch.ones(4, 3))
    model(batch).sum().backward()
    assert torch.allclose(batch.grad.cpu(), model.module.weight.detach().cpu().sum(0).expand(4, 3))


def test_default_shards_of_a_loop():
    loader = DataLoader(data(), 32, shuffle=True)
    net = nn.Linear(3, 4).to(torch.devices()[0])
    batches = loader.on(net)
    assert len(batches) == 2 and [len(x) for x, _ in batches] == [32, 16] and len(list(batches)) == 2
    hashes = set()
    for count in (1, 2, 3):
        net = make_net()
        nn.DataParallel(net, range(count))  # places it
        hashes.add(train(net, lambda: DataLoader(data(), 32).on(net)))
    assert len(hashes) == 1


def test_tensors_show_which_device():
    x = torch.ones(2)
    assert repr(x) == "tensor([1., 1.])"
    assert repr(x.to(torch.devices()[1])) == "tensor([1., 1.], device='cpu:1')"
    assert "device" not in repr(next(iter(DataLoader(data(), 16).on(nn.Linear(3, 4), shards=3)))[0])


def test_numpy_of_replicas_cannot_be_written():
    net = nn.Linear(2, 1, bias=False)
    array = net.weight.data.numpy()
    for one in (array, np.asarray(net.weight.data), net.weight.data[0].numpy(),
                net.state_dict()["weight"].view(-1).numpy()):
        with pytest.raises(ValueError, match="read-only"):
            one.fill(9)
    before = array.tolist()
    with torch.no_grad():
        net.weight.fill_(3.0)
    assert array.tolist() == before and net.weight.data.numpy().tolist() == [[3, 3]]


def test_per_shard_gives_whole_tensors():
    net = nn.Linear(3, 2)
    for x, y in DataLoader(data(), 16).on(net, shards=4):
        with pytest.raises(torch.Error):
            x[0]
        first, labels = torch.per_shard(lambda a, b: (a - a[0], b), x, y)
        assert first.shape == (16, 3) and torch.gather(first)[4].tolist() == [0, 0, 0]
        assert torch.gather(torch.per_shard(lambda b: b + 1, labels)).tolist() == (torch.gather(y) + 1).tolist()


def in_rank(rank, world_size, results):
    dist.init_process_group("gloo", rank=rank, world_size=world_size, timeout=20)
    check_copies(rank)
    check_buffers(rank)
    check_lost_wrapper()
    assert dist.is_initialized() and (dist.get_rank(), dist.get_world_size()) == (rank, world_size)
    check_collectives(rank)
    # As a program for PyTorch: this rank's examples, its own loss.
    net = make_net()
    ddp = DDP(net, shards=8)
    assert ddp.module is net and [n for n, _ in ddp.named_parameters()][0] == "0.weight"
    loader = DataLoader(data(), 8, sampler=DistributedSampler(data(), seed=0))

    def batches():
        loader.sampler.set_epoch(batches.epoch)
        batches.epoch += 1
        return loader

    batches.epoch = 0
    hashes = [train(ddp, batches)]
    # As a program of this library.
    net = make_net()
    ddp = DDP(net, shards=8)
    whole = DataLoader(data(), 16, shuffle=True)
    hashes.append(train(ddp, lambda: whole.on(ddp)))
    hashes += check_average(rank)
    with open(results + str(rank), "w") as file:
        file.write("\n".join(hashes))
    dist.destroy_process_group()
    assert not dist.is_initialized()


# A copy only evaluates on one rank, or trains on all of them.
def check_copies(rank):
    ddp = DDP(nn.Linear(2, 1, bias=False))
    x = torch.ones(2, 2) * (rank + 1)
    if rank == 0:
        with torch.no_grad():
            assert torch.equal(copy.deepcopy(ddp).eval()(x), ddp.eval()(x))
    other = copy.deepcopy(ddp).train()
    other(x).sum().backward()
    assert other.module.weight.grad.tolist() == [[3, 3]] and ddp.module.weight.grad is None


# Batch norm's statistics are of all ranks' rows; other buffers become rank 0's.
def check_buffers(rank):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(1)
            self.register_buffer("total", torch.zeros(1))
            self.register_buffer("mask", torch.ones(3))

        def forward(self, x):
            assert x.shape == (2, 1)
            self.total += x.detach().sum()
            return self.norm(x)

    net = Counting()
    ddp = DDP(net)
    for step in (1, 2):
        ddp(torch.tensor([[0.0], [1.0]]) * (rank + 1) + rank)
        assert net.total.tolist() == [step] and net.mask.tolist() == [1, 1, 1]
    assert abs(net.norm.running_mean.item() - 0.19 * (0.5 + 2) / 2) < 1e-6


def check_lost_wrapper():
    net = nn.Linear(2, 1)
    loss = DDP(net)(torch.ones(2, 2)).sum()
    with pytest.raises(torch.Error, match="DistributedDataParallel that cut a batch of this loss is gone"):
        loss.backward()
    assert net.weight.grad is None


def check_collectives(rank):
    x = torch.tensor([1.0 + rank, 2.0])
    dist.all_reduce(x)
    assert x.tolist() == [3, 4]
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    assert x.tolist() == [3, 4]
    dist.all_reduce(y := torch.tensor(rank), dist.ReduceOp.MAX)
    assert y.item() == 1
    with pytest.raises(TypeError, match="the mean of torch.int64"):
        dist.all_reduce(y, op=dist.ReduceOp.AVG)
    assert y.item() == 1
    dist.broadcast(z := torch.tensor([5 * rank]), src=1)
    assert z.tolist() == [5]
    every = [torch.zeros(1), torch.zeros(1)]
    dist.all_gather(every, torch.tensor([float(rank)]))
    assert [e.item() for e in every] == [0, 1]
    if rank == 0:
        dist.send(torch.tensor([7.0]), 1)
    else:
        dist.recv(w := torch.zeros(1), 0)
        assert w.item() == 7
    # Views that are copies here reach what they are views of.
    base = torch.full((2, 3), float(rank))
    dist.all_reduce(base[:, 0])
    dist.broadcast(base[:, 1], src=1)
    dist.send(base[:, 0], 1) if rank == 0 else dist.recv(base[:, 2], 0)
    assert base.tolist() == [[1, 1, rank]] * 2
    dist.barrier()
    # Composed of these.
    dist.all_reduce(p := torch.tensor([2.0, 3.0 + rank]), dist.ReduceOp.PRODUCT)
    assert p.tolist() == [4, 12]
    pair = [torch.tensor([1.0 + rank]), torch.tensor([10.0 * rank])]
    dist.reduce_scatter(s := torch.zeros(1), pair)
    dist.reduce_scatter_tensor(t := torch.zeros(1), torch.cat(pair), dist.ReduceOp.MAX)
    assert (s.item(), t.item()) == ((3, 2) if rank == 0 else (10, 10))
    dist.scatter(s, pair if rank == 1 else None, src=1)
    assert s.item() == [2, 10][rank]
    dist.all_to_all(every, pair)
    assert [e.item() for e in every] == ([1, 2] if rank == 0 else [0, 10])
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * 100 * rank})
    assert objects == [{"rank": 0, "text": ""}, {"rank": 1, "text": "x" * 100}]
    some = ["a", 1] if rank == 1 else [None, None]
    dist.broadcast_object_list(some, src=1)
    dist.scatter_object_list(one := [None], ["left", "right"] if rank == 0 else None)
    assert some == ["a", 1] and one == [["left", "right"][rank]]
    assert dist.get_rank(dist.new_group([0, 1])) == rank
    with pytest.raises(torch.Error, match="new_group: ranks"):
        dist.new_group([1])


# The gradient is the mean of the ranks' gradients, also over no_sync(); a rank with more rows is an error.
def check_average(rank):
    net = nn.Linear(2, 1, bias=False)
    ddp = DDP(net)
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * (rank + 1)
    loss = ddp(rows).sum()
    loss.backward()
    assert net.weight.grad.tolist() == [[(4 + 8) / 2, (6 + 12) / 2]]
    assert torch.allclose(loss.detach().cpu(), (rows @ net.weight.detach().cpu().t()).sum())
    with ddp.no_sync():
        ddp(rows).sum().backward()
    ddp(rows).sum().backward()
    assert net.weight.grad.tolist() == [[18, 27]]
    ddp.zero_grad(set_to_none=False)
    assert net.weight.grad.tolist() == [[0, 0]]
    with ddp.no_sync():
        ddp(rows).sum().backward()
    torch.optim.SGD(ddp.parameters()).zero_grad(set_to_none=False)
    ddp(rows).sum().backward()
    assert net.weight.grad.tolist() == [[6, 9]]
    with pytest.raises(torch.Error, match="rank 0 has 2 rows of this batch, rank 1 has 1"):
        ddp(rows[: 2 - rank])
    ddp.eval()
    with torch.no_grad():
        if rank == 0:  # alone
            assert ddp(rows[:1]).shape == (1, 1)
    return []


def test_ranks_have_the_bits_of_one_process(tmp_path):
    mp.spawn(in_rank, args=(2, str(tmp_path / "hash")), nprocs=2)
    hashes = (tmp_path / "hash0").read_text().split() + (tmp_path / "hash1").read_text().split()
    assert hashes == [trained_alone()] * 4


def failing(rank, how):
    dist.init_process_group("gloo", timeout=20)
    if rank == 1 and how == "raise":
        raise ValueError("the second rank")
    if rank == 1:
        sys.exit(3)
    try:
        dist.barrier()
    except dist.RankLost as error:
        assert "rank 1" in str(error)
        raise


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_failure_of_a_rank_is_raised(how):
    expected = mp.ProcessRaisedException if how == "raise" else mp.ProcessExitedException
    with pytest.raises(expected, match="ValueError: the second rank" if how == "raise" else "exit code 3") as found:
        mp.spawn(failing, args=(how,), nprocs=2)
    assert found.value.error_index == 1


def leaving(rank):
    dist.init_process_group("gloo", timeout=20)
    try:
        if rank == 1:
            raise ValueError("in the middle")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def test_an_exception_does_not_wait_for_the_others():
    with pytest.raises(mp.ProcessRaisedException, match="ValueError: in the middle"):
        mp.spawn(leaving, nprocs=2)


def closing(rank, how):
    dist.init_process_group("gloo", timeout=20)
    if rank == 0:
        {"barrier": dist.barrier, "all_reduce": lambda: dist.all_reduce(torch.ones(1)),
         "recv": lambda: dist.recv(torch.ones(1), 1)}[how]()
    dist.destroy_process_group()


@pytest.mark.parametrize("how", ["barrier", "all_reduce", "recv"])
def test_closing_beside_a_collective_is_an_error_on_both(how):
    with pytest.raises(mp.ProcessRaisedException, match="closing the group"):
        mp.spawn(closing, args=(how,), nprocs=2)


# A message on its way is received, although its sender closes meanwhile.
def sending(rank):
    dist.init_process_group("gloo", timeout=20)
    if rank == 1:
        dist.send(torch.arange(5.0), 0)
    else:
        time.sleep(0.5)
        dist.recv(x := torch.zeros(5), 1)
        assert x.tolist() == [0, 1, 2, 3, 4]
    dist.destroy_process_group()


def test_closing_behind_a_message():
    mp.spawn(sending, nprocs=2)


# Every one of them unpickles. MPI's processes prove nothing to each other.
def test_objects_need_ranks_that_proved_who_they_are(monkeypatch):
    class MpiJob:
        backend, rank, world_size = "mpi", 0, 2

    monkeypatch.setattr(dist, "_job", MpiJob())
    for name, call in {"all_gather_object": lambda: dist.all_gather_object([None, None], 1),
                       "gather_object": lambda: dist.gather_object(1, [None, None]),
                       "broadcast_object_list": lambda: dist.broadcast_object_list([1]),
                       "scatter_object_list": lambda: dist.scatter_object_list([None], [1, 2])}.items():
        with pytest.raises(torch.Error, match=f"{name}: unpickling an object runs code that its sender chose.*'gloo'"):
            call()
        assert "runs code" in re.sub(r"\s+", " ", getattr(dist, name).__doc__.lower())
    unpickling = [line for line in open(dist.__file__).read().splitlines() if "pickle.loads" in line]
    assert len(unpickling) == 2, "a new one belongs into this test"


JOB = """
import sys
import lockstep.distributed as dist
dist.init_process_group("gloo", rank=int(sys.argv[1]), world_size=2, timeout=20)
every = [None, None]
dist.all_gather_object(every, f"of rank {sys.argv[1]}")
dist.destroy_process_group()
print(every)
"""


def ranks_of(users, port):
    environment = {n: v for n, v in os.environ.items() if not n.startswith("LOCKSTEP_SECRET")}
    environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PYTHONDONTWRITEBYTECODE="1")
    ranks = [subprocess.Popen([sys.executable, "-c", JOB, str(rank)], env=environment, user=user, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank, user in enumerate(users)]
    if users[0] != users[1]:  # rank 0 waits for one that is not to come
        ranks[1].wait()
        ranks[0].terminate()
    return [(rank.returncode, *said) for rank in ranks for said in [rank.communicate()]]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_ranks_of_one_user_need_no_secret():
    for status, out, err in ranks_of([os.geteuid()] * 2, free_port()):
        assert (status, out) == (0, "['of rank 0', 'of rank 1']\n"), err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_ranks_of_two_users_need_a_secret():
    nobody = 65534
    if subprocess.run([sys.executable, "-c", "import lockstep"], user=nobody, capture_output=True).returncode != 0:
        pytest.skip("nobody cannot read this build")
    (_, out, _), (status, _, err) = ranks_of([0, nobody], free_port())
    assert status != 0 and "belongs to a process of user 0, this process to user 65534" in err
    assert "set LOCKSTEP_SECRET, or LOCKSTEP_SECRET_FILE, to the same random text for all ranks" in err
    assert out == "", "rank 0 unpickled something"


def norms(rank):
    dist.init_process_group("gloo", timeout=20)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    trainer = torch.Trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), data(33), batch_size=16, epochs=1,
                            shards=2)
    steps = []
    trainer.on_step = steps.append
    try:
        trainer.train()
    except torch.Error as error:
        assert "the last batch of an epoch has 1 sample, so batch norm 1 would have 1 value per channel" in str(error)
    else:
        raise AssertionError("no error")
    assert steps == []


def test_what_sizes_tell_is_an_error_on_all_ranks():
    mp.spawn(norms, nprocs=2)


def test_a_rank_does_not_train_alone(monkeypatch):
    for name in dist._LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="RANK expected, but not set"):
        dist.init_process_group("gloo")


def test_results_of_shards_that_are_no_tensors():
    class Sums(torch.nn.Module):
        def forward(self, x):
            return x, x.sum().item()

    with pytest.raises(TypeError, match="expected equal results but for tensors"):
        torch.nn.DataParallel(Sums())(torch.arange(12.0))


def hanging(rank):
    if rank == 0:
        raise ValueError("at once")
    time.sleep(100)


def test_others_are_ended(monkeypatch):
    monkeypatch.setattr(mp, "_GRACE_SECONDS", 0.1)
    spawned = mp.spawn(hanging, nprocs=2, join=False)
    assert len(spawned.pids()) == 2
    with pytest.raises(mp.ProcessRaisedException, match="at once"):
        while not spawned.join(timeout=30):
            pass
    assert not any(p.is_alive() for p in spawned.processes)


def test_refused():
    with pytest.raises(RuntimeError, match="has not been initialized"):
        dist.get_rank()
    with pytest.raises(RuntimeError, match="has not been initialized"):
        DDP(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="fork"):
        mp.spawn(print, nprocs=2, start_method="fork")
    with pytest.raises(ValueError, match=r"nprocs is 0.*len\(torch.devices\(\)\) all devices"):
        mp.spawn(print, nprocs=0)
    with pytest.raises(ValueError, match="tcp://"):
        dist.init_process_group("gloo", init_method="file:///tmp/x", rank=0, world_size=1)


TOOL = os.environ.get("LOCKSTEP_TOOL", "")


@pytest.mark.skipif(not os.path.exists(TOOL), reason="LOCKSTEP_TOOL names no program")
@pytest.mark.skipif(not os.path.isdir("/usr/share/datasets/fashion-mnist"), reason="Fashion-MNIST is missing")
def test_one_hash(tmp_path):
    """Three epochs of LeNet end with one hash: in the tool, in C++, in Python on 1 to 3 devices, in two ranks."""
    program = os.path.join(os.path.dirname(__file__), "..", "examples", "lenet.py")
    log = tmp_path / "log.jsonl"
    subprocess.run([TOOL, "train", "--model", "lenet", "--epochs", "3", "--limit-train", "512", "--limit-test", "16",
                    "--batch-size", "128", "--log", str(log)], check=True, capture_output=True)
    expected = log.read_text().split('"weights_sha256":"')[-1].split('"')[0]

    def run(*command, **variables):
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return re.findall("[0-9a-f]{64}", done.stdout)  # lines of two processes may mix

    assert run(os.environ["LOCKSTEP_LENET"], "3", "512", LOCKSTEP_DEVICES="2") == [expected]
    python = [sys.executable, program, "3", "512"]
    for count in "123":
        assert run(*python, LOCKSTEP_DEVICES=count) == [expected]
    assert run(*python, "spawn", LOCKSTEP_DEVICES="2") == [expected] * 2
    assert run(TOOL, "launch", "-n", "2", "--", *python) == [expected] * 2


def test_scatter_and_gather():
    devices = torch.devices()[:2] if len(torch.devices()) > 1 else [torch.devices()[0]] * 2
    x = torch.arange(10.0).reshape(5, 2).requires_grad_()
    parts = nn.parallel.scatter(x, devices)
    assert isinstance(parts, tuple) and [p.tolist() for p in parts] == [x[:3].tolist(), x[3:].tolist()]
    joined = nn.parallel.gather([p * (i + 1) for i, p in enumerate(parts)], "cpu")
    joined.sum().backward()
    assert joined.device.type == "cpu" and x.grad.tolist() == [[1, 1]] * 3 + [[2, 2]] * 2
    batch = {"x": torch.ones(4, 1), "rest": (torch.arange(4), [torch.zeros(4), "name"])}
    first, second = nn.parallel.scatter(batch, devices)
    assert second["rest"][0].tolist() == [2, 3] and first["rest"][1][1] == "name" and first["x"].shape == (2, 1)
    assert second["rest"][0].device == torch.ones(1).to(devices[1]).device
    again = nn.parallel.gather([{"x": p["x"], "n": None} for p in (first, second)], devices[0])
    assert again["x"].shape == (4, 1) and again["n"] is None
    assert nn.parallel.gather([torch.tensor(1.0), torch.tensor(2.0)], devices[0]).tolist() == [1, 2]
    assert nn.parallel.scatter(torch.ones(2, 4), [0, 0], dim=1)[1].shape == (2, 2)
    assert len(nn.parallel.scatter(torch.ones(1, 4), devices)) == 1
