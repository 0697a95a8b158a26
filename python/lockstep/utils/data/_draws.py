"""Random numbers of NumPy and of the module random that worker threads draw: no key of an example decides them.

PyTorch's workers are processes, each with a copy of these generators. Threads share them, so the numbers of an example
depend on which thread is first.
"""

import contextlib
import random
import sys
import warnings


def _generator_of(function):
    """Return the generator of NumPy or of `random` that this function draws from; None for other functions."""
    owner = getattr(function, "__self__", None)
    kind = type(owner)
    of_numpy = (kind.__module__ or "").startswith("numpy.random") and kind.__name__ in ("Generator", "RandomState")
    return owner if of_numpy or isinstance(owner, random.Random) else None


def _is_global(generator):
    mtrand = sys.modules.get("numpy.random.mtrand")
    return generator is random._inst or (mtrand is not None and generator is mtrand._rand)


@contextlib.contextmanager
def watch(data, what, warned=None):
    """Warn if this thread draws from a generator that others have, too. One that was made in here is its own.

    warned: a list that gets an entry then.
    """
    found = {}

    def see(frame, event, function):
        if event != "c_call":
            return
        generator = _generator_of(function)
        if generator is not None:
            module = "random" if isinstance(generator, random.Random) else "numpy.random"
            found.setdefault(id(generator), [generator, f"{module}.{function.__name__}()"])

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(before)
    for _, entry in found.items():
        # The entry and the argument refer to it; a further reference is of somebody outside.
        if _is_global(entry[0]) or sys.getrefcount(entry[0]) > 2:
            if warned is not None:
                warned.append(entry[1])
            _warn(data, what, entry[1])


def _warn(data, what, call):
    warnings.warn(f"{what}: {type(data).__name__} draws from {call} in worker threads, which share the generator: the "
                  "numbers depend on which thread is first, so that each run has others, and an audit of a receipt "
                  "fails. Expected transforms of lockstep, a generator that __getitem__ makes from the index, such as "
                  "numpy.random.default_rng((seed, index)), or num_workers=0", RuntimeWarning, stacklevel=3)


class Watch:
    """watch() for some of many examples: the first ones, and then each 16th, because it takes time. Warns once."""

    def __init__(self, data, what):
        self._data, self._what, self._count, self._warned = data, what, 0, []

    def __call__(self):
        self._count += 1
        if self._warned or (self._count > 8 and self._count % 16 != 0):
            return contextlib.nullcontext()
        return watch(self._data, self._what, self._warned)


@contextlib.contextmanager
def kept(what):
    """Put the program's own streams back at the end, and warn if they have changed."""
    numpy = sys.modules.get("numpy.random")
    state, of_numpy = random.getstate(), numpy and numpy.get_state()
    try:
        yield
    finally:
        changed = "random" if random.getstate() != state else ""
        random.setstate(state)
        numpy = numpy or sys.modules.get("numpy.random")
        if of_numpy is not None:
            now = numpy.get_state()
            if now[2:] != of_numpy[2:] or (now[1] != of_numpy[1]).any():
                changed = "numpy.random"
            numpy.set_state(of_numpy)
        if changed:
            warnings.warn(f"{what} seeds {changed}, which has no effect: workers are threads, which share the "
                          "program's generator", RuntimeWarning, stacklevel=3)
