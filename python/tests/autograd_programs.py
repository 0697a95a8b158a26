"""Random programs of differentiable functions in float64, the same in PyTorch and in Lockstep.

  PYTHONPATH=build/python /usr/bin/python3 python/tests/autograd_programs.py 0 10000  # programs 0 to 9999

Each program makes leaves and results of results: shared ones, views, writes in place. Then it runs backward() and
autograd.grad() over them, with hooks, kept graphs, and retained gradients, and steps down its gradients. Each result
and each gradient is compared. test_autograd.py runs a part.
"""

import collections
import random
import re
import sys

import numpy as np
import torch

import lockstep

SHAPES = [(3, 4), (2, 3, 2), (4,), (1, 3), (2, 2), (2, 1, 2, 2), ()]
LARGEST = 1e6  # of an element: programs end where rounding would count


class Arguments:
    """What one step takes, in one library: tensors x and y of one shape, an axis of x and its extent, and numbers."""

    def __init__(self, library, seed, x, y, other):
        r = random.Random(seed)
        self.m, self.F = library, library.nn.functional
        self.x, self.y, self.other = x, y, other.mean()
        self.shape, self.axes = tuple(x.shape), x.dim()
        self.a = r.randrange(self.axes) - r.choice([0, self.axes]) if self.axes else 0
        self.n = self.shape[self.a] if self.axes else 1
        self.b = r.randrange(self.axes) if self.axes else 0
        self.i = r.randrange(self.n)
        self.j = r.randrange(self.i, self.n) + 1
        self.number = r.choice([-1.5, 0.5, 2.0, 3.0])
        self.keep = r.random() < 0.5
        self.order = r.sample(range(self.axes), self.axes)
        self.places = [r.randrange(self.n) for _ in range(3)]
        self.option = r.random()

    def key(self, index):
        return (slice(None),) * (self.a % self.axes) + (index,)

    def positive(self):
        return self.x * self.x + 0.5

    def choice(self, *of):
        return of[int(self.option * len(of))]

    def index(self):
        return self.m.tensor(self.places)

    def index_like(self):
        """A place on the axis for each element."""
        numbers = np.arange(int(np.prod(self.shape))).reshape(self.shape) * 7 % self.n
        return self.m.tensor(numbers)

    def labels(self):
        """A class for each row of a matrix."""
        return self.m.tensor([k % self.shape[1] for k in range(self.shape[0])])


