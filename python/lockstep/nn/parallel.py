"""Models on several devices and in several processes, as torch.nn.parallel."""

import copy

from .. import _core, distributed as _distributed
from .._core import Tensor, internal as _internal
from ..utils.data import _Structure


class _Wrapper(_internal.ModelWrapper):
    """A module with the parameters, names, and mode of another, `module`."""

    def train(self, mode=True):
        """Switch the model to training mode, or with mode=False to evaluation."""
        super().train(mode)
        self.module.train(mode)
        return self

    def __repr__(self):
        return f"{type(self).__name__}(\n  (module): " + repr(self.module).replace("\n", "\n  ") + "\n)"

    def __deepcopy__(self, memo):
        new = memo[id(self)] = type(self).__new__(type(self))
        _Wrapper.__init__(new, copy.deepcopy(self.module, memo))
        for name, value in self.__dict__.items():
            if name not in new.__dict__ and name != "_joined":
                object.__setattr__(new, name, copy.deepcopy(value, memo))
        new._copied()
        new.training = self.training
        return new

    def _copied(self):
        pass


class DataParallel(_Wrapper):
    """Split each batch over the devices, run the model on each part, and gather the outputs on the first device.

    Without device_ids, all devices of the program. The model has replicas on all of them; nothing is copied in a call.
    Names get no prefix: state_dict() is the model's. shards: the number of parts; 0: one for each device. With
    shards=8 the bits do not depend on the number of devices.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, *, shards=0, weights=()):
        if dim != 0:
            raise ValueError(f"DataParallel: dim is {dim}, expected 0: a batch is cut along axis 0")
        all_devices = _core.devices()
        chosen = all_devices if device_ids is None else [_device(d, all_devices) for d in device_ids]
        if not chosen:
            raise ValueError("DataParallel: no devices")
        _internal.place_on(module, chosen)
        super().__init__(module)
        self._set("device_ids", chosen)
        self._set("output_device", chosen[0] if output_device is None else _device(output_device, all_devices))
        self._set("dim", 0)
        self._set("_shards", shards)
        self._set("_weights", list(weights))

    def _set(self, name, value):
        object.__setattr__(self, name, value)

    def _copied(self):
        _internal.place_on(self.module, self.device_ids)

    def to(self, *args, **kwargs):
        """Cast the model. It does not move: a device must be its first one."""
        device = kwargs.pop("device", None)
        rest = [a for a in args if not (isinstance(a, (int, str)) or type(a) is type(self.device_ids[0]))]
        for wanted in [device, *(a for a in args if a not in rest)]:
            if wanted is None:
                continue
            first = self.device_ids[0]
            found = _device(wanted, _core.devices())
            if found.type != first.type or found.index not in (None, first.index):
                raise ValueError(f"DataParallel: to({wanted!r}), but the model is on {self.device_ids}: expected the "
                                 "first of them, or DataParallel(module, device_ids=...)")
        if rest or kwargs:
            self.module.to(*rest, **kwargs)
        return self

    def forward(self, *inputs, **kwargs):
        arguments = _Structure((inputs, kwargs))
        if not arguments.tensors:
            raise ValueError("DataParallel: no tensor among the inputs, expected a batch to split")
        cut = [_internal.split_and_load(x, self.device_ids, self._shards, self._weights) for x in arguments.tensors]
        shape = rest = None

        def replica(shard):
            nonlocal shape, rest
            args, kw = arguments.with_tensors(shard)
            mine = _Structure(self.module(*args, **kw))
            others = mine.with_tensors([None] * len(mine.tensors))
            if shape is not None and others != rest:
                raise TypeError(f"DataParallel: forward() gives {others!r} for one shard and {rest!r} for another, "
                                "expected equal results but for tensors")
            shape, rest = mine, others
            return mine.tensors

        outputs = _internal.per_shard(replica, cut)
        return shape.with_tensors([_internal.gather(y, self.output_device) for y in outputs])


def per_shard(f, *inputs):
    """Call f for each shard of a batch that is cut over devices, with the shard's rows of each input as whole tensors,
    and join the results along axis 0. f returns a tensor or a tuple of tensors. Use it where cut tensors fail.
    """
    several = False

    def call(shard):
        nonlocal several
        result = f(*shard)
        several = isinstance(result, (tuple, list))
        return list(result) if several else [result]

    joined = _internal.per_shard(call, list(inputs))
    return tuple(joined) if several else joined[0]


def scatter(inputs, target_gpus, dim=0):
    """Cut tensors along an axis into a piece for each device, and return the pieces: a tuple of a tensor; a list with a
    tuple, list, or dict for each device of one of these. Everything else goes to each device as it is."""
    all_devices = _core.devices()
    devices = [_device(d, all_devices) for d in target_gpus]

    def cut(x):
        if isinstance(x, Tensor):
            return tuple(piece.to(device) for piece, device in zip(x.chunk(len(devices), dim), devices))
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return [type(x)(*values) for values in zip(*map(cut, x))]
        if isinstance(x, tuple) and x:
            return list(zip(*map(cut, x)))
        if isinstance(x, list) and x:
            return [list(values) for values in zip(*map(cut, x))]
        if isinstance(x, dict) and x:
            return [type(x)(items) for items in zip(*map(cut, x.items()))]
        return [x for _ in devices]

    return cut(inputs)


def gather(outputs, target_device, dim=0):
    """Join tensors of several devices along an axis on one device: the reverse of scatter()."""
    target = _core.device("cpu") if target_device == -1 else _device(target_device, _core.devices())

    def join(values):
        first = values[0]
        if isinstance(first, Tensor):
            return _core.cat([x.to(target).reshape(x.shape or (1,)) for x in values], dim)
        if first is None:
            return None
        if isinstance(first, dict):
            return type(first)((key, join([x[key] for x in values])) for key in first)
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*map(join, zip(*values)))
        return type(first)(map(join, zip(*values)))

    return join(list(outputs))


def _device(device, all_devices):
    if isinstance(device, int):
        if not 0 <= device < len(all_devices):
            raise ValueError(f"device {device}, expected one of the program's {len(all_devices)} devices")
        return all_devices[device]
    return _core.device(device) if isinstance(device, str) else device


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Run a module on several devices once: DataParallel(module, ...)(*inputs, **module_kwargs)."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))


class DistributedDataParallel(_Wrapper):
    """Train a model in several processes: backward() averages the gradients of its parameters over all ranks.

    A call takes this rank's rows and returns their output; a loss computed from the output is this rank's loss. The
    parameters get the mean of all ranks' gradients. Everything else, such as an input or a head after the model, gets
    the gradient of this rank's loss. All ranks must pass the same number of rows, because the mean of the ranks' losses
    must weigh all samples equally; otherwise all ranks raise an error. Inputs with as many rows as the first one are
    cut along axis 0 over this rank's devices. Batch norm's running statistics cover the rows of all ranks. Other
    buffers that forward() changes get rank 0's values. For batches of any size, and the bits of one process, use
    `for x, y in loader.on(ddp)`; then outputs and loss are those of the whole job.

    Names get no prefix. shards: the number of parts of the batch of the whole job; 0: one for each device of each rank.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, process_group=None,
                 bucket_cap_mb=25, find_unused_parameters=False, check_reduction=False, gradient_as_bucket_view=False,
                 static_graph=False, *, shards=0, weights=(), gradients=None, recipe=""):
        _distributed._of(process_group)
        if dim != 0:
            raise ValueError(f"DistributedDataParallel: dim is {dim}, expected 0: a batch is cut along axis 0")
        if not broadcast_buffers:
            raise ValueError("DistributedDataParallel: broadcast_buffers=False is not supported: buffers are equal on "
                             "all ranks")
        for name, ids in (("device_ids", device_ids), ("output_device", output_device)):
            if isinstance(ids, (list, tuple)) and len(ids) > 1:
                raise ValueError(f"DistributedDataParallel: {name} {ids}, expected one, or None: a rank trains on all "
                                 "of its devices")
        super().__init__(module)
        object.__setattr__(self, "device_ids", device_ids)
        object.__setattr__(self, "_options", (shards, list(weights), _core.float32 if gradients is None else gradients,
                                              max(1, int(bucket_cap_mb * (1 << 20))), recipe))
        object.__setattr__(self, "_joined", _internal.DistributedModel(module, *self._options))

    # A copy joins the other ranks' copies when it first trains, so that one rank may keep a copy that only evaluates.
    @property
    def _splitter(self):
        if "_joined" not in self.__dict__:
            _distributed._of()
            object.__setattr__(self, "_joined", _internal.DistributedModel(self.module, *self._options))
        return self._joined

    def forward(self, *inputs, **kwargs):
        arguments = _Structure((inputs, kwargs))
        if any(_internal.is_cut(x) for x in arguments.tensors):
            return self.module(*inputs, **kwargs)
        # In evaluation mode without gradients, or without tensors, each rank computes what it wants to.
        if not arguments.tensors or not (_core.is_grad_enabled() or self.training):
            return self.module(*inputs, **kwargs)
        outputs = None

        def call(rows):
            nonlocal outputs
            args, kw = arguments.with_tensors(rows)
            outputs = _Structure(self.module(*args, **kw))
            return outputs.tensors

        results = self._splitter.call_own(call, arguments.tensors)
        return outputs.with_tensors(results)

    def no_sync(self):
        """In its scope, backward() adds up gradients without summing them over the ranks; the next one outside does."""
        return self._splitter.no_sync()


DistributedDataParallel.__module__ = DataParallel.__module__ = "lockstep.nn.parallel"
