"""Data sets and the loader, as torch.utils.data.

The order of the examples depends on manual_seed() (or on `generator`) and the epoch, as in the C++ library: a C++
loader with the same seed has the same batches. Each further loader that shuffles has an order of its own. Workers are
threads. A data set of the C++ library (lockstep.datasets, TensorDataset) makes its batches without the interpreter,
unless a derived class defines __getitem__, __getitems__, or __len__. A loop uses the attributes of a data set as they
are when it begins.
"""

import bisect
import collections
import hashlib
import itertools
import operator
import struct
import threading
from collections.abc import Mapping, Sequence

from ... import _core
from ..._core import internal as _internal
from ..._core import Tensor
from ...generator import orders_of as _orders_of
from . import _draws
from ._workers import Loop, Workers


class Dataset:
    """Indexed examples: define __getitem__(index) and __len__()."""

    def __class_getitem__(cls, item):
        return cls

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__}: expected a method __getitem__(self, index)")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Examples in sequence: define __iter__()."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__}: expected a method __iter__(self)")


class TensorDataset(Dataset):
    """Example i is the tuple of row i of each tensor."""

    def __init__(self, *tensors):
        if not tensors or any(x.size(0) != tensors[0].size(0) for x in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def _make_core(self):
        if any(x.requires_grad for x in self.tensors):
            return None  # Python's batches have the history.
        return _internal.tensor_dataset(list(self.tensors))

    def __getitem__(self, index):
        return tuple(x[index] for x in self.tensors)

    def __len__(self):
        return self.tensors[0].size(0)


class ConcatDataset(Dataset):
    """The examples of several data sets, one set after another."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")

    def _make_core(self):
        cores = [_core_of(d) for d in self.datasets]
        return None if None in cores else _internal.concat_dataset(cores)

    @property
    def cumulative_sizes(self):
        return list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self):
        return sum(len(d) for d in self.datasets)

    def __getitem__(self, index):
        ends = self.cumulative_sizes
        if not -ends[-1] <= index < ends[-1]:
            raise IndexError(f"index {index} of {ends[-1]} examples")
        index %= ends[-1]
        part = bisect.bisect_right(ends, index)
        return self.datasets[part][index - (ends[part - 1] if part else 0)]


class Subset(Dataset):
    """The examples of `dataset` with these indices."""

    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = indices

    def _make_core(self):
        core = _core_of(self.dataset)
        return None if core is None else _internal.subset(core, _numbers(self.indices, len(core)))

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Return disjoint random Subsets: `lengths` are numbers of examples, or fractions that add up to 1.

    Each split is another draw from the stream of manual_seed(), or from `generator`.
    """
    seed = _core.randint(0, 1 << 62, (1,), generator=generator).item()
    parts = _internal.random_split_indices(_internal.as_dataset(range(len(dataset))), [float(n) for n in lengths], seed)
    return [Subset(dataset, indices) for indices in parts]


def _core_of(dataset):
    """Return a C++ data set with the current examples of `dataset`; None if only Python can make them.

    Every reader of a data set calls it: DataLoader, and as_dataset() of C++ for Trainer and evaluate().
    """
    if isinstance(dataset, _internal.CoreDataset):
        return dataset
    made = _is_unchanged(type(dataset), "_make_core", "__getitem__", "__getitems__", "__len__")
    return dataset._make_core() if made else None


def _reads_tensors(dataset):
    """Return whether the examples are rows of the program's tensors, to which it may write during a loop."""
    if isinstance(dataset, ConcatDataset):
        return any(map(_reads_tensors, dataset.datasets))
    return _reads_tensors(dataset.dataset) if isinstance(dataset, Subset) else isinstance(dataset, TensorDataset)


def _is_unchanged(cls, make, *methods):
    """Return whether `make` still describes these methods: no class derived from its own overrides them."""
    known = next((vars(c) for c in cls.__mro__ if vars(c).keys() & {make, *methods}), ())
    return make in known


def _numbers(indices, n):
    """Return the indices as a list of ints; negative ones count from the end of n."""
    whole = map(operator.index, indices.tolist() if hasattr(indices, "tolist") else indices)
    return [i + n if i < 0 else i for i in whole]


def _key_of(index):
    """Return the number by which a random transform draws for an example, whose index may be of any type."""
    if hasattr(index, "__index__"):
        return operator.index(index) & 0x7FFFFFFFFFFFFFFF
    return int.from_bytes(hashlib.sha256(repr(index).encode()).digest()[:7], "little")


def _seed_of(generator, number=0):
    """Return the seed of the orders with this number. None: that of manual_seed(), which C++ knows.

    Number 0 has the seed itself, so that its orders are those of C++.
    """
    seed = None if generator is None else generator.initial_seed()
    if number == 0:
        return seed
    words = struct.pack("<2Q", _internal.default_seed() if seed is None else seed, number)
    return int.from_bytes(hashlib.sha256(words).digest()[:8], "little")


class Sampler:
    """Chooses the order of the examples: define __iter__(), which yields indices of examples."""

    def __class_getitem__(cls, item):
        return cls

    def __init__(self, data_source=None):
        pass


class _OwnNumber(int):
    """A number that a deep copy does not have: it counts anew, as a new sampler does."""

    def __deepcopy__(self, memo):
        return None


_counting = threading.Lock()  # the numbers and epochs of samplers and loaders whose loops begin in several threads


class _EpochSampler(Sampler):
    """A sampler with a different order in each epoch; each loop starts the next epoch.

    Samplers of one seed are numbered when their first order is asked for. The number enters the seed, because two equal
    orders would make pairs of different examples pairs of equal ones. Two kinds have the number 0 and do not count: one
    whose epoch the program has set before, so that seed and epoch say its order, also in a resumed run; and one of an
    example, whose number would depend on the thread that makes the example. A deep copy counts anew, unless it has a
    copy of the generator, which goes on as the original does.
    """

    _number = None
    _epoch_is_set = False

    def __init__(self, generator):
        self.generator = generator
        self.epoch = 0

    def set_epoch(self, epoch):
        """Set the epoch of the next loop."""
        with _counting:
            self.epoch = epoch
            self._epoch_is_set = self._epoch_is_set or self._number is None

    def _own_number(self):
        with _counting:
            if self._number is None:
                named = self._epoch_is_set or _internal.has_example_key()
                number = 0 if named else _orders_of(self.generator).take()
                self._number = _OwnNumber(number) if self.generator is None else number
            return self._number

    def _next_epoch(self):
        with _counting:
            self.epoch += 1
            return self.epoch - 1

    def _seed(self):
        return _seed_of(self.generator, self._own_number())

    def order(self, epoch):
        raise NotImplementedError

    def __iter__(self):
        return iter(self.order(self._next_epoch()))


class SequentialSampler(Sampler):
    """0, 1, ..., len(data_source) - 1."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


def _check_draws(num_samples, replacement, least=1):
    if not isinstance(replacement, bool):
        raise TypeError(f"replacement is {replacement!r}, expected True or False")
    if num_samples is None and least:
        return
    if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples < least:
        raise ValueError(f"num_samples is {num_samples!r}, expected a positive integer")


class RandomSampler(_EpochSampler):
    """A new permutation in each epoch, or `num_samples` indices from as many permutations as needed.

    With `replacement`, `num_samples` independent draws.
    """

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        super().__init__(generator)
        _check_draws(num_samples, replacement)
        if not replacement and num_samples is not None and len(data_source) == 0:
            raise ValueError(f"num_samples is {num_samples}, expected a data set with examples")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def order(self, epoch):
        seed, n = self._seed(), len(self.data_source)
        if self.replacement:
            return _internal.weighted_order([1.0] * n, self.num_samples, True, seed, epoch)
        # If there are more draws than examples, appends several permutations.
        order, number = _internal.random_order(n, seed, epoch), 0
        while len(order) < self.num_samples:
            number += 1
            order += _internal.random_order(n, seed, epoch + (number << 32))
        return order[: self.num_samples]

    # More draws than fit in a list: `num_samples=int(1e10)` makes an endless loop, which begins as a short one does.
    @property
    def _is_long(self):
        return self.replacement and self.num_samples > 1 << 22

    def _long_order(self, seed, epoch):
        weights, part = [1.0] * len(self.data_source), 1 << 16
        for number, begin in enumerate(range(0, self.num_samples, part)):
            n = min(part, self.num_samples - begin)
            yield from _internal.weighted_order(weights, n, True, seed, epoch + (number << 32))

    def __iter__(self):
        if not self._is_long:
            return super().__iter__()
        return self._long_order(self._seed(), self._next_epoch())

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(_EpochSampler):
    """A new permutation of these indices in each epoch."""

    def __init__(self, indices, generator=None):
        super().__init__(generator)
        self.indices = indices

    def order(self, epoch):
        return [self.indices[i] for i in _internal.random_order(len(self.indices), self._seed(), epoch)]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(_EpochSampler):
    """`num_samples` draws in each epoch, of example i with a probability proportional to weights[i]."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        super().__init__(generator)
        _check_draws(num_samples, replacement, least=0)
        # As in PyTorch, a float64 tensor or array stays the program's, so that its later writes count.
        if not (isinstance(weights, Tensor) or _is_array(weights)):
            weights = [float(w) for w in weights]
        self.weights = _core.as_tensor(weights, dtype=_core.float64)
        if self.weights.dim() != 1:
            raise ValueError(f"weights have {self.weights.dim()} axes, expected one")
        self.num_samples = num_samples
        self.replacement = replacement

    def order(self, epoch):
        weights = _core.as_tensor(self.weights, dtype=_core.float64).tolist()
        return _internal.weighted_order(weights, self.num_samples, self.replacement, self._seed(), epoch)

    def __len__(self):
        return self.num_samples


def _in_batches(items, batch_size, drop_last):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == batch_size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


class BatchSampler(Sampler):
    """Lists of `batch_size` indices of `sampler`."""

    def __init__(self, sampler, batch_size, drop_last):
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self):
        return _in_batches(self.sampler, self.batch_size, self.drop_last)

    def __len__(self):
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size


