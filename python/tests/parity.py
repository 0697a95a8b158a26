"""Compares lockstep's functions and methods with PyTorch's, on the sample inputs of PyTorch's own tests (OpInfo).

  PYTHONPATH=build/python /usr/bin/python3 python/tests/parity.py             # all samples, a table of counts
  PYTHONPATH=build/python /usr/bin/python3 python/tests/parity.py matmul sum  # these functions, with each disagreement

Each function that both libraries have, under one name, is called with float32, int64, bool, and uint8 inputs. Values,
shapes, types, and the gradients of all floating inputs are compared. test_parity.py runs a part.
"""

import collections
import sys
import types
import unittest
import warnings

import numpy as np

# PyTorch's tests import it, but nothing here calls it.
sys.modules.setdefault("expecttest", types.SimpleNamespace(ACCEPT=False, TestCase=unittest.TestCase))

import torch  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import lockstep  # noqa: E402

byte_bounds = np.byte_bounds if hasattr(np, "byte_bounds") else np.lib.array_utils.byte_bounds

# What draws random numbers, or shows memory that nobody has written.
RANDOM = {
    "bernoulli", "multinomial", "normal", "rand_like", "randn_like", "randint_like", "randn", "uniform", "empty_like",
    "new_empty", "empty", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.alpha_dropout", "nn.functional.rrelu", "rand", "randperm",
    "randint", "nn.functional.gumbel_softmax", "cauchy", "exponential", "geometric", "log_normal", "normal_",
}


# Where results differ from PyTorch's, as docs/python.md says: what they are instead, of PyTorch's own functions.
def _topk(x, k, dim=-1, largest=True, sorted=True):
    """Of equal elements, the first ones."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = torch.sort(x, dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


def _unique(x, sorted=True, **options):
    """Always in ascending order."""
    return torch.unique(x, **options)


def _getitem(x, key):
    """A list of lists is one index, as in NumPy and PyTorch 2."""
    return x[torch.tensor(key)] if isinstance(key, list) else x[key]


def _even_numbers(start, end, steps):
    step = (end - start) / (steps - 1) if steps > 1 else 0
    return [start + step * i if i < (steps + 1) // 2 else end - step * (steps - 1 - i) for i in range(steps)]


def _linspace(start, end, steps, dtype=None, **options):
    """Whole types: computed in float64 and cut once."""
    if dtype is None or dtype.is_floating_point:
        return torch.linspace(start, end, steps, dtype=dtype, **options)
    return torch.tensor([int(number) for number in _even_numbers(start, end, steps)], dtype=dtype)


def _logspace(start, end, steps, base=10.0, dtype=None, **options):
    """Whole types: computed in float64 and cut once."""
    if dtype is None or dtype.is_floating_point:
        return torch.logspace(start, end, steps, base, dtype=dtype, **options)
    return torch.tensor([int(float(base) ** power) for power in _even_numbers(start, end, steps)], dtype=dtype)


def _max_unpool2d(x, indices, *args, **options):
    """Of elements with one place, the last one alone has the gradient."""
    y = torch.nn.functional.max_unpool2d(x.detach(), indices, *args, **options)
    places = indices.reshape(-1, x.shape[-2] * x.shape[-1])
    last = [[place not in row[i + 1:] for i, place in enumerate(row)] for row in places.tolist()]
    kept = x.reshape(places.shape) * torch.tensor(last).reshape(places.shape)
    sums = torch.zeros(places.shape[0], y.shape[-2] * y.shape[-1]).scatter_add(1, places, kept)
    return sums.reshape(y.shape)


def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """The gradient of log_probs is the exact one, without the exp(log_probs) that PyTorch adds and log_softmax() takes
    away. Impossible targets have none."""
    lengths = torch.as_tensor(input_lengths), torch.as_tensor(target_lengths)
    losses = torch.nn.functional.ctc_loss(log_probs, targets, *lengths, blank, "none")
    impossible = torch.isinf(losses.detach())
    times = torch.arange(log_probs.shape[0])[:, None] < lengths[0]
    added = (log_probs.exp() * times[..., None]).sum([0, 2])
    losses = torch.nn.functional.ctc_loss(log_probs, targets, *lengths, blank, "none", True) - added + added.detach()
    losses = torch.where(impossible, torch.full_like(losses, 0 if zero_infinity else float("inf")), losses)
    if reduction == "mean":
        return (losses / lengths[1].clamp(min=1).to(losses.dtype)).mean()
    return losses.sum() if reduction == "sum" else losses


def _arange(*numbers, dtype=None, **options):
    """Whole numbers of fractions: computed in float64 and cut once, of uint8 as of int64."""
    if dtype != torch.uint8:
        return torch.arange(*numbers, dtype=dtype, **options)
    return torch.arange(*numbers, dtype=torch.float64).trunc().to(torch.uint8)


def _kthvalue(x, k, dim=-1, keepdim=False):
    """Of equal elements, the first ones."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    found = (t.narrow(dim, k - 1, 1) for t in torch.sort(x, dim=dim, stable=True))
    return tuple(t if keepdim else t.squeeze(dim) for t in found)


