"""Compares modules with PyTorch's on PyTorch's own sample inputs (torch.testing's module_db).

    PYTHONPATH=build/python python3 python/tests/parity_modules.py [NAME...]

With equal weights: outputs, gradients of inputs and of parameters, in training and evaluation, and repr(). Prints a
line
for each module that this package lacks or that differs.
"""

import sys
import types
import unittest
import warnings

import torch

# A module that PyTorch's own tests import, and that nothing here uses.
expecttest = sys.modules.setdefault("expecttest", types.ModuleType("expecttest"))
expecttest.__dict__.setdefault("TestCase", unittest.TestCase)
expecttest.__dict__.setdefault("ACCEPT", True)

from torch.testing._internal.common_modules import module_db  # noqa: E402

import lockstep  # noqa: E402

warnings.filterwarnings("ignore")

# What differs on purpose, by module: a part of the message, and the reason.
KNOWN = {
    "AdaptiveAvgPool2d": ["repr: "],  # prints numbers for all axes
    "MaxPool2d": ["repr: ", "return_indices=True"],
    "MultiheadAttention": ["add_bias_kv or add_zero_attn"],
    "ConvTranspose3d": ["not there"],
    "LazyConvTranspose3d": ["not there"],
}


def to_lockstep(value, leaves):
    """Turn PyTorch's tensors into this package's; `leaves` gets the pairs that need a gradient."""
    if isinstance(value, torch.Tensor):
        x = value.detach()
        mine = lockstep.from_numpy(x.numpy().copy())
        if value.requires_grad:
            mine.requires_grad_(True)
            leaves.append((value, mine))
        return mine
    if isinstance(value, torch.nn.Module):
        return to_module(value)
    if isinstance(value, dict):
        return {k: to_lockstep(v, leaves) for k, v in value.items()}
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        return type(value)(to_lockstep(v, leaves) for v in value)
    if isinstance(value, torch.dtype):
        return getattr(lockstep, str(value).split(".")[1])
    if isinstance(value, torch.device):
        return "cpu"
    if callable(value) and getattr(torch.nn.functional, getattr(value, "__name__", ""), None) is value:
        return getattr(lockstep.nn.functional, value.__name__)
    return value


def to_module(theirs):
    """Make the same module."""
    raise NotImplementedError(f"a {type(theirs).__name__} among the arguments")


def tensors(value):
    """Yield the tensors of a result."""
    if isinstance(value, (torch.Tensor, lockstep.Tensor)):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors(v)


def close(what, theirs, mine):
    """Raise where values or shapes differ."""
    shapes = tuple(mine.shape), tuple(theirs.shape)
    assert shapes[0] == shapes[1], f"{what}: shape {shapes[0]}, expected {shapes[1]}"
    mine = torch.from_numpy(mine.detach().cpu().numpy()).to(theirs.dtype)
    assert torch.allclose(theirs.detach(), mine, rtol=2e-4, atol=2e-5, equal_nan=True), \
        f"{what}: differ by {(theirs.detach() - mine).abs().max().item():.3g}"


def compare(cls, mine_cls, sample, training, check_repr):
    """Raise where the two modules differ for this sample."""
    torch.manual_seed(0)
    args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
    theirs = cls(*args, **kwargs)
    mine = mine_cls(*to_lockstep(args, []), **to_lockstep(kwargs, []))
    if check_repr and not args_have_callables(args, kwargs):
        # The library's attention has a plain Linear.
        expected = repr(theirs).replace("NonDynamicallyQuantizableLinear", "Linear")
        assert repr(mine) == expected, f"repr: {mine!r}, expected {expected}"
    inputs, named = sample.forward_input.args, sample.forward_input.kwargs
    if "Lazy" in cls.__name__:
        theirs(*inputs, **named)  # decides the shapes
        theirs.zero_grad()
    mine.load_state_dict({k: to_lockstep(v, []) for k, v in theirs.state_dict().items()})
    theirs.train(training), mine.train(training)
    leaves = []
    my_inputs, my_named = to_lockstep(inputs, leaves), to_lockstep(named, leaves)
    expected, found = list(tensors(theirs(*inputs, **named))), list(tensors(mine(*my_inputs, **my_named)))
    assert len(expected) == len(found), f"{len(found)} results, expected {len(expected)}"
    for i, (a, b) in enumerate(zip(expected, found)):
        close(f"result {i}", a, b)
    ends = [(a, b) for a, b in zip(expected, found) if a.requires_grad]
    if not ends:
        return
    # A weight for each element, so that no gradient is lost in a sum.
    total, my_total = 0, None
    for a, b in ends:
        w = torch.linspace(-1, 1, a.numel()).reshape(a.shape)
        part = (b * lockstep.from_numpy(w.numpy().copy())).sum()
        total, my_total = total + (a * w).sum(), part if my_total is None else my_total + part
    total.backward(), my_total.backward()
    for i, (a, b) in enumerate(leaves):
        if a.grad is not None:
            close(f"gradient of input {i}", a.grad, b.grad)
    for (name, a), (_, b) in zip(theirs.named_parameters(), mine.named_parameters()):
        if a.grad is not None:
            assert b.grad is not None, f"gradient of {name}: None"
            close(f"gradient of {name}", a.grad, b.grad)
    for (name, a), (_, b) in zip(theirs.named_buffers(), mine.named_buffers()):
        close(f"buffer {name}", a, b)


def args_have_callables(args, kwargs):
    """Whether repr() may print an address."""
    return any(callable(v) for v in (*args, *kwargs.values()))


def samples(info):
    """Return PyTorch's samples for a module, or None where they cannot be made."""
    return info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)


def run(names=None):
    """Return (number of comparisons, lines of differences)."""
    count, lines = 0, []
    for info in module_db:
        cls = info.module_cls
        name = cls.__name__
        if names and name not in names:
            continue
        mine = getattr(lockstep.nn, name, None)
        if mine is None:
            if "not there" not in KNOWN.get(name, ()):
                lines.append(f"{name}: not there")
            continue
        errors = {}
        for training in (True, False):
            for sample in samples(info):
                count += 1
                try:
                    compare(cls, mine, sample, training, check_repr=True)
                except Exception as error:  # noqa: BLE001: every kind is a disagreement
                    text = f"{type(error).__name__}: {error}"[:400]
                    if not any(part in text for part in KNOWN.get(name, ())):
                        errors.setdefault(text, getattr(sample, "desc", ""))
        lines += [f"{name} [{desc}]: {text}" for text, desc in errors.items()]
    return count, lines


if __name__ == "__main__":
    total, differences = run(sys.argv[1:])
    print("\n".join(differences))
    print(f"{total} comparisons, {len(differences)} differences")