class DistributedSampler(Sampler):
    """This rank's part of the data: entries rank, rank + num_replicas, ... of an order that all ranks share.

    As in PyTorch, the first examples are repeated until all ranks have equally many (or the last ones are left out,
    with `drop_last`), and only set_epoch() changes the order. A DataLoader with this sampler takes consecutive rows of
    the batches of the whole job instead: rank 0 the first `batch_size` rows, rank 1 the next, and so on. The examples
    of a step are the same, and the bits are those of a single process with the whole batch.
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None or rank is None:
            from ... import distributed

            if not distributed.is_initialized():
                raise RuntimeError("Default process group has not been initialized, please make sure to call "
                                   "init_process_group.")
            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    @property
    def num_samples(self):
        n = len(self.dataset)
        return n // self.num_replicas if self.drop_last else (n + self.num_replicas - 1) // self.num_replicas

    @property
    def total_size(self):
        return self.num_samples * self.num_replicas

    def set_epoch(self, epoch):
        """Set the epoch, which decides the order."""
        self.epoch = epoch

    def _whole_order(self):
        """Return the order of all ranks, padded or cut so that all ranks have equally many."""
        n = len(self.dataset)
        order = _internal.random_order(n, self.seed, self.epoch) if self.shuffle else list(range(n))
        while 0 < len(order) < self.total_size:
            order += order[: self.total_size - len(order)]
        return order[: self.total_size]

    def _batches(self, batch_size):
        """Return this rank's indices: consecutive ones of each batch of all ranks."""
        order, mine, whole = self._whole_order(), [], batch_size * self.num_replicas
        for first in range(0, len(order), whole):
            batch = order[first : first + whole]
            rows = len(batch) // self.num_replicas
            mine += batch[self.rank * rows : (self.rank + 1) * rows]
        return mine

    def __iter__(self):
        return iter(self._whole_order()[self.rank :: self.num_replicas])

    def __len__(self):
        return self.num_samples