def _aminmax(x, dim=None, keepdim=False):
    """Of a tensor without axes, tensors without axes, as amin() and amax()."""
    axes = () if dim is None else dim
    return x.amin(axes, keepdim), x.amax(axes, keepdim)


def _add(x, y, *, alpha=1):
    return torch.add(x, y, alpha=int(alpha) if isinstance(alpha, bool) else alpha)


DOCUMENTED = {
    "topk": _topk,
    "unique": _unique,
    "int": lambda x: x.long(),  # int32 is int64
    "searchsorted": lambda *args, out_int32=False, **options: torch.searchsorted(*args, **options),
    "bucketize": lambda *args, out_int32=False, **options: torch.bucketize(*args, **options),
    "arange": _arange,
    "kthvalue": _kthvalue,
    "aminmax": _aminmax,
    "__getitem__": _getitem,
    "linspace": _linspace,
    "logspace": _logspace,
    "nn.functional.max_unpool2d": _max_unpool2d,
    "nn.functional.ctc_loss": _ctc_loss,
    "add": _add,  # of masks with alpha=True
    "sort": lambda x, *args, **options: torch.sort(x, **options, **dict(zip(("dim", "descending"), args)), stable=True),
    "argsort": lambda x, *args, **options: torch.sort(
        x, **options, **dict(zip(("dim", "descending"), args)), stable=True).indices,
}


def convert(x, seen):
    """PyTorch's arguments as Lockstep's. `seen` gets the pairs of tensors that require a gradient."""
    if isinstance(x, torch.Tensor):
        if x.dtype.is_complex or x.is_sparse or x.dtype in (torch.int32, torch.int16, torch.int8):
            raise NotImplementedError("a type that Lockstep does not have")
        made = lockstep.tensor(np.array(x.detach().contiguous().numpy()))
        if x.requires_grad:
            made.requires_grad_()
            seen.append((x, made))
        return made
    if isinstance(x, torch.Size):
        return tuple(x)
    if isinstance(x, (list, tuple)):
        return type(x)(convert(item, seen) for item in x) if not hasattr(x, "_fields") else tuple(
            convert(item, seen) for item in x)
    if isinstance(x, dict):
        return {key: convert(value, seen) for key, value in x.items()}
    if isinstance(x, torch.dtype):
        name = str(x).split(".")[1]
        if name not in ("float32", "float64", "int64", "uint8", "bool", "float16", "bfloat16"):
            raise NotImplementedError("a type that Lockstep does not have")
        return getattr(lockstep, name)
    if isinstance(x, torch.device):
        return lockstep.device(str(x))
    if isinstance(x, (torch.layout, torch.memory_format, torch.Generator, complex)):
        raise NotImplementedError(f"a {type(x).__name__}")
    return x


def leaves(x):
    """All tensors and numbers of a result, in order."""
    if isinstance(x, (list, tuple)) and not isinstance(x, (torch.Size, lockstep.Size)):
        for item in x:
            yield from leaves(item)
    else:
        yield x


def array(x):
    x = x.detach() if isinstance(x, torch.Tensor) else x.to_host()
    if str(x.dtype) == "torch.bfloat16":
        x = x.float()
    x = x.contiguous() if isinstance(x, torch.Tensor) else x
    return np.asarray(x.numpy())


