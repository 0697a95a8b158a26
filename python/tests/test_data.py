"""lockstep.utils.data: data sets, orders, collate, workers."""

import collections
import copy
import pickle
import random
import struct
import threading
import time
import warnings

import pytest

import lockstep.generator
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
    torch.manual_seed(0)
    assert values(DataLoader(Squares(), 10, shuffle=True, num_workers=2)) == first
    generator = torch.Generator().manual_seed(3)
    assert values(DataLoader(Squares(), 10, shuffle=True, generator=generator)) != first
    torch.manual_seed(0)
    batches = DataLoader(Squares(), batch_sampler=BatchSampler(RandomSampler(Squares()), 10, False))
    assert values(batches) == first and values(batches) != first
    batches.set_epoch(0)
    assert values(batches) == first
    torch.manual_seed(1)
    assert values(DataLoader(Squares(), 10, shuffle=True)) != first


def orders(make, count=3):
    return [[int(i) for batch in make() for i in batch] for _ in range(count)]


# Equal orders would pair each example with itself.
@pytest.mark.parametrize("generator", [False, True])
def test_each_loader_and_sampler_has_an_order_of_its_own(generator):
    generator = torch.Generator().manual_seed(0) if generator else None
    seed = generator.manual_seed if generator else torch.manual_seed

    def loader():
        return DataLoader(range(20), 20, shuffle=True, generator=generator)

    found = [orders(loader, 1) for _ in range(2)]
    for make in (loader, lambda: [RandomSampler(range(20), generator=generator)],
                 lambda: [SubsetRandomSampler(range(20), generator=generator)],
                 lambda: [RandomSampler(range(20), True, generator=generator)],
                 lambda: [WeightedRandomSampler([1] * 20, 20, generator=generator)]):
        found += orders(make)
    assert len(set(map(str, found))) == len(found)
    seed(0)
    list(DataLoader(range(20)))  # does not count
    first, second = loader(), loader()
    again = [orders(lambda: loop, 1) for loop in (first, second)]
    assert again == found[:2]
    # A loader keeps its number in later loops and after a further seed.
    seed(0)
    second.set_epoch(0)
    assert orders(lambda: second, 1) == again[1]


def test_a_deep_copy_of_a_loader_counts_as_a_new_one():
    data = range(20)
    loader = DataLoader(data, 20, shuffle=True)
    first = orders(lambda: loader, 2)
    copied = copy.deepcopy(loader)
    assert orders(lambda: copied, 2) != orders(lambda: loader, 2)
    for one in (loader, copied):
        one.set_epoch(0)
    other = orders(lambda: copied, 2)
    assert orders(lambda: loader, 2) == first and other != first
    # The copy's number is that of the second loader since the seed.
    torch.manual_seed(0)
    loaders = [DataLoader(data, 20, shuffle=True) for _ in range(2)]
    assert [orders(lambda: one, 2) for one in loaders] == [first, other]
    # A pickle keeps it.
    loader.set_epoch(0)
    read = pickle.loads(pickle.dumps(loader))
    assert orders(lambda: read, 2) == first
    # An order that seed and epoch say is the same in a copy, as in any loader.
    named = DataLoader(data, 20, shuffle=True)
    named.set_epoch(3)
    before = orders(lambda: copy.deepcopy(named), 1)
    assert orders(lambda: named, 1) == before
    named.set_epoch(3)
    assert orders(lambda: copy.deepcopy(named), 1) == before
    # As in PyTorch, the copy of a generator goes on as the generator does.
    own = DataLoader(data, 20, shuffle=True, generator=torch.Generator().manual_seed(1))
    list(own)
    copied = copy.deepcopy(own)
    assert orders(lambda: copied) == orders(lambda: own)


def together(function, count=4):
    found, begin = [], threading.Barrier(count)

    def call():
        begin.wait()
        found.append(function())

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class SlowlyRead:
    """An attribute whose readers let other threads run."""

    def __set_name__(self, owner, name):
        self.name = "_slow_" + name

    def __get__(self, instance, owner):
        value = instance.__dict__.get(self.name, 0)
        time.sleep(0.01)
        return value

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value