def _tensor(value, dtype=None):
    return _core.tensor(value) if dtype is None else _core.tensor(value, dtype=dtype)


def _is_array(value):
    return type(value).__module__ == "numpy"


def _from_array(value):
    if value.dtype.char in "USO":
        raise TypeError(_NO_COLLATE.format(value.dtype))
    if getattr(value, "ndim", 0) == 0:
        return _core.tensor(value.reshape(1)).reshape(())  # with the array's type
    return _core.from_numpy(value)


def _made_like(data, values):
    """Return these values in a mapping or sequence of data's class, if that is possible, as PyTorch does."""
    try:
        return type(data)(values)
    except TypeError:  # such as defaultdict, or range
        return values


_NO_COLLATE = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_convert(data):
    """Return `data` with NumPy arrays as tensors; everything else stays."""
    if isinstance(data, Tensor) or isinstance(data, (str, bytes)):
        return data
    if _is_array(data):
        return data if data.dtype.char in "USO" else _from_array(data)
    if isinstance(data, Mapping):
        return _made_like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, Sequence):
        return [default_convert(d) for d in data]
    return data


def default_collate(batch):
    """Stack the items of a batch: tensors, arrays, numbers along a new axis 0, and the values of dicts and lists."""
    first = batch[0]
    if isinstance(first, Tensor):
        if all(x.device.type == "cpu" and x.dtype == first.dtype and not x.requires_grad for x in batch):
            return _internal.stack_parts([x.cpu().detach() for x in batch])
        return _core.stack(batch)
    if isinstance(first, (str, bytes)):  # also numpy.str_
        return batch
    if _is_array(first):
        return default_collate([_from_array(x) for x in batch]) if getattr(first, "ndim", 0) else _tensor(
            [x.item() for x in batch], _from_array(first.reshape(1)).dtype)
    if isinstance(first, float):
        return _tensor(batch, _core.float64)
    if isinstance(first, (bool, int)):
        return _tensor(batch)
    if isinstance(first, Mapping):
        return _made_like(first, {key: default_collate([item[key] for item in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(part) for part in zip(*batch)))
    if isinstance(first, Sequence):
        if any(len(item) != len(first) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(part) for part in zip(*batch)]
    raise TypeError(_NO_COLLATE.format(type(first)))


class _Examples:
    """The examples of a Python data set for the C++ library, whose threads call it."""

    def __init__(self, data):
        self._data, self._in_lists = data, hasattr(data, "__getitems__")
        self._watch = _draws.Watch(data, "data set")

    def __call__(self, index, every=False):
        """Return the tensors of an example. every: whether a pass over all examples needs it."""
        with _draws.watch(self._data, "data set") if every else self._watch():
            # Gets one example at a time, so that it does not depend on others.
            item = self._data.__getitems__([index])[0] if self._in_lists else self._data.__getitem__(index)
        return _parts_of_item(item)


def _parts_of_item(item):
    """Return the tensors of an example for the C++ library."""
    if isinstance(item, Tensor):
        return [item.cpu()]
    if _is_array(item):
        return [_from_array(item)]
    if isinstance(item, (bool, int, float)):
        return [_tensor(item)]
    if isinstance(item, Mapping):
        item = list(item.values())
    if isinstance(item, Sequence) and not isinstance(item, (str, bytes)):
        return [part for value in item for part in _parts_of_item(value)]
    raise TypeError(f"dataset: an example has {type(item)}, expected tensors, numpy arrays, numbers, dicts or lists")


class _Structure:
    """The structure of a batch's tensors, which can be rebuilt with other tensors."""

    def __init__(self, batch):
        self.batch = batch
        self.tensors = []
        self._collect(batch)

    def _collect(self, value):
        if isinstance(value, Tensor):
            self.tensors.append(value)
        elif isinstance(value, Mapping):
            for v in value.values():
                self._collect(v)
        elif isinstance(value, (tuple, list)):
            for v in value:
                self._collect(v)

    def with_tensors(self, tensors):
        return self._replace(self.batch, iter(tensors))

    def _replace(self, value, tensors):
        if isinstance(value, Tensor):
            return next(tensors)
        if isinstance(value, Mapping):
            return _made_like(value, {key: self._replace(v, tensors) for key, v in value.items()})
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._replace(v, tensors) for v in value))
        if isinstance(value, (tuple, list)):
            return type(value)(self._replace(v, tensors) for v in value)
        return value