def difference(ours, theirs, tolerance=1e-4):
    """Why two results differ, or None."""
    ours, theirs = list(leaves(ours)), list(leaves(theirs))
    if len(ours) != len(theirs):
        return f"{len(ours)} results for {len(theirs)}"
    for a, b in zip(ours, theirs):
        if not isinstance(b, torch.Tensor):
            same_type = isinstance(a, lockstep.Size if isinstance(b, torch.Size) else type(b))
            if not same_type and not (isinstance(a, (int, float)) and isinstance(b, (int, float))):
                return f"a {type(a).__name__} for a {type(b).__name__}"
            if a != b and not (isinstance(b, float) and abs(a - b) < 1e-5):
                return f"{a} for {b}"
            continue
        if not isinstance(a, lockstep.Tensor):
            return f"a {type(a).__name__} for a tensor"
        if tuple(a.shape) != tuple(b.shape):
            return f"shape {tuple(a.shape)} for {tuple(b.shape)}"
        if str(a.dtype) != str(b.dtype):
            return f"type {a.dtype} for {b.dtype}"
        x, y = array(a), array(b)
        if y.dtype.kind == "f":
            if not np.allclose(x.astype("f8"), y.astype("f8"), rtol=tolerance, atol=tolerance, equal_nan=True):
                return "values"
        elif not np.array_equal(x.astype("i8"), y.astype("i8")):
            return "values"
    return None


def memories(x):
    """The first and the last address of each tensor's elements."""
    if isinstance(x, dict):
        x = tuple(x.values())
    for item in leaves(x):
        if isinstance(item, dict):
            yield from memories(item)
        elif isinstance(item, (torch.Tensor, lockstep.Tensor)) and item.numel() and str(item.dtype) != "torch.bfloat16":
            first, last = byte_bounds(item.detach().numpy())
            yield first, last - 1


def share_memory(result, arguments):
    """Whether a result lies in an argument's memory."""
    return any(a <= d and c <= b for a, b in memories(result) for c, d in memories(arguments))


def function_of(name, module):
    for part in name.split("."):
        module = getattr(module, part, None)
        if module is None:
            return None
    return module if callable(module) else None


def calls_of(op):
    """(kind, Lockstep's function, PyTorch's) for the function and the method of an OpInfo."""
    ours, theirs = function_of(op.name, lockstep), function_of(op.name, torch)
    if ours and theirs and (op.op is theirs or getattr(op.op, "__name__", "") != "<lambda>"):
        yield "function", ours, op.op
    elif op.name == "einsum":
        yield "function", lambda tensors, equation: lockstep.einsum(equation, tensors), op.op
    name = getattr(op.method_variant, "__name__", None)
    # Python calls a reflected operator with numbers alone.
    if name and hasattr(lockstep.Tensor, name) and not (name.startswith("__r") and name != "__radd__"):
        method = getattr(torch.Tensor, name)
        yield "method", getattr(lockstep.Tensor, name), method


def gradients(result, seen, side, seeds):
    """Gradients of all inputs for fixed gradients of the floating results."""
    outputs = [x for x in leaves(result) if hasattr(x, "requires_grad") and x.requires_grad]
    if not outputs or not seen:
        return None
    library = torch if side == 0 else lockstep
    total = None
    for i, x in enumerate(outputs):
        seed = seeds.setdefault(i, np.random.default_rng(i).uniform(0.5, 1.5, tuple(x.shape)).astype("f4"))
        weight = library.tensor(seed)
        part = (x * (weight if x.dtype == library.float32 else weight.to(x.dtype))).sum()
        total = part if total is None else total + part
    total.backward()
    return [pair[side].grad for pair in seen]


def mapped(x, f):
    """x with f of its tensors."""
    if isinstance(x, torch.Tensor):
        return f(x)
    if isinstance(x, dict):
        return {key: mapped(value, f) for key, value in x.items()}
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields") and not isinstance(x, torch.Size):
        return type(x)(mapped(item, f) for item in x)
    return x


def arguments_of(sample):
    """A copy of the arguments, with leaves of its own."""
    return mapped((sample.input, tuple(sample.args), dict(sample.kwargs)),
                  lambda x: x.detach().clone().requires_grad_(x.requires_grad))