def test_loaders_of_threads_have_different_orders():
    class SlowOrders(lockstep.generator.Orders):
        next = SlowlyRead()

    class SlowSampler(RandomSampler):
        epoch = SlowlyRead()

    generator = torch.Generator().manual_seed(1)
    generator._orders = SlowOrders()
    found = together(lambda: orders(lambda: DataLoader(range(20), 20, shuffle=True, generator=generator), 1))
    assert len(set(map(str, found))) == 4 and generator._orders.next == 4
    sampler = SlowSampler(range(20), generator=generator)
    found = together(lambda: list(sampler))
    assert len(set(map(str, found))) == 4 and generator._orders.next == 5 and sampler.epoch == 4


# Also without `shuffle`: each loop of a loader is an epoch.
@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"num_workers": 2}, {"sampler": range(6)},
                                     {"sampler": DistributedSampler(range(6), 1, 0, shuffle=False)}])
def test_random_transforms_differ_between_loops(options):
    crop = torch.transforms.RandomCrop(8)

    class Crops(Squares):
        def __getitem__(self, i):
            return crop(torch.arange(1024.0).reshape(1, 32, 32))[0, 0, 0]

    loader = DataLoader(Crops(6), **{"batch_size": 3, **options})
    found = [str([batch.tolist() for batch in loader]) for _ in range(3)]
    assert len(set(found)) == 3
    for epoch in (1, 0):
        loader.set_epoch(epoch)
        assert str([batch.tolist() for batch in loader]) == found[epoch]


def test_a_state_brings_the_orders_back():
    def loader():
        return DataLoader(range(20), 20, shuffle=True)

    generator = torch.Generator()
    for g in (None, generator):
        get, set_state = (torch.get_rng_state, torch.set_rng_state) if g is None else (g.get_state, g.set_state)
        orders(loader, 1)
        state = get()
        expected = orders(lambda: DataLoader(range(20), 20, shuffle=True, generator=g))
        set_state(state)
        assert orders(lambda: DataLoader(range(20), 20, shuffle=True, generator=g)) == expected
    torch.manual_seed(0)
    train = loader()
    first, second = orders(lambda: train, 2)
    with torch.random.fork_rng():
        orders(loader)
    state = torch.get_rng_state()
    new = orders(loader)
    # Resumed: new loaders go on with the numbers, and a loader whose epoch is set has the order of seed and epoch.
    torch.manual_seed(0)
    torch.set_rng_state(state)
    resumed = loader()
    resumed.set_epoch(1)
    assert orders(lambda: resumed, 1) == [second]
    assert orders(loader) == new


def test_a_loader_of_each_epoch_resumes():
    def epochs(first):
        torch.manual_seed(0)
        found = []
        for epoch in range(first, 4):
            loader = DataLoader(range(20), 20, shuffle=True)
            loader.set_epoch(epoch)
            found += orders(lambda: loader, 1)
        return found

    assert epochs(2) == epochs(0)[2:]
    assert len(set(map(str, epochs(0)))) == 4


def test_samplers_of_examples_do_not_count():
    class Draws(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            return torch.tensor([i, *list(RandomSampler(range(20)))[:3]])

    found = []
    for workers in (0, 1, 3):
        torch.manual_seed(0)
        batches = [batch.tolist() for batch in DataLoader(Draws(), 2, num_workers=workers)]
        found.append((batches, orders(lambda: DataLoader(range(20), 20, shuffle=True))))
    assert found[0] == found[1] == found[2]


def test_batch_sampler_may_change():
    for data in (TensorDataset(torch.arange(12.0)), [(float(i),) for i in range(12)]):
        loader = DataLoader(data, 2)
        loader.batch_sampler.batch_size = 5
        assert values(loader) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]] and len(loader) == 3
        loader.batch_sampler.drop_last = True
        assert [len(batch) for batch in values(loader)] == [5, 5] and len(loader) == 2
        assert [len(x) for x, in loader.on(torch.nn.Linear(1, 1), shards=1)] == [5, 5]
        loader.batch_sampler.sampler = [3, 1, 2, 0, 4, 7]
        assert values(loader) == [[3, 1, 2, 0, 4]]
        assert [len(x) for x, in loader.on(torch.nn.Linear(1, 1), shards=1)] == [5]
        loader.batch_sampler.sampler = iter(range(6))
        assert values(loader) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(d, range(6)), lambda d: ConcatDataset([d])])
def test_a_loop_without_workers_sees_its_writes(wrap):
    x = torch.zeros(6)
    for i, (batch,) in enumerate(DataLoader(wrap(TensorDataset(x)), 1)):
        assert batch.item() == i
        x += 1