class WorkerInfo:
    """What get_worker_info() returns: id, num_workers, seed, dataset."""

    def __init__(self, **values):
        self.__dict__.update(values)


_worker = threading.local()


def get_worker_info():
    """Return the WorkerInfo of this worker's thread; None elsewhere."""
    return getattr(_worker, "info", None)


class DataLoader:
    """Batches of a data set, made ahead of use by `num_workers` threads.

    collate_fn gets the list of a batch's items. With `shuffle`, each loop has a different order, which depends on
    manual_seed(), or on `generator`, the number of loaders that have shuffled before, and the number of the loop.

    >>> for x, y in loader: ...                      # in host memory
    >>> for x, y in loader.on(net): ...              # where the model is, on all of its devices
    >>> for x, y in loader.on(net, shards=8): ...    # 8 shards, instead of those of default_shards(batch_size)
    """

    def __class_getitem__(cls, item):
        return cls

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=False,
                 pin_memory_device=""):
        if num_workers < 0:
            raise ValueError(f"num_workers is {num_workers}, expected at least 0")
        if timeout != 0:
            raise ValueError("timeout: workers are threads, which cannot be ended; expected 0")
        if multiprocessing_context is not None:
            raise ValueError("multiprocessing_context: workers are threads; expected None")
        if prefetch_factor is not None and (num_workers == 0 or prefetch_factor < 1):
            raise ValueError("prefetch_factor needs num_workers > 0, and is at least 1")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self._iterable = isinstance(dataset, IterableDataset)
        if self._iterable:
            if shuffle or sampler is not None or batch_sampler is not None:
                raise ValueError("an IterableDataset has its own order: expected no shuffle, sampler, or batch_sampler")
            if num_workers > 1:
                raise ValueError(f"an IterableDataset with {num_workers} workers: threads share the one iterator; "
                                 "expected num_workers of 0 or 1")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                                 "drop_last")
            batch_size = None
        elif batch_size is None:
            if drop_last:
                raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with "
                                 "drop_last")
        elif batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected a positive integer")
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.persistent_workers = persistent_workers
        if sampler is None and not self._iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = sampler
        self._auto = batch_size is not None or batch_sampler is not None
        if batch_sampler is None and batch_size is not None and not self._iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
            self._own_batches = True
        else:
            self._own_batches = False
        self.batch_sampler = batch_sampler
        self.collate_fn = collate_fn or (default_collate if self._auto else default_convert)
        self._epoch = 0
        self._pool = None

    def __setattr__(self, name, value):
        fixed = ("dataset", "batch_size", "sampler", "batch_sampler", "drop_last", "persistent_workers")
        if name in fixed and "_pool" in self.__dict__:  # after the constructor
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __len__(self):
        if self._iterable:
            n = len(self.dataset)
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else (n + self.batch_size - 1) // self.batch_size
        return len(self.batch_sampler if self._auto else self.sampler)

    # Without workers, worker_init_fn is not called.
    @property
    def _inits_workers(self):
        return self.worker_init_fn is not None and self.num_workers > 0

    def set_epoch(self, epoch):
        """Set the epoch of the next loop, which decides its order and the random transforms of C++ data sets."""
        self._epoch = epoch
        sampler = self._inner_sampler()
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)

    def _inner_sampler(self):
        sampler = self.sampler if self.batch_sampler is None else self.batch_sampler
        while not hasattr(sampler, "set_epoch") and hasattr(sampler, "sampler"):
            sampler = sampler.sampler
        return sampler

    def __iter__(self):
        return self._loop(None)

    def on(self, model, shards=0, weights=()):
        """Return the batches of a loop where the model is: each tensor is cut into `shards` shards, which devices share
        equally or by `weights`. Without a number, there are default_shards(batch_size) shards on CPUs, so that the bits
        are the same on any number of devices, and one for each device on GPUs. For a DistributedDataParallel: this
        rank's rows of each batch of the whole job, of any size; all ranks need the same loader, without a
        DistributedSampler. Each loop over the result is a loop of the loader.
        """
        if isinstance(self._inner_sampler(), DistributedSampler):
            raise ValueError("loader.on: the loader has a DistributedSampler, expected one of the whole data set, "
                             "whose batches are cut over the ranks")
        if self._iterable or not self._own_batches:
            raise ValueError("loader.on: expected a loader with batch_size of a data set with __getitem__")
        splitter = getattr(model, "_splitter", None)
        if splitter is None:
            splitter = _internal.BatchSplitter(model, shards, list(weights), self.batch_sampler.batch_size)
        elif shards or weights:
            raise ValueError("loader.on: the DistributedDataParallel has its shards already: give them to it")
        return _BatchesOn(self, splitter)

    # The order of this loop, as indices of examples. The program may have changed batch_sampler since the last one.
    def _order(self):
        sampler = self.batch_sampler.sampler
        if getattr(type(sampler), "__iter__", None) is DistributedSampler.__iter__:
            return sampler._batches(self.batch_sampler.batch_size)
        if getattr(sampler, "_is_long", False):
            raise ValueError(f"{type(sampler).__name__}: {len(sampler)} draws, expected fewer where the order is "
                             "listed before the loop")
        return [operator.index(i) if hasattr(i, "__index__") else i for i in sampler]

    def _batches(self, order):
        n, drop_last = self.batch_sampler.batch_size, self.batch_sampler.drop_last
        return (order[i : i + n] for i in range(0, len(order), n) if not drop_last or i + n <= len(order))

    def _examples(self, use):
        """Return the data set for the examples of a loop; `use`, the caller, makes batches of its own."""
        found = ("an IterableDataset" if self._iterable else "batch_size=None" if not self._auto else
                 "a collate_fn" if self.collate_fn is not default_collate else
                 "a worker_init_fn" if self._inits_workers else
                 "an __iter__ of its own" if type(self).__iter__ is not DataLoader.__iter__ else None)
        if found is not None:
            raise ValueError(f"{use}: a DataLoader with {found}, expected one without, or a data set")
        if not self._own_batches:
            return Subset(self.dataset, [i for batch in self.batch_sampler for i in batch])
        batches, n = self.batch_sampler, len(self.dataset)
        sampler = batches.sampler
        whole = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement
                                                       and sampler.num_samples == n)
        if whole and sampler.data_source is self.dataset and not (batches.drop_last and n % batches.batch_size):
            return self.dataset
        return Subset(self.dataset, [i for batch in self._batches(self._order()) for i in batch])

    def _pin_for(self):
        if not self.pin_memory:
            return None
        device = _core.devices()[0]
        return device if device.type == "cuda" else None

    def _loop(self, splitter):
        with _counting:
            epoch = self._epoch
            self._epoch = epoch + 1
        number, own, inner = 0, self.batch_sampler, self._inner_sampler()
        if isinstance(inner, _EpochSampler):
            # Random transforms differ, too, from those of other loaders, and of earlier loaders with this sampler.
            number, epoch = inner._own_number(), max(epoch, inner.epoch)
        # A sampler of the program may be endless, or decide during the loop.
        lazy = self._own_batches and splitter is None and not _knows_its_order(own.sampler)
        plain = self._own_batches and not lazy and self.collate_fn is default_collate and not self._inits_workers
        core = _core_of(self.dataset) if plain else None
        if core is not None:
            # No Python code runs in these threads, so one thread works ahead even where PyTorch would make batches in
            # the loop itself, unless the next batch would miss what the loop writes.
            workers = self.num_workers or (0 if _reads_tensors(self.dataset) else 1)
            order = _numbers(self._order(), len(core))
            loop = _internal.BatchLoop(core, order, own.batch_size, own.drop_last, _seed_of(self.generator, number),
                                       epoch, workers, workers * (self.prefetch_factor or 2), self._pin_for(),
                                       splitter)
            return _CoreLoop(loop)
        if self._iterable:
            jobs = self._iterable_batches()
            return _ahead(self, jobs, self._finish, max_ahead=1)
        seed = _seed_of(self.generator, number)
        seed = _internal.default_seed() if seed is None else seed

        def example(i):
            with _internal.ExampleScope("transform", seed, epoch, _key_of(i)):
                return self.dataset[i]

        def fetch(job):
            number, indices = job
            fetch_items = getattr(self.dataset, "__getitems__", None)
            items = None if fetch_items else [example(i) for i in Loop.while_wanted(indices)]
            with _internal.ExampleScope("batch transform", seed, epoch, number):
                return self._finish(fetch_items(indices) if fetch_items else items)

        if not self._auto:
            return _ahead(self, iter(self.sampler), lambda i: self._finish(example(i)))
        if self._own_batches and not lazy:
            order = self._order()
            batches = self._batches(order)
            if splitter is not None:
                _compare_orders(splitter, order, own.batch_size, own.drop_last)
                return self._cut(splitter, batches, fetch)
        else:
            batches = iter(self.batch_sampler)
        return _ahead(self, enumerate(batches), fetch)

    def _finish(self, items):
        batch = self.collate_fn(items)
        pin_for = self._pin_for()
        if pin_for is None:
            return batch
        structure = _Structure(batch)
        return structure.with_tensors([x.pin_memory() for x in structure.tensors])

    def _iterable_batches(self):
        if self.batch_size is None:
            return iter(self.dataset)
        return _in_batches(self.dataset, self.batch_size, self.drop_last)

    # Cuts this rank's rows of each batch over its devices. A rank without rows makes one example to learn the shapes.
    def _cut(self, splitter, batches, fetch):
        def fetch_rows(job):
            number, indices = job
            first, last = splitter.rows_of(len(indices))
            none = first == last
            structure = _Structure(fetch((number, indices[:1] if none else indices[first:last])))
            rows = [x.narrow(0, 0, 0) for x in structure.tensors] if none else structure.tensors
            return structure, rows, len(indices)

        for structure, rows, n in _ahead(self, enumerate(batches), fetch_rows):
            yield structure.with_tensors(splitter.split(rows, n))