ANY = {
    "add": lambda c: c.x + c.number, "sub": lambda c: c.number - c.x, "mul": lambda c: c.x * c.number,
    "div": lambda c: c.x / c.number, "neg": lambda c: -c.x, "sin": lambda c: c.x.sin(), "cos": lambda c: c.x.cos(),
    "tan": lambda c: (c.x * 0.1).tan(), "tanh": lambda c: c.x.tanh(), "sigmoid": lambda c: c.x.sigmoid(),
    "exp": lambda c: (c.x * 0.1).exp(), "expm1": lambda c: (c.x * 0.1).expm1(), "log": lambda c: c.positive().log(),
    "log1p": lambda c: c.positive().log1p(), "log2": lambda c: c.positive().log2(),
    "sqrt": lambda c: c.positive().sqrt(), "rsqrt": lambda c: c.positive().rsqrt(),
    "reciprocal": lambda c: c.positive().reciprocal(), "abs": lambda c: c.x.abs(), "square": lambda c: c.x.square(),
    "pow": lambda c: c.positive() ** c.number, "sinh": lambda c: (c.x * 0.1).sinh(),
    "cosh": lambda c: (c.x * 0.1).cosh(), "atan": lambda c: c.x.atan(), "asinh": lambda c: c.x.asinh(),
    "acosh": lambda c: (c.positive() + 1).acosh(), "atanh": lambda c: (c.x.tanh() * 0.9).atanh(),
    "asin": lambda c: (c.x.tanh() * 0.9).asin(), "acos": lambda c: (c.x.tanh() * 0.9).acos(),
    "erf": lambda c: c.x.erf(), "floor": lambda c: (c.x + 0.317).floor() + c.x,
    "frac": lambda c: (c.x + 0.317).frac(), "remainder": lambda c: (c.x + 0.317) % c.number,
    "clamp": lambda c: c.x.clamp(-1, 1), "relu": lambda c: c.F.relu(c.x), "gelu": lambda c: c.F.gelu(c.x),
    "softplus": lambda c: c.F.softplus(c.x), "silu": lambda c: c.F.silu(c.x), "elu": lambda c: c.F.elu(c.x),
    "selu": lambda c: c.F.selu(c.x), "celu": lambda c: c.F.celu(c.x, 0.75), "mish": lambda c: c.F.mish(c.x),
    "leaky_relu": lambda c: c.F.leaky_relu(c.x, 0.1), "logsigmoid": lambda c: c.F.logsigmoid(c.x),
    "hardtanh": lambda c: c.F.hardtanh(c.x), "hardswish": lambda c: c.F.hardswish(c.x),
    # The derivative of PyTorch 1.13's is 1/6 in float32.
    "hardsigmoid": lambda c: c.F.relu6(c.x + 3) / 6 if c.m is torch else c.F.hardsigmoid(c.x),
    "softsign": lambda c: c.F.softsign(c.x),
    "relu6": lambda c: c.F.relu6(c.x), "softshrink": lambda c: c.F.softshrink(c.x),
    "where": lambda c: c.m.where(c.x > 0, c.x, c.x * -2), "masked_fill": lambda c: c.x.masked_fill(c.x > 1, 0.5),
    "masked_select": lambda c: c.x[c.x > c.number].sum(), "sum of all": lambda c: c.x.sum(),
    "mean of all": lambda c: c.x.mean(), "norm of all": lambda c: (c.x + 0.1).norm(),
    "broadcast": lambda c: c.x * c.other, "detach": lambda c: c.x.detach() * c.x, "clone": lambda c: c.x.clone(),
    "reshape": lambda c: c.x.reshape(-1), "flatten": lambda c: c.x.flatten(), "squeeze": lambda c: c.x.squeeze(),
    "contiguous": lambda c: c.x.contiguous(), "view": lambda c: c.x.contiguous().view(-1),
    "x[None]": lambda c: c.x[None], "x[...]": lambda c: c.x[...], "x[True]": lambda c: c.x[True],
    "nan_to_num": lambda c: c.x.nan_to_num(), "conv1d": lambda c: c.F.conv1d(
        c.x.reshape(1, 1, -1), c.y.reshape(1, 1, -1)[..., :2], padding=1).flatten(),
    "expand": lambda c: c.x.expand(2, *c.shape) * 1,
}
ALONG = {  # at least one axis
    "sum": lambda c: c.x.sum(c.a, keepdim=c.keep), "mean": lambda c: c.x.mean(c.a, keepdim=c.keep),
    "prod": lambda c: c.x.prod(c.a), "amax": lambda c: c.x.amax(c.a, keepdim=c.keep),
    "amin": lambda c: c.x.amin(c.a), "max": lambda c: c.x.max(c.a)[0], "min": lambda c: c.x.min(c.a)[0],
    "median": lambda c: c.x.median(c.a)[0], "kthvalue": lambda c: c.x.kthvalue(c.i + 1, c.a)[0],
    "std": lambda c: c.x.std(c.a, unbiased=False) if c.n > 1 else c.x.sum(c.a),
    "var": lambda c: c.x.var(c.a) if c.n > 1 else c.x.sum(c.a), "norm": lambda c: (c.x + 0.1).norm(dim=c.a),
    "norm(1)": lambda c: c.x.norm(1, c.a), "logsumexp": lambda c: c.x.logsumexp(c.a, keepdim=c.keep),
    "softmax": lambda c: c.F.softmax(c.x, c.a), "log_softmax": lambda c: c.F.log_softmax(c.x, c.a),
    "cumsum": lambda c: c.x.cumsum(c.a), "cumprod": lambda c: c.x.cumprod(c.a),
    "sort": lambda c: c.x.sort(dim=c.a, stable=True)[0],
    "topk": lambda c: c.x.topk(c.i + 1, c.a)[0], "flip": lambda c: c.x.flip([c.a]),
    "roll": lambda c: c.x.roll(c.i, c.a), "permute": lambda c: c.x.permute(c.order),
    "transpose": lambda c: c.x.transpose(c.a, c.b), "movedim": lambda c: c.x.movedim(c.a, c.b),
    "unsqueeze": lambda c: c.x.unsqueeze(c.a), "squeeze of an axis": lambda c: c.x.squeeze(c.a),
    "narrow": lambda c: c.x.narrow(c.a, c.i, c.j - c.i),
    "select": lambda c: c.x.select(c.a, c.i), "x[i]": lambda c: c.x[c.key(c.i)],
    "x[i::2]": lambda c: c.x[c.key(slice(c.i, None, 2))], "x[places]": lambda c: c.x[c.key(c.places)],
    "index_select": lambda c: c.x.index_select(c.a, c.index()), "gather": lambda c: c.x.gather(c.a, c.index_like()),
    "scatter_add": lambda c: (c.y * 1).scatter_add(c.a, c.index_like(), c.x),
    "index_add": lambda c: (c.y * 1).index_add(c.a, c.m.tensor(list(range(c.n))[::-1]), c.x),
    "take_along_dim": lambda c: c.m.take_along_dim(c.x, c.index_like(), c.a),
    "cat": lambda c: c.m.cat([c.x, c.y * 2], c.a), "stack": lambda c: c.m.stack([c.x, c.y], c.a),
    "chunk": lambda c: c.x.chunk(2, c.a)[0], "split": lambda c: c.x.split(1, c.a)[-1],
    "unbind": lambda c: c.x.unbind(c.a)[c.i],
    "repeat": lambda c: c.x.repeat(*[2] * min(c.axes, 2), *[1] * (c.axes - 2)),
    "repeat_interleave": lambda c: c.x.repeat_interleave(2, c.a), "pad": lambda c: c.F.pad(c.x, (1, 0)),
    "diff": lambda c: c.x.diff(dim=c.a) if c.n > 1 else c.x * 1, "unflatten": lambda c: c.x.unflatten(c.a, (1, c.n)),
    "layer_norm": lambda c: c.F.layer_norm(c.x, c.shape[-1:]) if c.shape[-1] > 1 else c.x * 1,
    "normalize": lambda c: c.F.normalize(c.x + 0.1, dim=c.a), "glu": lambda c: c.F.glu(c.m.cat([c.x, c.y], c.a), c.a),
}
# Two axes. PyTorch's kron() does not see writes to its operands; its trace() of high matrices has a wrong gradient.
MATRIX = {
    "triu": lambda c: c.x.triu(), "tril": lambda c: c.x.tril(-1), "t": lambda c: c.x.t(),
    "mm": lambda c: c.x.mm(c.y.t()), "addmm": lambda c: c.m.addmm(c.other, c.x, c.y.t(), beta=0.5, alpha=c.number),
    "linear": lambda c: c.F.linear(c.x, c.y), "mv": lambda c: c.m.mv(c.x, c.y[0]),
    "cdist": lambda c: c.m.cdist(c.x, c.y + 3), "diag": lambda c: c.m.diag(c.x) * 1,
    "trace": lambda c: (c.x if c.shape[0] <= c.shape[1] else c.x.t()).trace(),
    "cross_entropy": lambda c: c.F.cross_entropy(c.x, c.labels(), label_smoothing=c.choice(0.0, 0.1)),
    "nll_loss": lambda c: c.F.nll_loss(c.x, c.labels(), reduction=c.choice("mean", "sum", "none")),
    "einsum": lambda c: c.m.einsum("ij,kj->ki", c.x, c.y), "rot90": lambda c: c.x.rot90(1, [0, 1]),
    "conv2d": lambda c: c.F.conv2d(c.x[None, None], c.y[None, None, :2, :2])[0, 0],
    "max_pool2d": lambda c: c.F.max_pool2d(c.x[None, None], (1, min(2, c.shape[1])))[0, 0],
    "avg_pool2d": lambda c: c.F.avg_pool2d(c.x[None, None], (1, min(2, c.shape[1])))[0, 0],
    "interpolate": lambda c: c.F.interpolate(
        c.x[None, None], scale_factor=2, mode=c.choice("nearest", "bilinear"))[0, 0],
    "batch_norm": lambda c: c.F.batch_norm(c.x, None, None, training=True) if c.shape[0] > 1 else c.x * 1,
    "baddbmm": lambda c: c.m.baddbmm(c.other.reshape(1, 1, 1), c.x[None], c.y.t()[None])[0],
    "kron": lambda c: c.m.kron(c.x[:2, :2].contiguous() * 1, c.y[:1].contiguous() * 1),
    "tensordot": lambda c: c.m.tensordot(c.x, c.y, 2),
    "embedding": lambda c: c.F.embedding(c.m.tensor([0, c.shape[0] - 1, 0]), c.x),
}
TWO = {  # two of one shape
    "x + y": lambda c: c.x + c.y, "x - y": lambda c: c.x - c.y, "x * y": lambda c: c.x * c.y,
    "x / y": lambda c: c.x / (c.y * c.y + 1), "maximum": lambda c: c.m.maximum(c.x, c.y),
    "minimum": lambda c: c.m.minimum(c.x, c.y), "where of two": lambda c: c.m.where(c.x > c.y, c.x, c.y * 2),
    "atan2": lambda c: c.m.atan2(c.x, c.y * c.y + 1), "lerp": lambda c: c.x.lerp(c.y, 0.3),
    "addcmul": lambda c: c.m.addcmul(c.x, c.x, c.y, value=c.number),
    "addcdiv": lambda c: c.m.addcdiv(c.x, c.x, c.y * c.y + 1), "x ** y": lambda c: c.positive() ** c.y.tanh(),
    "hypot": lambda c: c.m.hypot(c.x, c.y * c.y + 1), "logaddexp": lambda c: c.m.logaddexp(c.x, c.y),
    "xlogy": lambda c: c.m.xlogy(c.x, c.y * c.y + 1), "dist": lambda c: c.m.dist(c.x, c.y + 3),
    "mse_loss": lambda c: c.F.mse_loss(c.x, c.y), "l1_loss": lambda c: c.F.l1_loss(c.x, c.y),
    "smooth_l1_loss": lambda c: c.F.smooth_l1_loss(c.x, c.y), "huber_loss": lambda c: c.F.huber_loss(c.x, c.y),
    "kl_div": lambda c: c.F.kl_div(c.x, c.y.sigmoid(), reduction="sum"), "matmul": lambda c: (
        c.x.reshape(1, -1) @ c.y.reshape(-1, 1)).reshape(()),
    "outer": lambda c: c.m.outer(c.x.flatten()[:3], c.y.flatten()),
    "bce_with_logits": lambda c: c.F.binary_cross_entropy_with_logits(c.x, c.y.sigmoid()),
    "cosine_similarity": lambda c: c.F.cosine_similarity(c.x.reshape(1, -1) + 3, c.y.reshape(1, -1)),
    "masked_scatter": lambda c: c.m.where(c.x > 0, c.other, c.y),
}
WRITES = {
    "add_": lambda c: c.x.add_(c.number), "mul_": lambda c: c.x.mul_(c.number), "x += y": lambda c: c.x.add_(c.y),
    "x *= y": lambda c: c.x.mul_(c.y), "sub_": lambda c: c.x.sub_(c.other), "neg_": lambda c: c.x.neg_(),
    "div_": lambda c: c.x.div_(c.number), "tanh_": lambda c: c.x.tanh_(), "sigmoid_": lambda c: c.x.sigmoid_(),
    "relu_": lambda c: c.x.relu_(), "clamp_": lambda c: c.x.clamp_(-2, 2), "zero_": lambda c: c.x.zero_(),
    "fill_": lambda c: c.x.fill_(c.number), "copy_": lambda c: c.x.copy_(c.y * 2), "pow_": lambda c: c.x.pow_(2),
    "masked_fill_": lambda c: c.x.masked_fill_(c.x.detach() > 1, 0.0), "lerp_": lambda c: c.x.lerp_(c.y, 0.25),
    "addcmul_": lambda c: c.x.addcmul_(c.x.detach(), c.y), "x[i] =": lambda c: c.x.__setitem__(c.key(c.i), c.number),
    "x[i] = z": lambda c: c.x.__setitem__(c.key(c.i), c.other),
    "x[mask] =": lambda c: c.x.__setitem__(c.x > 0, c.number),
    "x[i:] += 1": lambda c: c.x[c.key(slice(c.i, None))].add_(1),
    "relu(x, True)": lambda c: c.F.relu(c.x, inplace=True),
}

