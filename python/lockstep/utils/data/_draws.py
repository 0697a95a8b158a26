"""Finds draws from NumPy's and random's generators in worker threads: they do not depend on the example's key.

PyTorch's workers are processes with copies of these generators. Threads share them, so the draws for an example depend
on which thread is first.
"""

import contextlib
import random
import sys
import threading
import types
import warnings


def _is_generator(owner):
    kind = type(owner)
    of_numpy = (kind.__module__ or "").startswith("numpy.random") and kind.__name__ in ("Generator", "RandomState")
    return of_numpy or isinstance(owner, random.Random)


def _generator_of(function, first=None):
    """Return the generator of NumPy or of `random` that this compiled function draws from; None for other functions.

    first: its first argument, if it is a function of a class.
    """
    if isinstance(getattr(function, "__func__", function), types.FunctionType):
        return None
    owner = getattr(function, "__self__", None)
    if _is_generator(owner):
        return owner
    name = getattr(function, "__name__", None)
    return first if _is_generator(first) and name and getattr(type(first), name, None) is function else None


_TOOL = 4  # an id of sys.monitoring without a name, as 0, 1, 2, and 5 have. If it is taken, nothing is seen.
_seeing = {}  # by thread
_lock = threading.Lock()


def _on_call(_code, _offset, function, first):
    see = _seeing.get(threading.get_ident())
    if see is not None:
        see(function, first)


@contextlib.contextmanager
def _monitored(see):
    monitoring, thread = sys.monitoring, threading.get_ident()
    with _lock:
        if not _seeing and monitoring.get_tool(_TOOL) is None:
            monitoring.use_tool_id(_TOOL, "lockstep")
            monitoring.register_callback(_TOOL, monitoring.events.CALL, _on_call)
            monitoring.set_events(_TOOL, monitoring.events.CALL)
        before = _seeing.get(thread)
        _seeing[thread] = see
    try:
        yield
    finally:
        with _lock:
            _seeing[thread] = before
            if before is None:
                del _seeing[thread]
            if not _seeing and monitoring.get_tool(_TOOL) == "lockstep":
                monitoring.set_events(_TOOL, 0)
                monitoring.free_tool_id(_TOOL)


@contextlib.contextmanager
def _profiled(see):
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, function: see(function, None) if event == "c_call" else None)
    try:
        yield
    finally:
        sys.setprofile(before)


# From Python 3.12 on, profilers no longer see NumPy's functions, because Cython 3 does not compile them to builtins.
_calls = _monitored if sys.version_info >= (3, 12) else _profiled


def _is_global(generator):
    mtrand = sys.modules.get("numpy.random.mtrand")
    return generator is random._inst or (mtrand is not None and generator is mtrand._rand)


@contextlib.contextmanager
def watch(data, what, warned=None):
    """Warn if this thread draws from a generator that others share. A generator that was made inside does not count.

    warned: a list that gets an entry with a warning.
    """
    found = {}

    def see(function, first):
        generator = _generator_of(function, first)
        if generator is not None:
            module = "random" if isinstance(generator, random.Random) else "numpy.random"
            found.setdefault(id(generator), [generator, f"{module}.{function.__name__}()"])

    with _calls(see):
        yield
    for _, entry in found.items():
        # The entry and the argument refer to it; any further reference is from outside.
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
    """watch() for a sample of many examples: the first ones, and then each 16th, because it takes time. Warns once."""

    def __init__(self, data, what):
        self._data, self._what, self._count, self._warned = data, what, 0, []

    def __call__(self):
        self._count += 1
        if self._warned or (self._count > 8 and self._count % 16 != 0):
            return contextlib.nullcontext()
        return watch(self._data, self._what, self._warned)


@contextlib.contextmanager
def kept(what):
    """Restore the program's own streams at the end, and warn if they have changed."""
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