class _BatchesOn:
    """The batches of loader.on(net)."""

    def __init__(self, loader, splitter):
        self._loader, self._splitter = loader, splitter

    def __len__(self):
        return len(self._loader)

    def __iter__(self):
        return self._loader._loop(self._splitter)


class _CoreLoop:
    def __init__(self, loop):
        self._core = loop

    def __iter__(self):
        return self

    def __next__(self):
        batch = self._core.next()
        if batch is None:
            raise StopIteration
        return batch


def _knows_its_order(sampler):
    """Return whether a loop may list the sampler in advance: one of this file, or a sequence, an array, or a tensor."""
    if getattr(sampler, "_is_long", False):
        return False
    own = getattr(getattr(type(sampler), "__iter__", None), "__module__", None) == __name__
    return own or hasattr(sampler, "__getitem__")


def _compare_orders(splitter, order, batch_size, drop_last):
    text = repr((order, batch_size, drop_last)).encode()
    mine = int.from_bytes(hashlib.sha256(text).digest()[:7], "little")
    for rank, other in enumerate(splitter.gather_on_host(mine, "order of the examples")):
        if other != mine:
            raise _core.Error(f"batches: rank {rank} has different batches from this rank, expected a loader of the "
                              "whole data set with the same options on all ranks, and no DistributedSampler")