# Where rounding decides: numbers of a step at which the function or its derivative jumps, or which divide rounding. The
# step is left out if one of them is nearly 0, unless it is 0 in both libraries: what both do there is compared.
KINKS = {
    **dict.fromkeys(["abs", "relu", "leaky_relu", "selu", "where", "norm(1)", "masked_scatter", "relu_",
                     "relu(x, True)", "x[mask] ="], lambda c: [c.x]),
    **dict.fromkeys(["clamp", "hardtanh"], lambda c: [c.x.abs() - 1]), "clamp_": lambda c: [c.x.abs() - 2],
    **dict.fromkeys(["hardsigmoid", "hardswish"], lambda c: [c.x.abs() - 3]), "relu6": lambda c: [c.x, c.x - 6],
    **dict.fromkeys(["masked_fill", "masked_fill_"], lambda c: [c.x - 1]), "softshrink": lambda c: [c.x.abs() - 0.5],
    "masked_select": lambda c: [c.x - c.number],
    **dict.fromkeys(["floor", "frac"], lambda c: [c.x + 0.317 - (c.x + 0.317).round()]),
    "remainder": lambda c: [(c.x + 0.317) / c.number - ((c.x + 0.317) / c.number).round()],
    **dict.fromkeys(["maximum", "minimum", "where of two", "l1_loss"], lambda c: [c.x - c.y]),
    **dict.fromkeys(["amax", "max"], lambda c: [c.x.amax(c.a, keepdim=True) - c.x]),
    **dict.fromkeys(["amin", "min"], lambda c: [c.x.amin(c.a, keepdim=True) - c.x]),
    **dict.fromkeys(["sort", "topk", "kthvalue", "median"], lambda c: [c.x.sort(dim=c.a)[0].diff(dim=c.a)]),
    "max_pool2d": lambda c: [c.x.diff(dim=1)],
    "std": lambda c: [c.x.std(c.a, unbiased=False)], "normalize": lambda c: [(c.x + 0.1).norm(dim=c.a)],
    "norm": lambda c: [(c.x + 0.1).norm(dim=c.a)], "norm of all": lambda c: [(c.x + 0.1).norm()],
    "cosine_similarity": lambda c: [(c.x + 3).norm(), c.y.norm()], "dist": lambda c: [c.m.dist(c.x, c.y + 3)],
    "cdist": lambda c: [c.m.cdist(c.x, c.y + 3)],
}
# PyTorch takes any of equal elements, Lockstep the first ones; at 3, PyTorch 1.13's hardswish has two derivatives.
ANY_OF_EQUALS = {"topk", "kthvalue", "median", "hardswish"}

