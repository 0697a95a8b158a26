"""Random programs of views, copies, and writes, also of NumPy and over DLPack, the same in PyTorch and in Lockstep.

  PYTHONPATH=build/python /usr/bin/python3 python/tests/view_programs.py 0 10000  # programs 0 to 9999

All living tensors and arrays are compared after each step. At the end, a write to each of them shows who shares whose
memory. test_memory.py runs a part.
"""

import random
import sys

import numpy as np
import torch

import lockstep

SHAPES = [(4, 6), (2, 3, 4), (6,), (4, 4), (1, 5), (3, 1, 2), (2, 2, 2, 3), ()]


def along(axis, index):
    return (slice(None),) * axis + (index,)


def views(x, r):
    """What may share x's memory: (name, function)."""
    shape, axes = tuple(x.shape), x.dim()
    yield "detach", lambda x: x.detach()
    yield "data", lambda x: x.data
    yield "contiguous", lambda x: x.contiguous()
    yield "to", lambda x: x.to(x.dtype)
    yield "x[None]", lambda x: x[None]
    yield "x[...]", lambda x: x[...]
    yield "reshape", lambda x: x.reshape(-1)
    yield "view", lambda x: x.view(-1)
    yield "flatten", lambda x: x.flatten()
    yield "squeeze", lambda x: x.squeeze()
    yield "expand", lambda x: x.expand(2, *shape)
    if axes == 0:
        return
    a, b = r.randrange(axes), r.randrange(axes)
    n = shape[a]
    first = r.randrange(n)
    last, step = r.randrange(first, n) + 1, r.choice([1, 1, 2, 3])
    key, position = along(a, slice(first, last, step)), along(a, first - r.choice([0, n]))
    order = r.sample(range(axes), axes)
    yield f"x[{key}]", lambda x: x[key]
    yield f"x[{position}]", lambda x: x[position]
    yield f"narrow {a} {first}", lambda x: x.narrow(a, first, last - first)
    yield f"select {a} {first}", lambda x: x.select(a, first)
    yield f"unsqueeze {a}", lambda x: x.unsqueeze(a)
    yield f"permute {order}", lambda x: x.permute(*order)
    yield f"transpose {a} {b}", lambda x: x.transpose(a, b)
    yield f"movedim {a} {b}", lambda x: x.movedim(a, b)
    yield f"unbind {a}", lambda x: x.unbind(a)[first]
    yield f"chunk {a}", lambda x: x.chunk(2, a)[-1]
    yield f"split {a}", lambda x: x.split(max(1, n // 2), a)[0]
    yield "iter", lambda x: list(x)[-1]
    yield f"squeeze {a}", lambda x: x.squeeze(a)
    factor = r.choice([f for f in (1, 2, 3, 4) if shape[0] % f == 0])
    parts = (factor, shape[0] // factor)
    yield f"view {parts}", lambda x: x.view(*parts, *shape[1:])
    yield f"reshape {parts}", lambda x: x.reshape(*parts, *shape[1:])
    yield f"unflatten {parts}", lambda x: x.unflatten(0, parts)


def copies(x, r, library):
    """What has memory of its own."""
    shape, axes = tuple(x.shape), x.dim()
    pad = library.nn.functional.pad
    yield "clone", lambda x: x.clone()
    yield "x + 0", lambda x: x + 0
    yield "x * 1", lambda x: x * 1
    yield "x ** 1", lambda x: x**1
    yield "abs", lambda x: x.abs()
    yield "repeat", lambda x: x.repeat(*[1] * axes) if axes else x.clone()
    yield "where", lambda x: library.where(x == x, x, x)
    yield "copy", lambda x: x.to(x.dtype, copy=True)
    if axes:
        a = r.randrange(axes)
        yield f"sum {a}", lambda x: x.sum(a, keepdim=True)
        yield f"roll {a}", lambda x: x.roll(shape[a], a)
        yield "pad", lambda x: pad(x, (0, 0))
        yield f"cat {a}", lambda x: library.cat([x], a)
        yield f"flip {a}", lambda x: x.flip(a)
        yield f"sort {a}", lambda x: x.sort(a).values
        yield "index", lambda x: x[[0]]
        yield "mask", lambda x: x[x > 10]


def writes(x, r, value):
    shape, axes = tuple(x.shape), x.dim()
    yield "add_", lambda x: x.add_(1)
    yield "mul_", lambda x: x.mul_(2)
    yield "fill_", lambda x: x.fill_(value)
    yield "zero_", lambda x: x.zero_()
    yield "+=", lambda x: x.__iadd__(3)
    yield "copy_", lambda x: x.copy_(x * 0 + value)
    yield "copy_ of itself", lambda x: x.copy_(x.clone())
    yield "neg_", lambda x: x.neg_()
    yield "x[...] =", lambda x: x.__setitem__(..., value)
    yield "clamp_", lambda x: x.clamp_(-50, 50)
    yield "masked_fill_", lambda x: x.masked_fill_(x > 10, value)
    if axes:
        yield "mask", lambda x: x.__setitem__(x > 20, value)
        a = r.randrange(axes)
        i = r.randrange(shape[a])
        position, key = along(a, i), along(a, slice(i, None, 2))
        yield f"x[{position}] =", lambda x: x.__setitem__(position, value)
        yield f"x[{key}] =", lambda x: x.__setitem__(key, value)
        yield f"x[{position}] +=", lambda x: x[position].add_(5)
        yield "index", lambda x: x.__setitem__([0], value)


class Program:
    def __init__(self, seed):
        self.random = r = random.Random(seed)
        shape = r.choice(SHAPES)
        self.value = 100.0
        self.ended = False
        self.log = []
        begin = np.arange(1, np.prod(shape, dtype=int) + 1, dtype=np.float32).reshape(shape)
        self.on_host = r.random() < 0.8
        # Pairs of PyTorch's and Lockstep's. Arrays are NumPy's, or tensors of PyTorch that share memory over DLPack.
        kind = r.random()
        if self.on_host and kind < 0.5:
            arrays = begin.copy(), begin.copy()
            if kind < 0.15:
                arrays = tuple(map(torch.from_numpy, arrays))
                self.tensors = [(torch.from_dlpack(arrays[0]), lockstep.from_dlpack(arrays[1]))]
            else:
                self.tensors = [(torch.from_numpy(arrays[0]), lockstep.from_numpy(arrays[1]))]
            self.arrays = [(arrays, self.tensors[0])]
        else:
            device = None if self.on_host else lockstep.devices()[-1]
            self.tensors = [(torch.tensor(begin), lockstep.tensor(begin, device=device))]
            self.arrays = []

    def both(self, functions, pair):
        """The results of one step in both libraries, or None if both refuse it."""
        results = []
        for f, x in zip(functions, pair):
            try:
                results.append((f(x), None))
            except Exception as error:
                results.append((None, error))
        (theirs, their_error), (ours, our_error) = results
        # PyTorch lets a part of these writes pass, and has more axes: docs/python.md.
        self.ended = str(our_error).startswith("expand: a write") or "axes, at most" in str(our_error)
        if not self.ended and (their_error is None) != (our_error is None):
            return f"PyTorch: {their_error}; Lockstep: {our_error}"
        return None if their_error or our_error else (theirs, ours)

    def step(self):
        r = self.random
        i = r.randrange(len(self.tensors))
        pair = self.tensors[i]
        if pair[0].numel() == 0:
            return None
        kind = r.random()
        self.value += 1
        seed = r.random()
        if self.arrays and kind < 0.15:
            j = r.randrange(len(self.arrays))
            self.log.append(f"array {j}: a write of another library, and x *= 1")
            arrays, of = self.arrays[j]
            for array, x in zip(arrays, of):
                array[...] = array * 2 + self.value
                # Views that are copies see it with the next write that the library sees, as docs/python.md says.
                x.mul_(1)
            return None
        if kind < 0.25 and self.on_host and pair[0].is_contiguous() and pair[1].is_contiguous():
            numpy = r.random() < 0.6
            arrays = tuple(x.numpy() if numpy else torch.from_dlpack(x) for x in pair)
            self.log.append(f"{'numpy' if numpy else 'DLPack'} of {i}")
            # Of a view whose elements are a copy, the array is one, too.
            if pair[1].numpy().flags.writeable and all(x.is_contiguous() for x, _ in self.tensors):
                self.arrays.append((arrays, pair))
            return None
        which = "write" if kind < 0.5 and len(self.tensors) > 1 else "copy" if kind < 0.6 else "view"
        functions = []
        for library, x in zip((torch, lockstep), pair):
            same = random.Random(seed)
            steps = list(writes(x, same, self.value) if which == "write"
                         else copies(x, same, library) if which == "copy" else views(x, same))
            name, f = steps[int(seed * len(steps))]
            # Lockstep's results are in plain order, and PyTorch's in that of their operands: docs/python.md.
            functions.append(f if which != "copy" or name == "clone" else lambda x, f=f: f(x).contiguous())
        self.log.append(f"{which} {i}: {name} of {tuple(pair[0].shape)}")
        found = self.both(functions, pair)
        if isinstance(found, str):
            return found
        if which != "write" and found is not None:
            self.tensors.append(found)
            if r.random() < 0.15 and len(self.tensors) > 2 and not self.arrays:
                dropped = r.randrange(len(self.tensors))
                self.log.append(f"drop {dropped}")
                del self.tensors[dropped]
        return None

    def difference(self):
        for i, (theirs, ours) in enumerate(self.tensors):
            if tuple(theirs.shape) != tuple(ours.shape) or theirs.tolist() != ours.tolist():
                return f"tensor {i}: PyTorch {theirs.tolist()}, Lockstep {ours.tolist()}"
        for i, ((theirs, ours), _) in enumerate(self.arrays):
            if not np.array_equal(theirs, ours):
                return f"array {i}: PyTorch {theirs.tolist()}, Lockstep {ours.tolist()}"
        return None

    def run(self):
        """What differs, or None."""
        for _ in range(self.random.randrange(4, 16)):
            text = self.step()
            if self.ended:
                return None
            text = text or self.difference()
            if text:
                return text
        for i, pair in enumerate(self.tensors):
            self.value += 1
            self.log.append(f"at the end, a write to {i}")
            found = self.both([lambda x: x.add_(self.value)] * 2, pair)
            if self.ended:
                return None
            text = found if isinstance(found, str) else self.difference()
            if text:
                return text
        return None


def disagreements(first, last):
    for seed in range(first, last):
        program = Program(seed)
        text = program.run()
        if text:
            yield "\n  ".join([f"program {seed}: {text[:300]}", *program.log])


if __name__ == "__main__":
    count = 0
    for text in disagreements(int(sys.argv[1]), int(sys.argv[2])):
        print(text)
        count += 1
    print(f"{count} of {int(sys.argv[2]) - int(sys.argv[1])} programs disagree")
    sys.exit(1 if count else 0)
