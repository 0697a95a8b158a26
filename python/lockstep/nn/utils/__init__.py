"""Helpers for parameters and sequences."""

import math

from ... import _core
from ..._core import Parameter, Tensor
from ...grad_mode import no_grad
from . import rnn  # noqa: F401


def _parameters(parameters):
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p for p in parameters if p.grad is not None]


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False):
    """Scale all gradients so that their total norm is at most max_norm. Returns the norm before, and waits for it."""
    parameters, max_norm, norm_type = _parameters(parameters), float(max_norm), float(norm_type)
    if not parameters:
        return _core.tensor(0.0)
    norms = [_norm(p.grad, norm_type) for p in parameters]
    if any(map(math.isnan, norms)):
        total = math.nan
    else:
        total = max(norms) if norm_type == math.inf else sum(n**norm_type for n in norms) ** (1 / norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
                           "cannot be clipped.")
    factor = max_norm / (total + 1e-6)
    if not factor >= 1:  # nan, too
        for p in parameters:
            _scale(p, factor)
    return _core.tensor(total, dtype=max((p.dtype for p in parameters), key=_core.float64.__eq__))


def _norm(x, p):
    return x.abs().max().item() if p == math.inf else (x * x).sum().item() ** 0.5 if p == 2 else x.norm(p).item()


def _scale(p, factor):
    if isinstance(p, Parameter):
        p._map_grad(factor)
    else:
        p.grad.mul_(factor)


def clip_grad_value_(parameters, clip_value):
    """Limit each element of the gradients to [-clip_value, clip_value]."""
    limit = float(clip_value)
    for p in _parameters(parameters):
        _set(p, p.grad.clamp(-limit, limit))


def _set(p, gradient):
    """Change a gradient in place, or, because `grad` of a parameter is a copy, assign it."""
    if isinstance(p, Parameter):
        p.grad = gradient
    else:
        with no_grad():
            p.grad.copy_(gradient)


def zero_gradients(parameters, set_to_none, drop=lambda: None):
    """Implement zero_grad() of modules and optimizers. drop() is called after the last look at the gradients."""
    parameters = list(parameters)
    zeroed = [] if set_to_none else [(p, None if isinstance(p, Parameter) else p.grad) for p in parameters
                                     if _has_gradient(p)]
    drop()
    for p in parameters:
        p.grad = None
    with no_grad():
        for p, gradient in zeroed:
            p.grad = _core.zeros_like(p.data) if gradient is None else gradient.zero_()


def _has_gradient(p):
    try:
        return p.grad is not None
    except _core.Error:
        return False  # of no_sync(): its sum over the ranks is not there


def parameters_to_vector(parameters):
    """Return all elements of the parameters as one vector."""
    return _core.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Set the parameters from a vector."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: {type(vec).__name__}, expected a tensor")
    start = 0
    for p in parameters:
        p.data = vec[start:start + p.numel()].reshape(p.shape).detach().clone()
        start += p.numel()