NEEDS_AXIS = {"x[i] =", "x[i] = z", "x[mask] =", "x[i:] += 1"}

# Refusals of writes that docs/python.md lists: the step does not take place.
REFUSED = re.compile("is a view, or has views|expand: a write|axes, at most")
# PyTorch's of results whose elements were written since, or lie in one place; in Lockstep, a result that is written
# becomes another tensor where it can. The last two are of PyTorch 1.13's engine. The program ends.
# PyTorch 1.13 takes a view for a leaf where a value that requires a gradient was written to a part of it, and its base
# requires none. Programs write to no leaves.
REFUSED_BY_PYTORCH = re.compile("modified by an inplace operation|returns multiple views|to a single memory location|"
                                "could not compute gradients for some functions|dependency not found|"
                                "a leaf Variable that requires grad is being used in an in-place operation")


def arrays_of(tensors):
    return [None if x is None else np.array(x.detach().tolist(), "f8").reshape(tuple(x.shape)) for x in tensors]


def arrays_of_grads(leaves):
    return [None if x.grad is None else x.grad.tolist() for x in leaves]


def difference(theirs, ours):
    """What differs between two lists of tensors, or None."""
    for i, (a, b) in enumerate(zip(arrays_of(theirs), arrays_of(ours))):
        if (a is None) != (b is None):
            return f"{i}: PyTorch {a}, Lockstep {b}"
        if a is None:
            continue
        if a.shape != b.shape:
            return f"{i}: shapes {a.shape} of PyTorch, {b.shape} of Lockstep"
        finite = np.abs(a[np.isfinite(a)])
        if not np.allclose(a, b, 1e-7, 1e-8 * max(1, finite.max() if finite.size else 1), equal_nan=True):
            return f"{i}: PyTorch {a.tolist()}, Lockstep {b.tolist()}"
    return None