def test_tensors_that_require_a_gradient():
    x = torch.ones(4, requires_grad=True)
    data = TensorDataset(x * 2, torch.arange(4))
    for loader in (DataLoader(data, 2), DataLoader(Subset(data, range(4)), 2)):
        sum(y.sum() for y, _ in loader).backward(retain_graph=True)
        assert x.grad.tolist() == [2] * 4
        x.grad = None
    x = torch.ones(4)
    loader = DataLoader(TensorDataset(x), 4)
    x.requires_grad_()
    assert next(iter(loader))[0].requires_grad
    with torch.no_grad():
        assert not next(iter(loader))[0].requires_grad


def test_weights_may_change():
    weights = torch.tensor([1.0, 0.0], dtype=torch.float64)
    sampler = WeightedRandomSampler(weights, 3)
    assert list(sampler) == [0] * 3 and sampler.weights is weights
    weights[:] = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert list(sampler) == [1] * 3
    sampler.weights = [1.0, 0.0]
    assert list(sampler) == [0] * 3
    with pytest.raises(ValueError, match="weights have 2 axes, expected one"):
        WeightedRandomSampler(torch.ones(2, 2), 1)
    numpy = pytest.importorskip("numpy")
    array = numpy.array([1.0, 0.0])
    sampler = WeightedRandomSampler(array, 3)
    array[:] = [0, 1]
    assert list(sampler) == [1] * 3
    scalars = WeightedRandomSampler([torch.tensor(0.0), torch.tensor(0.1)], 3)
    assert scalars.weights.tolist()[1] == pytest.approx(0.1)


# Also where loaders are made in each epoch, or follow one sampler.
def test_random_transforms_differ_between_loaders():
    crop = torch.transforms.RandomCrop(8)

    class Crops(Squares):
        def __getitem__(self, i):
            return crop(torch.arange(1024.0).reshape(1, 32, 32))[0, 0, 0]

    sampler = SubsetRandomSampler(range(10))
    for make in (lambda: DataLoader(Crops(), 10, shuffle=True), lambda: DataLoader(Crops(), 10, sampler=sampler)):
        assert len({str(sorted(batch.tolist())) for _ in range(3) for batch in make()}) == 3


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
    assert default_collate([numpy.str_("a"), numpy.str_("b")]) == ["a", "b"]
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
    own = type("Own", (DistributedSampler,), {"__iter__": lambda self: iter([5, 6])})(range(10), 2, 0)
    assert values(DataLoader(Squares(), 4, sampler=own)) == [[5, 6]]
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
    g = torch.Generator()
    halves = [[part.indices for part in random_split(Squares(), [0.5, 0.5], generator=g.manual_seed(1))]
              for _ in range(2)]
    assert halves[0] == halves[1] and [len(part) for part in halves[0]] == [5, 5]
    assert random_split(Squares(), [5, 5], generator=g)[0].indices != halves[0][0]
    assert random_split(Squares(), [5, 5])[0].indices != random_split(Squares(), [5, 5])[0].indices
    both = ConcatDataset([Squares(2), Subset(Squares(), [9])])
    assert len(both) == 3 and both[-1][1] == 81 and (Squares(1) + Squares(2))[2][1] == 1


class Rows:
    """Overrides, beside a data set of the library."""

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return -x, y


class Lists(TensorDataset):
    def __getitems__(self, indices):
        return [(-x, y) for x, y in (self[i] for i in indices)]