def called(f, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(arguments[0], *arguments[1], **arguments[2])


def compare(call, op_name, sample, dtype):
    """The category of one sample, and a text."""
    _, ours_f, theirs_f = call
    arguments = arguments_of(sample)
    try:
        theirs = called(theirs_f, arguments)
    except Exception as error:  # PyTorch refuses it
        return "skipped", str(error)
    try:
        convert(arguments, [])
    except (NotImplementedError, TypeError) as error:
        return "error: type", str(error)
    if any(isinstance(x, torch.Tensor) and x.dtype.is_complex for x in leaves(theirs)):
        return "error: type", "complex"
    kind, text = against(ours_f, theirs_f, sample, dtype)
    documented = DOCUMENTED.get(op_name)
    if kind == "disagree" and documented and against(ours_f, documented, sample, dtype)[0] == "agree":
        return "documented", text
    return kind, text


def against(ours_f, theirs_f, sample, dtype):
    """Compare with PyTorch's function of the same arguments."""
    seen = []
    arguments = arguments_of(sample)
    args = convert(arguments, seen)
    try:
        theirs = called(theirs_f, arguments)
    except Exception as error:
        return "disagree", f"PyTorch: {error}"
    try:
        ours = ours_f(args[0], *args[1], **args[2])
        text = difference(ours, theirs)
        if text is None and share_memory(ours, args) and not share_memory(theirs, arguments):
            text = "the result is an argument's memory, and PyTorch's is not"
    except TypeError as error:
        return "error: arguments", str(error).split("\nInvoked")[0][-300:]
    except (RuntimeError, ValueError, IndexError, OverflowError) as error:  # lockstep.Error among them
        return "error: other", str(error)
    if text is None and dtype == torch.float32 and seen:
        seeds = {}
        try:
            expected = gradients(theirs, seen, 0, seeds)
        except RuntimeError:
            expected = None
        if expected is not None:
            try:
                found = gradients(ours, seen, 1, seeds)
            except lockstep.Error as error:
                return "error: other", f"gradient: {error}"
            if found is None:
                text = "no gradient"
            else:
                for i, (a, b) in enumerate(zip(found, expected)):
                    if b is None or a is None:
                        zero = b if a is None else a
                        if zero is not None and np.any(np.nan_to_num(array(zero), nan=1)):
                            text = f"gradient {i}: one is None"
                    elif difference(a, b, 1e-3):
                        text = f"gradient {i}: {difference(a, b, 1e-3)}"
    return ("agree", "") if text is None else ("disagree", text)


def run(names=None, most=None, kinds=("function", "method")):
    """Compare. Returns {category: count} of each function, and the lines that say what is wrong."""
    counts, lines = collections.defaultdict(collections.Counter), []
    for op in op_db:
        if op.name in RANDOM or (names and op.name not in names):
            continue
        calls = [call for call in calls_of(op) if call[0] in kinds]
        for dtype in (torch.float32, torch.int64, torch.bool, torch.uint8):
            if not calls or not op.supports_dtype(dtype, "cpu"):
                continue
            torch.manual_seed(0)
            np.random.seed(0)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    samples = list(op.sample_inputs("cpu", dtype, requires_grad=dtype == torch.float32
                                                    and op.supports_autograd))
            except Exception as error:
                print(f"{op.name}: no samples: {error}", file=sys.stderr)
                continue
            for sample in samples[:most]:
                for call in calls:
                    kind, text = compare(call, op.name, sample, dtype)
                    if kind == "skipped":
                        continue
                    counts[op.name][kind] += 1
                    if kind != "agree":
                        shapes = [tuple(x.shape) if isinstance(x, torch.Tensor) else x
                                  for x in [sample.input, *sample.args]]
                        lines.append((op.name, call[0], str(dtype), kind, text, f"{shapes} {sample.kwargs}"[:200]))
    return counts, lines


def main(names):
    counts, lines = run(names)
    shown = set()
    for line in lines:
        key = (line[0], line[1], line[3], line[4][:60])
        if names or key not in shown:
            print(" | ".join(line).replace("\n", " "))
        shown.add(key)
    total = sum(counts.values(), collections.Counter())
    print(f"{len(counts)} functions, {sum(total.values())} cases: {dict(total)}")
    return 1 if total["disagree"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
