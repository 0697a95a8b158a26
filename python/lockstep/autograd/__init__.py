"""Gradients of results: torch.autograd.

>>> import lockstep as torch
>>> x = torch.tensor(3.0, requires_grad=True)
>>> torch.autograd.grad(x * x, x)
(tensor(6.),)
"""

from .. import _core
from .._core import Tensor
from ..grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from . import function
from .anomaly_mode import detect_anomaly, set_detect_anomaly  # noqa: F401
from .function import Function  # noqa: F401
from .gradcheck import gradcheck  # noqa: F401


def _tuple(tensors):
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def _seeds(name, outputs, seeds):
    if seeds is None:
        return [None] * len(outputs)
    seeds = [seeds] if isinstance(seeds, Tensor) else list(seeds)
    if len(seeds) != len(outputs):
        raise _core.Error(f"{name}: {len(seeds)} gradients for {len(outputs)} tensors, expected as many")
    return seeds


def _refuse(name, create_graph):
    if create_graph:
        raise _core.Error(f"{name}: create_graph=True, but gradients have no history: expected False")


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True,
         allow_unused=False) -> tuple[Tensor, ...]:
    """Return the gradients of outputs with respect to inputs, which are leaves or results. Their grad does not change.

    An output that is not a scalar needs its gradient in grad_outputs. Consumes the graph between outputs and inputs
    unless retain_graph is set.
    """
    _refuse("grad", create_graph)
    outputs, inputs = _tuple(outputs), _tuple(inputs)
    found = _core._autograd.grad(outputs, inputs, _seeds("grad", outputs, grad_outputs), bool(retain_graph))
    for i, gradient in enumerate(found):
        if gradient is None and not allow_unused:
            raise _core.Error(f"grad: no output depends on input {i}, expected allow_unused=True, which gives None")
    return tuple(found)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False) -> None:
    """Add the gradients of all leaves to their grad, in one pass. Consumes the graph unless retain_graph is set."""
    _refuse("backward", create_graph)
    tensors = _tuple(tensors)
    _core._autograd.backward(tensors, _seeds("backward", tensors, grad_tensors), bool(retain_graph))


class _VariableType(type):
    def __instancecheck__(cls, x):
        return isinstance(x, Tensor)


class Variable(metaclass=_VariableType):
    """A tensor: the name that old programs use."""

    def __new__(cls, data, requires_grad=False):
        """Return a new tensor that shares the memory of data."""
        return data.detach().requires_grad_(requires_grad)
