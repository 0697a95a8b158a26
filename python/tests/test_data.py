"""lockstep.utils.data: data sets, orders, collate, workers."""

import collections
import random

import pytest

import lockstep as torch
from lockstep.utils.data import (BatchSampler, ConcatDataset, DataLoader, Dataset, DistributedSampler, IterableDataset,
                                 RandomSampler, SequentialSampler, Subset, SubsetRandomSampler, TensorDataset,
                                 WeightedRandomSampler, default_collate, get_worker_info, random_split)


class Squares(Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return torch.tensor([float(i)]), i * i


def values(loader):
    return [batch[0].flatten().tolist() for batch in loader]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches(workers):
    loader = DataLoader(Squares(), batch_size=4, num_workers=workers)
    x, y = next(iter(loader))
    assert x.shape == (4, 1) and x.dtype == torch.float32
    assert y.tolist() == [0, 1, 4, 9] and y.dtype == torch.int64
    assert values(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and len(loader) == 3
    loader = DataLoader(Squares(), 4, drop_last=True, num_workers=workers)
    assert len(values(loader)) == len(loader) == 2


def test_order_follows_from_seed_and_epoch():
    loader = DataLoader(Squares(), 10, shuffle=True)
    first, second = values(loader), values(loader)
    assert first != second and sorted(first[0]) == list(range(10))
    torch.manual_seed(0)
    # The same in C++ threads, and with workers.
    tensors = TensorDataset(torch.arange(10.0), torch.arange(10))
    other = DataLoader(tensors, 10, shuffle=True)
    assert [values(other), values(other)] == [first, second]
    other.set_epoch(1)
    assert values(other) == second
    assert values(DataLoader(Squares(), 10, shuffle=True, num_workers=2)) == first
    generator = torch.Generator().manual_seed(3)
    assert values(DataLoader(Squares(), 10, shuffle=True, generator=generator)) != first
    torch.manual_seed(1)
    assert values(DataLoader(Squares(), 10, shuffle=True)) != first


def test_collate_as_pytorch():
    numpy = pytest.importorskip("numpy")
    Point = collections.namedtuple("Point", "x y")
    batch = default_collate([{"a": 1, "b": (2.5, "x"), "c": numpy.ones(2, numpy.float32), "d": Point(1, True)}] * 3)
    assert batch["a"].tolist() == [1, 1, 1] and batch["a"].dtype == torch.int64
    assert batch["b"][0].dtype == torch.float64 and batch["b"][1] == ("x", "x", "x")
    assert batch["c"].shape == (3, 2) and batch["c"].dtype == torch.float32
    assert isinstance(batch["d"], Point) and batch["d"].x.shape == (3,)
    with pytest.raises(TypeError, match="found <class 'object'>"):
        default_collate([object()])
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([(1, 2), (1,)])
    loader = DataLoader(Squares(), 3, collate_fn=lambda items: [y for _, y in items])
    assert list(loader)[0] == [0, 1, 4]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_comes_out_in_the_loop(workers):
    class Broken(Squares):
        def __getitem__(self, i):
            if i == 5:
                raise KeyError("five")
            return i

    seen = []
    with pytest.raises(KeyError, match="five"):
        for batch in DataLoader(Broken(), 2, num_workers=workers):
            seen.append(batch.tolist())
    assert seen == [[0, 1], [2, 3]]


def test_workers_must_not_draw():
    class Noise(Squares):
        def __getitem__(self, i):
            return torch.randn(2)

    assert next(iter(DataLoader(Noise(), 2))).shape == (2, 2)
    with pytest.raises(torch.Error, match="order of draws"):
        next(iter(DataLoader(Noise(), 2, num_workers=1)))


def test_iterable_and_batch_sampler():
    class Numbers(IterableDataset):
        def __iter__(self):
            return iter(range(5))

    for workers in (0, 1):
        assert [b.tolist() for b in DataLoader(Numbers(), 2, num_workers=workers)] == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError, match="own order"):
        DataLoader(Numbers(), 2, shuffle=True)
    batches = BatchSampler(SequentialSampler(range(7)), 3, drop_last=False)
    assert [y.tolist() for _, y in DataLoader(Squares(), batch_sampler=batches)][2] == [36]
    assert [int(y) for _, y in DataLoader(Squares(3), batch_size=None)] == [0, 1, 4]


def test_samplers():
    assert sorted(RandomSampler(range(5))) == [0, 1, 2, 3, 4]
    assert len(list(RandomSampler(range(5), num_samples=3))) == 3
    assert sorted(SubsetRandomSampler([7, 9])) == [7, 9]
    assert set(WeightedRandomSampler([0, 1, 0], 4)) == {1}
    parts = [list(DistributedSampler(range(7), num_replicas=3, rank=r, shuffle=False)) for r in range(3)]
    assert parts == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert [len(DistributedSampler(range(7), 3, r, drop_last=True)) for r in range(3)] == [2, 2, 2]
    sampler = DistributedSampler(range(50), 2, 0)
    first = list(sampler)
    assert first == list(sampler)
    sampler.set_epoch(1)
    assert first != list(sampler)


def test_ranks_share_each_batch():
    whole = values(DataLoader(Squares(12), 6, sampler=DistributedSampler(range(12), 1, 0)))
    ranks = [values(DataLoader(Squares(12), 3, sampler=DistributedSampler(range(12), 2, r))) for r in range(2)]
    assert [a + b for a, b in zip(*ranks)] == whole


def test_parts():
    train, test = random_split(Squares(), [7, 3])
    assert sorted(train.indices + test.indices) == list(range(10)) and len(test) == 3
    assert [len(p) for p in random_split(Squares(), [0.5, 0.5], generator=torch.Generator().manual_seed(1))] == [5, 5]
    both = ConcatDataset([Squares(2), Subset(Squares(), [9])])
    assert len(both) == 3 and both[-1][1] == 81 and (Squares(1) + Squares(2))[2][1] == 1


def test_worker_info():
    class Who(Squares):
        def __getitem__(self, i):
            return -1 if get_worker_info() is None else get_worker_info().num_workers

    begun = []
    assert set(sum((b.tolist() for b in DataLoader(Who(), 2, num_workers=2, worker_init_fn=begun.append)), [])) == {2}
    assert next(iter(DataLoader(Who()))).tolist() == [-1] and set(begun) <= {0, 1}


@pytest.mark.parametrize("options", [{"timeout": 3}, {"num_workers": -1}, {"batch_size": 0},
                                     {"shuffle": True, "sampler": []},
                                     {"persistent_workers": True}, {"multiprocessing_context": "fork"}, {"bad": 1}])
def test_refused(options):
    with pytest.raises((ValueError, TypeError)):
        DataLoader(Squares(), **options)


def test_save_and_load(tmp_path):
    path = tmp_path / "x.pt"
    saved = {"model": collections.OrderedDict(w=torch.randn(2, 3), n=torch.tensor(3)), "epoch": 4,
             "rest": (0.5, None, ["a", True, {1: torch.ones(2)}]), "nan": float("nan")}
    torch.save(saved, path)
    read = torch.load(path)
    assert read["model"]["w"].tolist() == saved["model"]["w"].tolist() and read["model"]["n"].item() == 3
    assert isinstance(read["model"], collections.OrderedDict) and isinstance(read["rest"], tuple)
    assert read["rest"][2][2][1].tolist() == [1, 1] and read["epoch"] == 4 and read["nan"] != read["nan"]
    with pytest.raises(TypeError, match="random.*expected tensors"):
        torch.save({"random": random.Random()}, path)
    assert torch.load(path)["epoch"] == 4  # the older file stays
    path.write_bytes(b"\x80\x04text")
    with pytest.raises(torch.Error, match="pickle"):
        torch.load(path)


PYTORCH = """
import collections, sys, torch
class Code:
    def __reduce__(self): return (print, ("run",))
torch.save({"t": torch.arange(6.).reshape(2, 3).t(), "i": torch.arange(3, dtype=torch.int32), "e": 3,
            "m": torch.nn.Linear(2, 3).state_dict()}, sys.argv[1])
torch.save(Code(), sys.argv[2])
"""


def test_load_of_pytorchs_files(tmp_path):
    import subprocess
    import sys

    files = [str(tmp_path / name) for name in ("a.pt", "b.pt")]
    if subprocess.run([sys.executable, "-c", PYTORCH, *files], capture_output=True).returncode:
        pytest.skip("PyTorch is missing")
    read = torch.load(files[0])
    assert read["t"].tolist() == [[0, 3], [1, 4], [2, 5]] and read["i"].tolist() == [0, 1, 2] and read["e"] == 3
    assert list(read["m"]) == ["weight", "bias"] and read["m"]["weight"].shape == (3, 2)
    with pytest.raises(torch.Error, match="loading runs no code"):
        torch.load(files[1])
