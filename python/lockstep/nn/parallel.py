"""Models on several devices and in several processes, as torch.nn.parallel."""

from .. import _core, distributed
from .._core import internal as _internal
from .._core import Tensor
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

    def to(self, *args, **kwargs):
        """Cast the model. It stays where it is: a device must be its first one."""
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
    """Call f for each shard of a batch that is cut over devices, with that shard's rows of each input as whole tensors,
    and join the results along axis 0. f returns a tensor, or a tuple of tensors. For what is an error on cut tensors.
    """
    several = False

    def call(shard):
        nonlocal several
        result = f(*shard)
        several = isinstance(result, (tuple, list))
        return list(result) if several else [result]

    joined = _internal.per_shard(call, list(inputs))
    return tuple(joined) if several else joined[0]


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
    """A model of several processes: its gradients are the mean of all ranks', summed while backward runs.

    The output of a call is that of this rank's rows, and so is a loss computed from it. Every rank passes as many rows;
    otherwise the mean of the ranks' losses would not weigh all samples equally, which is an error on all ranks. Inputs
    are cut along axis 0. While it runs, forward() sees the rows of all ranks: batch norm's running statistics are those
    of the whole batch. For batches of any size, and the bits of one process, use `for x, y in loader.on(ddp)`; then
    outputs and loss are those of the whole job.

    Names get no prefix. shards: the number of parts of the batch of the whole job; 0: one for each device of each rank.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, process_group=None,
                 bucket_cap_mb=25, find_unused_parameters=False, check_reduction=False, gradient_as_bucket_view=False,
                 static_graph=False, *, shards=0, weights=(), gradients=None, recipe=""):
        distributed._of(process_group)
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
        object.__setattr__(self, "_splitter", _internal.DistributedModel(
            module, shards, list(weights), _core.float32 if gradients is None else gradients,
            max(1, int(bucket_cap_mb * (1 << 20))), recipe))

    def forward(self, *inputs, **kwargs):
        arguments = _Structure((inputs, kwargs))
        if any(_internal.is_cut(x) for x in arguments.tensors):
            return self.module(*inputs, **kwargs)
        # Without gradients, each rank computes what it wants to.
        if not arguments.tensors or not (_core.is_grad_enabled() or self.training):
            return self.module(*inputs, **kwargs)
        rows = [x.cpu() if isinstance(x, Tensor) else x for x in arguments.tensors]
        args, kw = arguments.with_tensors(self._splitter.split_own(rows))
        outputs = _Structure(self.module(*args, **kw))
        share = 1 / distributed.get_world_size()
        device = self._splitter.devices[0]
        return outputs.with_tensors([_internal.own_rows(y, device, share) if _internal.is_cut(y) else y
                                     for y in outputs.tensors])

    def no_sync(self):
        """In its scope, backward() adds up gradients without summing them over the ranks; the next one outside does."""
        return self._splitter.no_sync()


DistributedDataParallel.__module__ = DataParallel.__module__ = "lockstep.nn.parallel"
