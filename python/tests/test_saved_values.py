"""A write between forward and backward: the gradient is that of the elements of the forward pass, or an error.

Each function of PyTorch's own samples, and those that have none there. Every tensor that it takes and that it returns
is written in turn.
"""

import warnings

import numpy as np
import pytest

import lockstep
import lockstep.nn.functional as F

MOST = 3  # samples of a function


def tensors(x):
    if isinstance(x, lockstep.Tensor):
        yield x
    elif isinstance(x, (list, tuple, dict)):
        for item in x.values() if isinstance(x, dict) else x:
            yield from tensors(item)


def write(x):
    with lockstep.no_grad():
        if x.dtype == lockstep.bool:
            x.fill_(True)
        elif x.is_floating_point():
            x.mul_(3)
            x.add_(1)
        else:
            x.zero_()


def gradients(make, written):
    """The inputs' gradients, and the number of tensors, of which number `written` is written. None: no gradients, or
    the write or the backward pass was refused."""
    leaves, arguments, result = make()
    places = [*tensors(arguments), *tensors(result)]
    outputs = [x for x in tensors(result) if x.requires_grad]
    if not outputs:
        return None, 0
    random = np.random.default_rng(0)
    seeds = [lockstep.tensor(random.uniform(0.5, 1.5, tuple(x.shape)).astype("f4")).to(x.dtype) for x in outputs]
    try:
        if written is not None:
            write(places[written])
        found = lockstep.autograd.grad(outputs, leaves, seeds, allow_unused=True)
    except lockstep.Error:
        return None, len(places)
    return [None if x is None else np.array(x.numpy()) for x in found], len(places)


def wrong_writes(make):
    """The numbers of the tensors whose write changes a gradient, and how many were written."""
    right, count = gradients(make, None)
    if right is None:
        return [], 0
    wrong = []
    for i in range(count):
        found, _ = gradients(make, i)
        if found is not None and not all(
                (a is None) == (b is None) and (a is None or np.array_equal(a, b, equal_nan=True))
                for a, b in zip(right, found)):
            wrong.append(i)
    return wrong, count


def samples():
    """(name, function that calls it anew) of PyTorch's samples."""
    torch = pytest.importorskip("torch")
    import parity

    for op in parity.op_db:
        calls = list(parity.calls_of(op))
        if op.name in parity.RANDOM or not calls or not op.supports_autograd or not op.supports_dtype(
                torch.float32, "cpu"):
            continue
        torch.manual_seed(0)
        np.random.seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                all_samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
            except Exception:
                continue
        for sample in all_samples[::max(1, len(all_samples) // MOST)]:
            def make(sample=sample, function=calls[0][1]):
                leaves = []
                arguments = parity.convert(parity.arguments_of(sample), leaves)
                result = function(arguments[0], *arguments[1], **arguments[2])
                return [ours for _, ours in leaves], arguments, result

            yield op.name, make


def test_functions_of_pytorchs_samples():
    found, writes = set(), 0
    for name, make in samples():
        try:
            wrong, count = wrong_writes(make)
        except (NotImplementedError, TypeError, ValueError, RuntimeError, IndexError):
            continue  # arguments that Lockstep does not take
        writes += count
        found.update((name, i) for i in wrong)
    assert not found
    assert writes > 1500


def leaf(*shape):
    return lockstep.tensor(np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape).astype("f4")).requires_grad_()


CALLS = {
    "affine_grid": lambda x: F.affine_grid(x, [2, 1, 3, 3], align_corners=False),
    "conv3d": lambda x, w: F.conv3d(x, w),
    "fold": lambda x: F.fold(x, (3, 3), 2),
    "lp_pool2d": lambda x: F.lp_pool2d(x, 3, 2),
    "rms_norm": lambda x, w: F.rms_norm(x, (4,), w),
    "attention": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "max_pool2d": lambda x: F.max_pool2d(x, 2, return_indices=True),
}
SHAPES = {
    "affine_grid": [(2, 2, 3)],
    "conv3d": [(1, 1, 3, 3, 3), (2, 1, 2, 2, 2)],
    "fold": [(1, 4, 4)],
    "lp_pool2d": [(1, 2, 4, 4)],
    "rms_norm": [(3, 4), (4,)],
    "attention": [(1, 2, 3, 4)] * 3,
    "max_pool2d": [(1, 2, 4, 4)],
}


@pytest.mark.parametrize("name", CALLS)
def test_others(name):
    def make():
        leaves = [leaf(*shape) for shape in SHAPES[name]]
        arguments = [x * 1 for x in leaves]
        return leaves, arguments, CALLS[name](*arguments)

    wrong, count = wrong_writes(make)
    assert count > 1
    assert not wrong