class Wrapper:
    """Has the attributes of what it holds, and items of its own."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        return -self.inner[i][0], 0


def numbers():
    return TensorDataset(torch.arange(6.0), torch.arange(6))


@pytest.mark.parametrize("make", [
    lambda: type("Own", (Rows, TensorDataset), {})(*numbers().tensors),
    lambda: type("Own", (Rows, Subset), {})(numbers(), range(6)),
    lambda: type("Own", (Rows, ConcatDataset), {})([numbers()]),
    lambda: Subset(type("Own", (Rows, TensorDataset), {})(*numbers().tensors), range(6)),
    lambda: type("Derived", (Lists,), {})(*numbers().tensors),
    lambda: Wrapper(numbers())], ids=["tensors", "subset", "concat", "inner", "getitems", "wrapper"])
def test_methods_of_a_derived_class_win(make):
    assert values(DataLoader(make(), 4)) == [[0, -1, -2, -3], [-4, -5]]
    # The data set that Trainer and evaluate() get.
    core = torch.utils.data._internal.as_dataset(make())
    assert core.batch([1, 2])[0].tolist() == [-1, -2]


def test_a_derived_length_wins():
    class Short(TensorDataset):
        def __len__(self):
            return 3

    class Named(TensorDataset):
        """Overrides nothing of the library's, whose batches C++ makes."""

        def name(self):
            return "own"

    short, named = Short(*numbers().tensors), Named(*numbers().tensors)
    assert values(DataLoader(short, 2)) == [[0, 1], [2]] and len(torch.utils.data._internal.as_dataset(short)) == 3
    assert torch.utils.data._core_of(short) is None and torch.utils.data._core_of(named) is not None


def test_a_loop_sees_the_attributes_of_its_data_set():
    data = numbers()
    part = Subset(data, [0, 1])
    both = ConcatDataset([part, numbers()])
    loader, whole = DataLoader(part, 4), DataLoader(both, 20)
    assert values(loader) == [[0, 1]] and len(whole) == 1 and len(both) == 8
    part.indices.append(torch.tensor(5))
    assert values(loader) == [[0, 1, 5]] and len(both) == 9 and values(whole) == [[0, 1, 5, 0, 1, 2, 3, 4, 5]]
    part.indices = torch.tensor([3, -4])
    data.tensors[0][3] = 30
    assert values(loader) == [[30, 2]] and both[0][0].item() == 30
    data.tensors = (data.tensors[0] + 100, data.tensors[1])
    both.datasets.append(TensorDataset(torch.tensor([7.0]), torch.tensor([7])))
    assert values(loader) == [[130, 102]] and values(whole) == [[130, 102, 0, 1, 2, 3, 4, 5, 7]]
    for name in ("batch_size", "dataset", "sampler", "drop_last"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
            setattr(loader, name, 2)
    loader.collate_fn = lambda items: [y.item() for _, y in items]
    assert list(loader) == [[3, 2]]


@pytest.fixture
def digits(tmp_path):
    pixels = bytes(i % 251 for i in range(6 * 784))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, 6, 28, 28) + pixels)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, 6) + bytes(range(6)))
    return torch.datasets.MNIST(tmp_path, transform=torch.transforms.ToTensor())


def test_transforms_may_change(digits):
    t = torch.transforms
    plain = next(iter(DataLoader(digits, 6)))[0]
    part, chain = DataLoader(Subset(digits, [1, 2]), 2), t.Compose([t.ToTensor()])
    digits.transform = chain
    assert next(iter(part))[0].tolist() == plain[1:3].tolist()
    chain.transforms.append(t.Normalize([1.0], [0.5]))
    expected = (plain[1:3] - 1) / 0.5
    assert next(iter(part))[0].tolist() == expected.tolist() and digits[1][0].tolist() == expected[0].tolist()
    chain.transforms[1] = t.RandomHorizontalFlip(0.0)
    chain.transforms[1].p = 1.0
    assert next(iter(part))[0].tolist() == plain[1:3].flip(3).tolist() == [digits[i][0].tolist() for i in (1, 2)]

    class Dark(t.ToTensor):
        def __call__(self, image):
            return super().__call__(image) * 0

    chain.transforms[1] = Dark()
    assert next(iter(part))[0].sum().item() == 0
    other = copy.deepcopy(digits)
    other.target_transform = lambda y: y + 50
    assert next(iter(DataLoader(other, 2)))[1].tolist() == [50, 51] and next(iter(part))[1].tolist() == [1, 2]


def test_data_and_targets_are_the_examples(digits):
    before = next(iter(DataLoader(digits, 6)))
    assert digits.data.shape == (6, 28, 28) and digits.data.dtype == torch.uint8 and digits.class_to_idx["5"] == 5
    assert digits.targets.tolist() == list(range(6)) and digits.targets.dtype == torch.int64
    assert digits.data.flatten().tolist() == [i % 251 for i in range(6 * 784)]
    after = next(iter(DataLoader(digits, 6)))
    assert [x.tolist() for x in after] == [x.tolist() for x in before]
    assert digits[5][0].tolist() == before[0][5].tolist()
    chosen = digits.targets >= 4
    digits.data, digits.targets = digits.data[chosen], digits.targets[chosen]
    digits.targets[0] = 9
    x, y = next(iter(DataLoader(digits, 6)))
    assert len(digits) == 2 and x.tolist() == before[0][4:].tolist() and y.tolist() == [9, 5]
    assert digits[0][1] == 9 and digits[-1][0].tolist() == x[1].tolist() and [y for _, y in digits] == [9, 5]


