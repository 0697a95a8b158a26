"""Process groups and collectives, as torch.distributed.

init_process_group() makes this process a rank of a job: from then on its devices are lockstep.devices(). Sums have the
same bits in every run and on every number of ranks that adds the same numbers.
"""

import atexit
import contextlib
import datetime
import os
import pickle
import sys

from . import _core
from ._core import internal as _internal
from .grad_mode import no_grad as _no_grad
from ._core import RankLost  # noqa: F401

_job = None
# In a process of multiprocessing.spawn(): the address where its ranks meet.
_place = None
# If one of these is set, a launcher has started this process.
_LAUNCHERS = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID", "LOCAL_RANK")


class ReduceOp:
    """The operation by which a collective combines the ranks' elements."""

    SUM = "sum"
    PRODUCT = "product"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


class Work:
    """The handle of async_op=True. The collective has already ended when the handle is made."""

    def wait(self):
        return True

    def is_completed(self):
        return True


@contextlib.contextmanager
def _environment(values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _seconds(time):
    return time.total_seconds() if isinstance(time, datetime.timedelta) else float(time or 0)


def is_available():
    """Return True: process groups are part of the library."""
    return True


def is_nccl_available():
    """Return whether there is a GPU."""
    return any(d.type == "cuda" for d in _core.devices())


def is_gloo_available():
    """Return True: "gloo" is the library's own backend for host memory."""
    return True


def is_mpi_available():
    """Return True; init_process_group("mpi") says if MPI is missing."""
    return True


def is_initialized():
    """Return whether init_process_group() was called."""
    return _job is not None


def get_default_backend_for_device(device):
    """Return "nccl" for GPUs and "gloo" for CPU devices and for None, which torch.accelerator.current_accelerator()
    returns without GPUs."""
    return "nccl" if device is not None and _core.device(device).type == "cuda" else "gloo"


def is_torchelastic_launched():
    """Return whether torchrun or `lockstep launch` has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ or "LOCKSTEP_LAUNCHER_STORE" in os.environ


def _meeting_place(rank, world_size):
    """Return variables for init_process_group(): in a process of spawn(), the ranks meet through the parent."""
    if _place is None or (world_size not in (-1, _place["nprocs"]) or rank not in (-1, _place["rank"])):
        return {}
    return {"RANK": str(_place["rank"]), "WORLD_SIZE": str(_place["nprocs"]), "LOCAL_RANK": str(_place["rank"]),
            "LOCAL_WORLD_SIZE": str(_place["nprocs"]), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_place["port"]),
            "LOCKSTEP_LAUNCHER_STORE": "1", "LOCKSTEP_SECRET": _place["secret"]}


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="",
                       device_id=None, *, devices=None):
    """Join the job. Collective: returns when all ranks have joined.

    backend: "gloo" (or "host"), "nccl", "mpi", or None for the best one. rank and world_size may come from the
    environment, as MASTER_ADDR and MASTER_PORT do (init_method "env://"), or from "tcp://host:port". timeout: seconds
    or a timedelta; a rank whose process is silent for so long is lost. devices: the number of CPU devices of this rank,
    or a list such as "cuda:0,cuda:1", of which rank r of a host takes entry r; otherwise LOCKSTEP_DEVICES.
    """
    global _job
    if _job is not None:
        raise RuntimeError("trying to initialize the default process group twice!")
    if store is not None:
        raise ValueError("init_process_group: store is not supported, expected MASTER_ADDR and MASTER_PORT, or "
                         "init_method='tcp://host:port'")
    if device_id is not None:
        raise ValueError("init_process_group: device_id is not supported, expected devices='cuda:0,cuda:1'")
    environment = {}
    if init_method not in (None, "env://"):
        if not init_method.startswith("tcp://") or ":" not in init_method[6:]:
            raise ValueError(f"init_process_group: init_method {init_method!r}, expected env:// or tcp://host:port")
        address, port = init_method[6:].rsplit(":", 1)
        environment = {"MASTER_ADDR": address, "MASTER_PORT": port}
        if rank < 0 or world_size < 0:
            raise ValueError("init_process_group: init_method 'tcp://...' needs rank and world_size")
    environment.update(_meeting_place(rank, world_size))
    launched = any(name in os.environ or name in environment for name in _LAUNCHERS)
    if rank < 0 and world_size < 0 and not launched:
        raise ValueError("init_process_group: environment variable RANK expected, but not set: this process would "
                         "train alone. Start it by multiprocessing.spawn(), `lockstep launch`, torchrun, srun, or "
                         "mpirun, or give rank and world_size")
    if environment.get("LOCKSTEP_LAUNCHER_STORE") is None and init_method not in (None, "env://"):
        environment["LOCKSTEP_LAUNCHER_STORE"] = "0"
    wanted = devices if devices is not None else os.environ.get("LOCKSTEP_DEVICES", "")
    count, names = (int(wanted), "") if str(wanted).isdigit() else (0, str(wanted))
    # If a launcher started this process, "cpu:0,cpu:1" names the devices of all ranks of a host.
    with _environment(environment):
        _job = _internal.Job("auto" if backend is None else backend.lower(), rank, world_size, _seconds(timeout), 0.0,
                         names, count)


def destroy_process_group(group=None):
    """Leave the job. Collective: waits for this rank's work and for all ranks.

    Raises if work failed or a rank is lost. While an exception is propagating, as in `finally`, does not wait for ranks
    that wait for this one: they get RankLost with the exception.
    """
    global _job
    _of(group)
    job, _job = _job, None
    error = sys.exc_info()[1]
    if error is None:
        return job.close()
    job.abort(f"{type(error).__name__}: {error}")
    try:
        job.close()
    except _core.Error:
        pass  # caused by `error`


# If a program ends without destroy_process_group(), tells the other ranks why.
@atexit.register
def _leave():
    global _job
    job, _job = _job, None
    if job is None:
        return
    error = getattr(sys, "last_value", None)
    try:
        if error is not None:
            job.abort(f"{type(error).__name__}: {error}")
        job.close()
    except _core.RankLost:
        pass  # other ranks report it
    except _core.Error as failure:
        # Only this rank knows of its own failure that nothing has read.
        if error is None and not isinstance(failure.__cause__, _core.RankLost):
            print(f"lockstep: failure at the end of the job: {failure}", file=sys.stderr)


def _of(group=None):
    if group not in (None, _WORLD):
        raise ValueError("distributed: groups of some ranks are not supported, expected the group of all ranks")
    if _job is None:
        raise RuntimeError("Default process group has not been initialized, please make sure to call "
                           "init_process_group.")
    return _job


class _World:
    WORLD = None


_WORLD = object()
group = _World()
group.WORLD = _WORLD


def new_group(ranks=None, timeout=None, backend=None, pg_options=None):
    """Return the group of all ranks. Groups of some ranks are not supported."""
    if ranks is not None and sorted(ranks) != list(range(_of().world_size)):
        raise _core.Error(f"new_group: ranks {list(ranks)}, expected all {_of().world_size}: groups of some ranks are "
                          "not supported")
    return _WORLD


def get_rank(group=None):
    """Return this process's rank."""
    return _of(group).rank


def get_world_size(group=None):
    """Return the number of ranks."""
    return _of(group).world_size


def get_backend(group=None):
    """Return the backend that exchanges gradients: "host" (gloo), "nccl", or "mpi"."""
    name = _of(group).backend
    return "gloo" if name in ("host", "local") else name


def _done(async_op):
    return Work() if async_op else None


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Replace `tensor` by the ranks' sum (or mean, product, least, greatest)."""
    job = _of(group)
    if op == ReduceOp.PRODUCT:
        product, *others = job.all_gather(tensor)
        with _no_grad():
            for other in others:
                product = product * other
            tensor.copy_(product)
        return _done(async_op)
    if op == ReduceOp.AVG:
        if not tensor.is_floating_point():
            raise TypeError(f"all_reduce: the mean of {tensor.dtype}, expected a floating type, or ReduceOp.SUM")
        job.all_reduce(tensor, ReduceOp.SUM)
        with _no_grad():
            tensor.div_(job.world_size)
    else:
        job.all_reduce(tensor, op)
    return _done(async_op)


def _check_rank(what, rank, group):
    if not 0 <= rank < get_world_size(group):
        raise ValueError(f"{what} is {rank}, expected a rank of the {get_world_size(group)}")


def reduce(tensor, dst, op=ReduceOp.SUM, group=None, async_op=False):
    """Replace `tensor` of rank `dst` by the ranks' sum; other ranks keep theirs."""
    _check_rank("reduce: dst", dst, group)
    if get_rank(group) == dst:
        return all_reduce(tensor, op, group, async_op)
    all_reduce(tensor.detach().clone(), op, group)
    return _done(async_op)


def broadcast(tensor, src, group=None, async_op=False):
    """Replace `tensor` by that of rank `src`."""
    _of(group).broadcast(tensor, src)
    return _done(async_op)


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Write every rank's tensor to tensor_list, in the order of ranks. All have one shape."""
    job = _of(group)
    if len(tensor_list) != job.world_size:
        raise ValueError(f"all_gather: {len(tensor_list)} tensors for the results, expected {job.world_size}")
    every = job.all_gather(tensor)
    with _no_grad():
        for rank, out in enumerate(tensor_list):
            out.copy_(every[rank])
    return _done(async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """Write all ranks' tensors to output_tensor, in the order of ranks."""
    every = _of(group).all_gather(input_tensor)
    with _no_grad():
        output_tensor.copy_(every.reshape(tuple(output_tensor.shape)))
    return _done(async_op)


def gather(tensor, gather_list=None, dst=0, group=None, async_op=False):
    """Write every rank's tensor to gather_list of rank `dst`."""
    _check_rank("gather: dst", dst, group)
    if get_rank(group) == dst and (gather_list is None or len(gather_list) != get_world_size(group)):
        raise ValueError(f"gather: rank {dst} needs a gather_list of {get_world_size(group)} tensors")
    every = _of(group).all_gather(tensor)
    if get_rank(group) == dst:
        with _no_grad():
            for rank, out in enumerate(gather_list):
                out.copy_(every[rank])
    return _done(async_op)


def scatter(tensor, scatter_list=None, src=0, group=None, async_op=False):
    """Write entry r of rank src's scatter_list to `tensor` of rank r."""
    job = _of(group)
    if job.rank == src and len(scatter_list or ()) != job.world_size:
        raise ValueError(f"scatter: rank {src} needs a scatter_list of {job.world_size} tensors")
    with _no_grad():
        every = _core.stack(list(scatter_list) if job.rank == src else [tensor] * job.world_size).detach()
        job.broadcast(every, src)
        tensor.copy_(every[job.rank])
    return _done(async_op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Write the ranks' sum of entry r of their input_lists to `output` of rank r."""
    job = _of(group)
    if len(input_list) != job.world_size:
        raise ValueError(f"reduce_scatter: {len(input_list)} tensors, expected {job.world_size}")
    with _no_grad():
        every = _core.stack(list(input_list)).detach()
        all_reduce(every, op, group)
        output.copy_(every[job.rank])
    return _done(async_op)


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """Do what reduce_scatter() does, for one tensor that is cut along axis 0."""
    parts = input.reshape((_of(group).world_size, *output.shape))
    return reduce_scatter(output, list(parts), op, group, async_op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Write entry r of rank s's inputs to entry s of rank r's outputs. All have one shape."""
    job = _of(group)
    if len(input_tensor_list) != job.world_size or len(output_tensor_list) != job.world_size:
        raise ValueError(f"all_to_all: {len(input_tensor_list)} inputs and {len(output_tensor_list)} outputs, expected "
                         f"{job.world_size}")
    with _no_grad():
        every = job.all_gather(_core.stack(list(input_tensor_list)).detach())
        for rank, output in enumerate(output_tensor_list):
            output.copy_(every[rank, job.rank])
    return _done(async_op)


# Unpickling runs code that the sender chose, so every sender must have proved that it belongs to the job.
def _of_trusted(what, group):
    job = _of(group)
    if job.backend == "mpi" and job.world_size > 1:
        raise _core.Error(f"{what}: unpickling an object runs code that its sender chose, and MPI's processes prove "
                          "nothing to each other: expected backend 'gloo', whose ranks prove that they know the job's "
                          "secret, or tensors")
    return job


def all_gather_object(object_list, obj, group=None):
    """Write every rank's object, which is pickled, to object_list.

    Unpickling runs code: as in PyTorch, each rank can run any code in the others. Only ranks that have proved that they
    belong to the job get here (see SECURITY.md); with backend "mpi", which has no proof, this is an error.
    """
    job = _of_trusted("all_gather_object", group)
    if len(object_list) != job.world_size:
        raise ValueError(f"all_gather_object: a list of {len(object_list)}, expected {job.world_size}")
    data = pickle.dumps(obj)
    sizes = job.all_gather(_core.tensor([len(data)])).reshape(-1).tolist()
    padded = data + bytes(max(sizes) - len(data))
    every = job.all_gather(_core.tensor(list(padded), dtype=_core.uint8))
    for rank, size in enumerate(sizes):
        object_list[rank] = pickle.loads(bytes(every[rank].tolist()[:size]))


def gather_object(obj, object_gather_list=None, dst=0, group=None):
    """Write every rank's object to object_gather_list of rank `dst`. Runs code of the ranks, as all_gather_object()."""
    _of_trusted("gather_object", group)
    _check_rank("gather_object: dst", dst, group)
    every = [None] * get_world_size(group)
    if get_rank(group) == dst and (object_gather_list is None or len(object_gather_list) != len(every)):
        raise ValueError(f"gather_object: rank {dst} needs an object_gather_list of {len(every)}")
    all_gather_object(every, obj, group)
    if get_rank(group) == dst:
        object_gather_list[:] = every


def broadcast_object_list(object_list, src=0, group=None, device=None):
    """Replace the objects of the list by those of rank `src`. Runs code of that rank, as all_gather_object()."""
    job = _of_trusted("broadcast_object_list", group)
    data = pickle.dumps(list(object_list)) if job.rank == src else b""
    size = _core.tensor([len(data)])
    job.broadcast(size, src)
    bytes_ = _core.tensor(list(data) if job.rank == src else [0] * size.item(), dtype=_core.uint8)
    job.broadcast(bytes_, src)
    found = pickle.loads(bytes(bytes_.tolist()))
    if len(found) != len(object_list):
        raise ValueError(f"broadcast_object_list: a list of {len(object_list)}, but rank {src} has {len(found)}")
    object_list[:] = found


def scatter_object_list(scatter_object_output_list, scatter_object_input_list, src=0, group=None):
    """Write entry r of rank src's inputs to the first entry of rank r's outputs.

    Runs code of that rank, as all_gather_object().
    """
    _of_trusted("scatter_object_list", group)
    every = list(scatter_object_input_list) if get_rank(group) == src else [None] * get_world_size(group)
    broadcast_object_list(every, src, group)
    scatter_object_output_list[0] = every[get_rank(group)]


def send(tensor, dst, group=None, tag=0):
    """Send a tensor to rank `dst`."""
    _of(group).send(tensor, dst, tag)


def recv(tensor, src=None, group=None, tag=0):
    """Receive a tensor of the same shape and type from rank `src`."""
    if src is None:
        raise ValueError("recv: src is None, expected the sender's rank")
    _of(group).receive(tensor, src, tag)
    return src


def barrier(group=None, async_op=False, device_ids=None):
    """Wait until all ranks call this."""
    _of(group).barrier()
    return _done(async_op)