class Program:
    """Tensors come in pairs, PyTorch's and Lockstep's."""

    def __init__(self, seed):
        self.random = r = random.Random(seed)
        self.seed = seed
        shape = r.choice(SHAPES)
        values = np.random.default_rng(seed)
        begin = [values.uniform(-2, 2, shape) for _ in range(3)]
        self.leaves = [[m.tensor(v.tolist(), dtype=m.float64, requires_grad=True) for m in (torch, lockstep)]
                       for v in begin[:2]]
        self.constant = begin[2].tolist()
        self.log, self.used, self.hooked = [], collections.Counter(), []
        self.left_out = collections.Counter()
        self.ended = False

    def both(self, function):
        """function(library number) of both libraries. Returns a pair, or None if both refuse it, or sets self.fault."""
        results, errors = [None, None], [None, None]
        for side in (1, 0):  # Lockstep first: of what it refuses as documented, PyTorch computes nothing
            try:
                results[side] = function(side)
            except Exception as error:
                errors[side] = error
                if side == 1 and REFUSED.search(str(error)):
                    self.log[-1] += ": refused"
                    return None
        if errors[0] and REFUSED_BY_PYTORCH.search(str(errors[0])):
            self.ended = True
        elif (errors[0] is None) != (errors[1] is None):
            self.fault = f"PyTorch: {errors[0]}; Lockstep: {errors[1]}"
        return None if errors[0] or errors[1] else results

    def rounding_decides(self, name, seed, *operands):
        """Whether a number of KINKS is nearly 0."""
        if name not in KINKS:
            return False
        near, zero = [], []
        for side in (0, 1):
            values = [torch.tensor(v) for v in arrays_of([p[side] for p in operands])]
            parts = KINKS[name](Arguments(torch, seed, *values))
            size = 1e-7 * max(1.0, values[0].abs().max().item())
            near.append(np.concatenate([p.abs().numpy().ravel() < size for p in parts]))
            zero.append(np.concatenate([p.numpy().ravel() == 0 for p in parts]))
        same = zero[0] & zero[1] if name not in ANY_OF_EQUALS else False
        return bool(((near[0] | near[1]) & ~np.asarray(same)).any())

    def step(self):
        r = self.random
        x = r.choice(self.tensors)
        shape = tuple(x[0].shape)
        y = r.choice([t for t in self.tensors if tuple(t[0].shape) == shape])
        other, seed, kind = r.choice(self.tensors), r.random(), r.random()
        # What a write does to the hooks that a tensor has is not the same in all versions of PyTorch.
        writes = kind < 0.2 and not any(x[0] is h[0] for h in self.hooked)
        tables = [ANY, TWO] + [ALONG] * 2 * (len(shape) > 0) + [MATRIX] * (len(shape) == 2)
        table = WRITES if writes else r.choice(tables)
        name = r.choice([n for n in table if n not in NEEDS_AXIS or shape])
        numbers = [next(i for i, t in enumerate(self.tensors) if t is p) for p in (x, y, other)]
        self.log.append(f"{name} of x, y, other = {numbers}, {list(shape)}, {seed}")
        if self.rounding_decides(name, seed, x, y, other):
            self.log[-1] += ": rounding decides"
            self.left_out[name] += 1
            return
        found = self.both(lambda side: table[name](Arguments((torch, lockstep)[side], seed, x[side], y[side],
                                                             other[side])))
        if self.fault or found is None:
            return
        self.used[name] += 1
        if writes:
            pairs = self.tensors
        else:
            # Lockstep's results are in plain order, so that contiguous() of one is itself.
            if found[1].is_contiguous() and not found[0].is_contiguous():
                found[0] = found[0].contiguous()
            pairs = [found]
            if found[0].numel() and found[0].numel() < 200 and found[0].dim() < 5:
                self.tensors.append(found)
        for a, b in pairs:
            if a.requires_grad != b.requires_grad:
                self.fault = f"requires_grad: PyTorch {a.requires_grad}, Lockstep {b.requires_grad}"
        self.fault = self.fault or difference(*zip(*pairs))
        self.ended = any(p[0].numel() and not p[0].detach().abs().max() < LARGEST for p in pairs)
        if r.random() < 0.15 and len(self.tensors) > 6:
            self.tensors.pop(r.randrange(3, len(self.tensors)))

    def hook(self):
        """A hook of a result, which changes its gradient, or sees it; or a gradient that is retained."""
        r = self.random
        pair = r.choice(self.tensors)
        # PyTorch 1.13 may crash where a base of a view was written.
        if not pair[0].requires_grad or (pair[0]._is_view() and pair[0]._version):
            return
        self.hooked.append(pair)
        kind, factor = r.choice(["scale", "see", "retain"]), r.choice([2.0, -0.5])
        # In PyTorch 2, the gradient that is retained is that behind all hooks; in 1.13, the order of calls decides.
        if kind == "scale" and any(pair[0] is kept[0] for kept in self.retained):
            return
        self.log.append(f"hook: {kind} {factor} of {next(i for i, t in enumerate(self.tensors) if t is pair)}")
        if kind == "retain":
            self.retained.append(pair)
        for side in (0, 1):
            if kind == "retain":
                pair[side].retain_grad()
            elif kind == "scale":
                pair[side].register_hook(lambda g: g * factor)
            else:
                # The order of the hooks of two leaves is not defined.
                of = next((1 + i for i, leaf in enumerate(self.leaves) if leaf is pair), 0)
                pair[side].register_hook(
                    lambda g, side=side, of=of: self.seen[side].append((of, g.detach().clone())) and None)

    def passes(self):
        """Gradients of weighted sums of results, in several passes."""
        r = self.random
        count = r.choice([1, 1, 2, 3])
        ends = [p for p in self.tensors if p[0].requires_grad and p[0].numel()]
        for number in range(count):
            if not ends or self.fault or self.ended:
                return
            some = r.sample(ends, r.randrange(1, len(ends) + 1))
            weights = [r.uniform(0.1, 1) for _ in some]
            kept = number + 1 < count
            # The hooks of inputs of grad() run in PyTorch 2, and not in 1.13.
            inputs = [p for p in [*self.leaves, r.choice(ends)] if not any(p[0] is h[0] for h in self.hooked)]
            kind = r.choice(["backward", "backward of all", "grad"] if inputs else ["backward", "backward of all"])
            self.log.append(f"{kind} of {[next(i for i, t in enumerate(self.tensors) if t is p) for p in some]}, "
                            f"kept: {kept}")

            def run(side):
                m = (torch, lockstep)[side]
                if kind == "backward of all":
                    seeds = [m.full_like(p[side], w) for p, w in zip(some, weights)]
                    return m.autograd.backward([p[side] for p in some], seeds, retain_graph=kept)
                loss = None
                for p, w in zip(some, weights):
                    part = (p[side] * w).sum()
                    loss = part if loss is None else loss + part
                if kind == "grad":
                    return m.autograd.grad(loss, [p[side] for p in inputs], retain_graph=kept, allow_unused=True)
                return loss.backward(retain_graph=kept)

            self.seen = [[], []]
            before = [arrays_of_grads([p[side] for p in self.leaves]) for side in (0, 1)]
            results, errors = [None, None], [None, None]
            for side in (0, 1):
                try:
                    results[side] = run(side)
                except Exception as error:
                    errors[side] = str(error)
            if errors[0] and REFUSED_BY_PYTORCH.search(errors[0]):
                self.ended = True
                return
            if errors[0] or errors[1]:
                self.fault = f"PyTorch: {errors[0]}; Lockstep: {errors[1]}"
                return
            if kind == "grad":
                self.fault = difference(*results)
                after = [arrays_of_grads([p[side] for p in self.leaves]) for side in (0, 1)]
                if after[1] != before[1]:
                    self.fault = self.fault or "Lockstep's grad() changes grad of a leaf"
                # PyTorch 1.13's does, of a leaf that was written to a view (pytorch #89812).
                self.ended = after[0] != before[0]
                if self.fault or self.ended:
                    return
            # PyTorch's gradients of two tensors may be one, to which a later pass would add both.
            for p in self.leaves + self.retained:
                if p[0].grad is not None:
                    p[0].grad = p[0].grad.clone()
            pairs = [[p[side].grad for p in self.leaves + self.retained] for side in (0, 1)]
            self.fault = self.fault or difference(*pairs)
            calls = [sorted(seen, key=lambda call: call[0]) for seen in self.seen]  # stable
            if [of for of, _ in calls[0]] != [of for of, _ in calls[1]]:
                self.fault = self.fault or f"hooks: {len(calls[0])} calls in PyTorch, {len(calls[1])} in Lockstep"
            self.fault = self.fault or difference(*[[g for _, g in of_side] for of_side in calls])
            self.ended = self.ended or any(g is not None and not g.abs().max() < LARGEST for g in pairs[0])

    def descend(self):
        """A step against the gradients, by hand."""
        for m, side in ((torch, 0), (lockstep, 1)):
            with m.no_grad():
                for leaf in self.leaves:
                    if leaf[side].grad is not None:
                        g = leaf[side].grad
                        leaf[side] -= 0.1 * g / (1 + g.abs().max())
                        leaf[side].grad = None

    def run(self):
        """What differs, or None."""
        self.fault = None
        for _ in range(self.random.choice([1, 1, 2])):
            constant = [m.tensor(self.constant, dtype=m.float64) for m in (torch, lockstep)]
            self.tensors, self.retained = [*self.leaves, constant, [x * 1 for x in self.leaves[0]]], []
            for _ in range(self.random.randrange(3, 14)):
                self.step()
                if self.fault or self.ended:
                    return self.fault
                if self.random.random() < 0.15:
                    self.hook()
            self.passes()
            if self.fault or self.ended:
                return self.fault
            self.descend()
            self.fault = difference(*zip(*self.leaves))
        return self.fault


def disagreements(first, last, used=None):
    """The text of each program that differs. `used` counts the functions."""
    for seed in range(first, last):
        program = Program(seed)
        text = program.run()
        if used is not None:
            used.update(program.used)
        if text:
            yield "\n  ".join([f"program {seed}: {text[:600]}", *program.log])


if __name__ == "__main__":
    count, used = 0, collections.Counter()
    for text in disagreements(int(sys.argv[1]), int(sys.argv[2]), used):
        print(text, flush=True)
        count += 1
    print(f"{count} of {int(sys.argv[2]) - int(sys.argv[1])} programs disagree; {sum(used.values())} calls of "
          f"{len(used)} functions, each at least {min(used.values())} times")
    sys.exit(1 if count else 0)