def test_worker_info():
    class Who(Squares):
        def __getitem__(self, i):
            return -1 if get_worker_info() is None else get_worker_info().num_workers

    begun = []
    assert set(sum((b.tolist() for b in DataLoader(Who(), 2, num_workers=2, worker_init_fn=begun.append)), [])) == {2}
    assert next(iter(DataLoader(Who()))).tolist() == [-1] and set(begun) <= {0, 1}


@pytest.mark.parametrize("persistent", [False, True])
def test_an_exception_of_worker_init_fn_comes_out(persistent):
    failing = [True]

    def begin(number):
        if failing:
            raise KeyError("no worker")

    loader = DataLoader(Squares(), 5, num_workers=2, worker_init_fn=begin, persistent_workers=persistent)
    with pytest.raises(KeyError, match="no worker"):
        list(loader)
    failing.clear()
    assert len(list(loader)) == 2


def test_threads_share_an_iterator():
    for _ in range(20):
        seen, batches = [], iter(DataLoader(TensorDataset(torch.arange(100)), 1, num_workers=2))
        threads = [threading.Thread(target=lambda: seen.extend(x.item() for x, in batches)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == list(range(100))


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


def chain():
    t = torch.transforms
    return t.Compose([t.RandomCrop(6, padding=2), t.RandomHorizontalFlip(), t.RandomVerticalFlip(0.3),
                      t.RandomRotation(20), t.ColorJitter(0.2, 0.2, 0.2, 0.02), t.ToTensor(),
                      t.Normalize([0.5] * 3, [0.25] * 3),
                      t.RandomErasing(0.5)])


class Colors(Dataset):
    """Pictures of bytes, transformed in __getitem__."""

    def __init__(self, transform):
        torch.manual_seed(1)
        self.pictures, self.transform = torch.randint(0, 256, (12, 3, 6, 6)).to(torch.uint8), transform

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return self.transform(self.pictures[i]), i


def epochs(dataset, workers):
    torch.manual_seed(7)
    loader = DataLoader(dataset, 4, shuffle=True, num_workers=workers)
    return [[(x.tolist(), y.tolist()) for x, y in loader] for _ in range(2)]


def test_random_transforms_follow_epoch_and_example(tmp_path):
    np = pytest.importorskip("numpy")
    first, second = epochs(Colors(chain()), 0)
    assert first != second and epochs(Colors(chain()), 3) == [first, second]
    by_example = dict(zip(sum((y for _, y in first), []), sum((x for x, _ in first), [])))
    # CIFAR's files of the same pictures, in C++ threads without the interpreter.
    pictures = np.array(Colors(None).pictures.tolist(), np.uint8)
    rows = [bytes([i % 10]) + pictures[i % 12].repeat(6, 1).repeat(6, 2)[:, :32, :32].tobytes() for i in range(30)]
    for i, name in enumerate(["test_batch.bin", *[f"data_batch_{i}.bin" for i in range(1, 6)]]):
        (tmp_path / name).write_bytes(b"".join(rows[:6]))
        if i == 4:
            with pytest.raises(RuntimeError, match="has no data_batch_5.bin"):
                torch.datasets.CIFAR10(tmp_path)
    resize = torch.transforms.CenterCrop(6)
    crop = torch.transforms.RandomCrop(4)
    data = torch.datasets.CIFAR10(tmp_path, transform=torch.transforms.Compose([resize, crop]))
    assert torch.utils.data._core_of(data) is not None and data[3][0].shape == (3, 4, 4) and len(data) == 30
    in_python = torch.datasets.CIFAR10(tmp_path, transform=data.transform, target_transform=lambda y: y)
    assert torch.utils.data._core_of(in_python) is None and epochs(in_python, 2) == epochs(data, 2)
    expected = epochs(data, 2)
    assert data.data.shape == (30, 32, 32, 3) and data.data.dtype == np.uint8
    assert data.targets == [i % 6 for i in range(6)] * 5 and epochs(data, 2) == epochs(in_python, 2) == expected
    data.data[:] = 255
    assert data[7][0].mean().item() == 1 and next(iter(DataLoader(data, 30)))[0].mean().item() == 1
    assert len(by_example) == 12


def test_random_erasing_in_place_is_refused():
    with pytest.raises(torch.Error, match="inplace=True, expected False"):
        torch.transforms.RandomErasing(inplace=True)


def test_transforms_are_torchvisions():
    t, x = torch.transforms, torch.arange(48).to(torch.uint8).reshape(3, 4, 4)
    assert t.ToTensor()(x).tolist() == t.Compose([t.ToTensor()])(x).tolist() == (x.float() / 255).tolist()
    assert t.RandomHorizontalFlip(1.0)(x).tolist() == x.flip(2).tolist()
    assert t.RandomVerticalFlip(1.0)(x).tolist() == x.flip(1).tolist() and t.RandomRotation(0)(x).tolist() == x.tolist()
    assert t.CenterCrop(2)(x).tolist() == x[:, 1:3, 1:3].tolist() and t.Resize(2)(x).shape == (3, 2, 2)
    normalize = t.Normalize([0.5] * 3, [0.5] * 3)
    assert normalize(x[None].float()).shape == (1, 3, 4, 4)
    assert normalize(x[None])[0].tolist() == normalize(x.float() / 255).tolist()
    # Elsewhere than in a loader, they draw from the program's stream.
    torch.manual_seed(0)
    crops = [t.RandomCrop(2)(x).tolist() for _ in range(8)]
    torch.manual_seed(0)
    assert [t.RandomCrop(2)(x).tolist() for _ in range(8)] == crops and len(set(map(str, crops))) > 1
    with pytest.raises(torch.Error, match="padding_mode"):
        t.RandomCrop(2, padding_mode="reflect")
    mix = t.MixUp(alpha=0.5, num_classes=3)
    loader = DataLoader(TensorDataset(torch.eye(4), torch.tensor([0, 1, 2, 0])), 4, num_workers=1,
                        collate_fn=lambda items: mix(*torch.utils.data.default_collate(items)))
    (images, chances), = loader
    assert chances.sum(1).tolist() == pytest.approx([1] * 4) and images.sum(1).tolist() == pytest.approx([1] * 4)
    assert images[1, 1].item() == pytest.approx(chances[1, 1].item()) and 0 < chances[1, 1].item() < 1


def test_a_table_is_a_data_set(tmp_path):
    lines = [f"{i % 7},{'red' if i % 2 else 'blue'},{'big' if i % 7 > 3 else 'small'}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["size,color,kind", *lines]))
    (tmp_path / "b.csv").write_text("\n".join(["size,color,kind", *lines[:4]]))
    train = torch.datasets.TableDataset(tmp_path / "a.csv", target="kind")
    test = torch.datasets.TableDataset(tmp_path / "b.csv", schema=train.schema)
    assert train.classes == ["big", "small"] and train.schema.columns == ["size", "color"]
    assert repr(test) == "TableDataset(4 rows, 2 features, target: 2 classes; numbers are standardized)"
    x, y = next(iter(DataLoader(test, 4)))
    assert x[:, 1].tolist() == [1, 2, 1, 2] and y.tolist() == [1, 1, 1, 1]
    assert x[0].tolist() == train[0][0].tolist()



def test_classes_of_a_table_keep_their_texts(tmp_path):
    rows = [f"{i},{('007', '7', '1.10', '1.1')[i % 4]}" for i in range(80)]
    (tmp_path / "a.csv").write_text("\n".join(["x,kind", *rows]))
    train = torch.datasets.TableDataset(tmp_path / "a.csv", target="kind", categories=["kind"])
    assert train.classes == ["1.1", "1.10", "007", "7"]


def test_a_sampler_without_an_end():
    class Endless:
        def __iter__(self):
            i = 0
            while True:
                yield i % 4
                i += 1

    data = TensorDataset(torch.arange(4))
    for workers in (0, 2):
        loop = iter(DataLoader(data, batch_size=3, sampler=Endless(), num_workers=workers))
        assert [next(loop)[0].tolist() for _ in range(3)] == [[0, 1, 2], [3, 0, 1], [2, 3, 0]]
    numpy = pytest.importorskip("numpy")
    for order in ([3, 1], torch.tensor([3, 1]), numpy.array([3, 1])):
        assert [x.tolist() for x, in DataLoader(data, sampler=order)] == [[3], [1]]
    with pytest.raises(ValueError, match="positive integer"):
        BatchSampler(range(5), 0, False)


class Draws(Squares):
    def __init__(self, draw, n=32):
        super().__init__(n)
        self.draw = draw

    def __getitem__(self, i):
        return torch.tensor([float(self.draw(i))]), i


def test_draws_from_others_generators_in_workers_are_said():
    numpy = pytest.importorskip("numpy")
    shared, fresh = numpy.random.default_rng(0), numpy.random.default_rng
    own = random.Random(0)
    cases = {"numpy.random.rand": lambda i: numpy.random.rand(), "numpy.random.normal": lambda i: shared.normal(),
             "random.random": lambda i: random.random(), "random.getrandbits": lambda i: own.choice([1, 2])}
    for call, draw in cases.items():
        for loop in (lambda data: list(DataLoader(data, 4, num_workers=2)),
                     lambda data: torch.evaluate(torch.nn.Linear(1, 32), data)):
            kind = type("Draws" + str(len(call)) + str(id(loop)), (Draws,), {})
            with pytest.warns(RuntimeWarning, match=rf"{kind.__name__} draws from {call}\(\) in worker threads"):
                loop(kind(draw))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = Draws(lambda i: fresh((0, i)).normal() + random.Random(i).random())
        assert values(DataLoader(quiet, 4, num_workers=2)) == values(DataLoader(quiet, 4))
        list(DataLoader(Draws(lambda i: numpy.random.rand()), 4))  # in the loop's own thread, as in PyTorch


def test_worker_init_fn_does_not_seed_the_program():
    numpy = pytest.importorskip("numpy")

    def draws():
        return random.random(), numpy.random.rand(), torch.rand(1).item()

    def seed(number):
        numpy.random.seed(number)
        torch.manual_seed(number)
        if number == 1:
            random.seed(number)

    def begin():
        random.seed(5), numpy.random.seed(5), torch.manual_seed(5)

    begin()
    expected = draws()
    begin()
    with pytest.warns(RuntimeWarning, match="worker_init_fn seeds .*random, which has no effect"):
        list(DataLoader(Squares(), 5, num_workers=2, worker_init_fn=seed))
    assert draws() == expected


@pytest.fixture
def photos(tmp_path):
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    for name, level in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        for i in range(3):
            image.fromarray(numpy.full((4, 5, 3), level + i, numpy.uint8)).save(tmp_path / name / f"{i}.png")
    return tmp_path


def test_image_folder_has_torchvisions_attributes(photos):
    data = torch.datasets.ImageFolder(photos)
    assert data.classes == ["cat", "dog"] and data.class_to_idx == {"cat": 0, "dog": 1}
    assert data.samples == data.imgs == [(str(photos / name / f"{i}.png"), label)
                                         for label, name in enumerate(("cat", "dog")) for i in range(3)]
    assert data.targets == [0, 0, 0, 1, 1, 1]
    tv = pytest.importorskip("torchvision.datasets")
    peer = tv.ImageFolder(photos)
    assert (data.samples, data.targets, data.class_to_idx) == (peer.samples, peer.targets, peer.class_to_idx)


# What a program changes counts, in a loader, too.
def test_image_folder_follows_its_samples_and_loader(photos):
    data = torch.datasets.ImageFolder(photos)
    data.samples = [(path, label + 5) for path, label in reversed(data.samples)]
    x, y = next(iter(DataLoader(data, 6)))
    assert y.tolist() == [6, 6, 6, 5, 5, 5] and x[:, 0, 0, 0].tolist() == [202, 201, 200, 12, 11, 10]
    only = torch.datasets.ImageFolder(photos, is_valid_file=lambda path: path.endswith("1.png"))
    assert only.targets == [0, 1] and [image[0, 0, 0].item() for image, _ in only] == [11, 201]
    names = torch.datasets.ImageFolder(photos, loader=lambda path: path[-5])
    assert [name for name, _ in names] == ["0", "1", "2"] * 2
    data = torch.datasets.ImageFolder(photos)
    data.loader = lambda path: torch.zeros(1)
    assert next(iter(DataLoader(data, 2)))[0].tolist() == [[0], [0]]

    class Dogs(torch.datasets.ImageFolder):
        def find_classes(self, directory):
            return ["dog"], {"dog": 0}

    assert [path for path, _ in Dogs(photos).samples] == [str(photos / "dog" / f"{i}.png") for i in range(3)]


def test_dataset_folder(photos):
    def make(*arguments, **options):
        return torch.datasets.DatasetFolder(photos, lambda path: open(path, "rb").read(4), *arguments, **options)

    assert make(".png")[0] == (b"\x89PNG", 0) and len(make((".PNG".lower(), ".x"))) == 6
    with pytest.raises(FileNotFoundError, match="Found no valid file for the classes cat, dog. Supported .* .jpg"):
        make((".jpg",))
    with pytest.raises(ValueError, match="cannot be None or not None"):
        make()
    with pytest.raises(FileNotFoundError, match="Couldn't find any class folder"):
        torch.datasets.DatasetFolder(photos / "cat", None, ".png")


# minGPT's loop without an end: the draws begin as those of a shorter one, and nothing lists them all.
@pytest.mark.parametrize("workers", [0, 2])
def test_a_random_sampler_of_very_many_draws(workers):
    data = TensorDataset(torch.arange(100))

    def batches(n):
        torch.manual_seed(2)
        sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=n)
        loader = DataLoader(data, 4, sampler=sampler, num_workers=workers)
        assert len(loader) == n // 4
        return [[x.tolist() for (x,), _ in zip(loader, range(3000))] for _ in range(2)]

    assert batches(12000) == batches(int(1e10))
    sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=int(1e10))
    with pytest.raises(ValueError, match="10000000000 draws, expected fewer"):
        next(iter(DataLoader(data, 4, sampler=sampler).on(torch.nn.Linear(1, 1))))


def test_collating_keeps_types_as_pytorch_does():
    numpy = pytest.importorskip("numpy")
    collate, convert = torch.utils.data.default_collate, torch.utils.data.default_convert
    ordered = collections.OrderedDict(a=1)
    assert type(collate([ordered, ordered])) is type(convert(ordered)) is collections.OrderedDict
    counts = collections.defaultdict(int, a=1)
    assert type(collate([counts])) is dict and collate([counts])["a"].tolist() == [1]
    for name in ("float64", "float16", "uint8", "int64", "bool"):
        for value in (numpy.dtype(name).type(1), numpy.array(1, name)):
            assert convert(value).dtype == getattr(torch, name) and convert(value).shape == ()
    words = numpy.array(["a"])
    assert convert(words) is words
    assert collate([torch.tensor([1.5]), torch.tensor([2])]).tolist() == [[1.5], [2]]


def test_samplers_at_their_limits():
    data = torch.utils.data
    draws = list(data.RandomSampler(range(5), num_samples=12))
    assert sorted(draws[:5]) == sorted(draws[5:10]) == [0, 1, 2, 3, 4] and len(draws) == 12 and draws[:5] != draws[5:10]
    for sampler in (lambda **o: data.RandomSampler(range(5), **o), lambda **o: data.WeightedRandomSampler([1.0], **o)):
        with pytest.raises(TypeError, match="replacement is 1, expected True or False"):
            sampler(num_samples=1, replacement=1)
        with pytest.raises(ValueError, match="num_samples is 2.5, expected a positive integer"):
            sampler(num_samples=2.5)
    numbers = torch.utils.data.TensorDataset(torch.arange(5))
    assert data.Subset(data.Subset(numbers, [3, 1, 4]), [2, 0])[[0, 1]][0].tolist() == [4, 3]
    assert [x.tolist() for x, in DataLoader(numbers, sampler=[-1, 0])] == [[4], [0]]
    assert DataLoader(numbers, 5, worker_init_fn=print).num_workers == 0 and len(list(DataLoader(numbers, 5))) == 1


def test_examples_may_have_names():
    words = {"a": 1.0, "b": 2.0}
    assert [x.tolist() for x in DataLoader(words, sampler=["b", "a"])] == [[2], [1]]
    assert [x.tolist() for x in DataLoader(words, batch_sampler=[("b", "a")])] == [[2, 1]]
    assert [x.tolist() for x in DataLoader([1, 2, 3], sampler=[-1, 0])] == [[3], [1]]
