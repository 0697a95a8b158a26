"""Activation checkpointing: torch.utils.checkpoint.

>>> import lockstep as torch
>>> from lockstep.utils.checkpoint import checkpoint
>>> block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Dropout(0.1))
>>> y = checkpoint(block, torch.ones(2, 4))
>>> y.sum().backward()  # calls the block again, with the same dropout
"""

import contextlib

from .. import _core
from .._core import Tensor


def noop_context_fn():
    """Return the contexts of the two calls that change nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def _tensors(value):
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [x for each in value for x in _tensors(each)]


class _Call:
    """A function and its arguments. Tensors with a history are given anew in each call, because they must not live."""

    def __init__(self, function, args, kwargs, contexts):
        self._function = function
        self._contexts = list(contexts)
        self._first = (args, kwargs)
        self._places = [key for key, x in self._items(args, kwargs) if self._has_history(x)]
        self._args = [None if self._has_history(x) else x for x in args]
        self._kwargs = {key: None if self._has_history(x) else x for key, x in kwargs.items()}
        self.inputs = [kwargs[key] if isinstance(key, str) else args[key] for key in self._places]
        self.result = None

    @staticmethod
    def _items(args, kwargs):
        return [*enumerate(args), *kwargs.items()]

    @staticmethod
    def _has_history(x):
        return isinstance(x, Tensor) and x.grad_fn is not None

    def __call__(self, tensors):
        if self._first is not None:
            (args, kwargs), self._first = self._first, None
            with self._contexts[0]:
                self.result = self._function(*args, **kwargs)
            return _tensors(self.result)
        args, kwargs = list(self._args), dict(self._kwargs)
        for key, x in zip(self._places, tensors):
            if isinstance(key, str):
                kwargs[key] = x
            else:
                args[key] = x
        with self._contexts[1]:
            return _tensors(self._function(*args, **kwargs))


def checkpoint(function, *args, use_reentrant=None, context_fn=noop_context_fn, determinism_check="default",
               debug=False, preserve_rng_state=True, **kwargs):
    """Return function(*args, **kwargs), whose operations keep no memory for backward(), which calls it again.

    Results, gradients, running statistics, and random numbers have the same bits as without it. The function must do
    the same in both calls. An error in backward() says if memory that it read was changed in place, or a parameter was
    replaced, or if it computes something else. context_fn returns the contexts of the first and of the second call.

    use_reentrant is accepted: both values give the one kind that there is, in which parameters have gradients even if
    no argument needs one, and backward(inputs=...) works. determinism_check, debug, and preserve_rng_state are
    accepted, too: results are always compared, and the second call always gets the random numbers of the first.
    """
    if not callable(function):
        raise TypeError(f"checkpoint: {function!r:.80}, expected a function")
    call = _Call(function, args, kwargs, context_fn())
    inputs, call.inputs = call.inputs, None
    _core._autograd.checkpoint(call, inputs)
    # The call lives as long as the graph, the result as long as the program needs it.
    result, call.result = call.result, None
    return result


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Return the result of functions, a list or a Sequential, each called with the result of the one before.

    All but the last of the segments, as many functions in each, are checkpoints.
    """
    functions = list(functions)
    if not 1 <= segments <= len(functions):
        raise _core.Error(f"checkpoint_sequential: {segments} segments, expected 1 to the number of functions, "
                          f"{len(functions)}")

    def run(start, end):
        def forward(x):
            for function in functions[start:end]:
                x = function(x)
            return x
        return forward

    size = len(functions) // segments
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(run(start, start + size), input, use_reentrant=use_reentrant, **kwargs)
    return run(size * (segments - 1), len(functions))(input)