def _ahead(loader, jobs, make, max_ahead=None):
    """Yield make(job) for each job in order, made ahead by the loader's workers."""
    if loader.num_workers == 0:
        for job in jobs:
            yield make(job)
        return
    pool = loader._pool
    if pool is None:
        pool = _make_pool(loader)
        if loader.persistent_workers:
            loader._pool = pool
    ahead = loader.num_workers * (loader.prefetch_factor or 2)
    waiting = collections.deque()
    # The worker also reads an IterableDataset.
    source = iter(jobs)
    end = object()
    lock = threading.Lock()
    loop = Loop()
    watch = _draws.Watch(loader.dataset, "DataLoader")

    def work(job):
        with loop, _internal.WorkerScope(), watch():
            if max_ahead is None:
                return make(job)
            with lock:
                job = next(source, end)
            return end if job is end else make(job)

    try:
        while True:
            while len(waiting) < ahead:
                job = None if max_ahead else next(source, end)
                if job is end:
                    break
                waiting.append(pool.submit(work, job))
            if not waiting:
                return
            batch = waiting.popleft().result()
            if batch is end:
                return
            yield batch
    finally:
        loop.end()
        for future in waiting:
            future.cancel()
        if pool is not loader._pool:
            pool.shutdown()


def _make_pool(loader):
    numbers = iter(range(loader.num_workers))
    seed = _internal.default_seed()

    def begin():
        number = next(numbers)
        _worker.info = WorkerInfo(id=number, num_workers=loader.num_workers, seed=seed + number, dataset=loader.dataset)

    pool = Workers(loader.num_workers, "lockstep-loader", begin)
    if loader.worker_init_fn is not None:
        together = threading.Barrier(loader.num_workers)  # so that each thread makes one call

        def init(_):
            together.wait()
            return loader.worker_init_fn(_worker.info.id)

        try:
            with _draws.kept("worker_init_fn"):
                for done in [pool.submit(init, n) for n in range(loader.num_workers)]:
                    done.result()
        except BaseException:
            pool.shutdown()
            raise
    return pool


from . import distributed  # noqa: F401,E402
