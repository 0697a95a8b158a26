"""Functions of each element that are compositions of others, with PyTorch's names. Tensors have them as methods."""

import math

from . import _core
from .arrangement import broadcast_tensors

_LOG_2 = math.log(2)


def asin(input):
    """Return the arc sine."""
    return _core.atan2(input, ((1 - input) * (1 + input)).sqrt())


def acos(input):
    """Return the arc cosine."""
    return _core.atan2(((1 - input) * (1 + input)).sqrt(), input)


def atan(input):
    """Return the arc tangent."""
    return _core.atan2(input, _core.ones_like(input))


def sinh(input):
    """Return the hyperbolic sine."""
    input = input if input.is_floating_point() else input.float()
    return (input.expm1() - (-input).expm1()) / 2


def cosh(input):
    """Return the hyperbolic cosine."""
    input = input if input.is_floating_point() else input.float()
    return (input.exp() + (-input).exp()) / 2


def asinh(input):
    """Return the inverse hyperbolic sine."""
    x = input.abs()
    return input.sign() * (x + x * x / (1 + (x * x + 1).sqrt())).log1p()


def acosh(input):
    """Return the inverse hyperbolic cosine."""
    y = input - 1
    return (y + (y * (input + 1)).sqrt()).log1p()


def atanh(input):
    """Return the inverse hyperbolic tangent."""
    return (input.log1p() - (-input).log1p()) / 2


def exp2(input):
    """Return 2**input."""
    return (input * _LOG_2).exp()


def logit(input, eps=None):
    """Return log(x / (1 - x)); with eps, x is clamped to eps and 1 - eps first."""
    x = input if eps is None else input.clamp(eps, 1 - eps)
    return x.log() - (-x).log1p()


def frac(input):
    """Return what is behind the decimal point."""
    return input - input.trunc()


def deg2rad(input):
    """Return degrees as radians."""
    return input * (math.pi / 180)


def rad2deg(input):
    """Return radians as degrees."""
    return input * (180 / math.pi)


def clamp_min(input, min):
    """Return max(input, min)."""
    return input.clamp(min=min)


def clamp_max(input, max):
    """Return min(input, max)."""
    return input.clamp(max=max)


def hypot(input, other):
    """Return sqrt(input**2 + other**2)."""
    return (input * input + other * other).sqrt()


def xlogy(input, other):
    """Return input * log(other): 0 where input is 0."""
    y = input * other.log()
    return _core.where((input == 0).logical_and(other == other), _core.zeros_like(y), y)


def logaddexp(input, other):
    """Return log(exp(input) + exp(other))."""
    return _core.stack(broadcast_tensors(input, other)).logsumexp(0)


_NAMES = ("asin acos atan sinh cosh asinh acosh atanh exp2 logit frac deg2rad rad2deg clamp_min clamp_max hypot xlogy "
          "logaddexp").split()
_ALIASES = {"arcsin": asin, "arccos": acos, "arctan": atan, "arcsinh": asinh, "arccosh": acosh, "arctanh": atanh,
            "arctan2": _core.atan2}


def install(package):
    """Add the functions to the package and to tensors."""
    for name, function in {**{name: globals()[name] for name in _NAMES}, **_ALIASES}.items():
        setattr(package, name, function)
        setattr(_core.Tensor, name, function)
