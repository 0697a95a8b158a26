"""Functions of each element that are compositions of others, with PyTorch's names. Tensors have them as methods.

Each is written so that the derivative of the composition is that of the function, also at its limits.
"""

import math

from . import _core
from .arrangement import broadcast_tensors

_LOG_2 = math.log(2)
# Squares of larger numbers overflow, and 1 more or less makes no difference to them.
_LARGE = 1e8


def _of_large(input, function):
    """Return function(input), and log(2 input) where input is large."""
    is_large, one = input > _LARGE, _core.ones_like(input)
    y = _core.where(is_large, input, one).log() + _LOG_2
    return _core.where(is_large, y, function(_core.where(is_large, one, input)))


def asin(input):
    """Return the arc sine."""
    return _core.atan2(input, (1 - input).sqrt() * (1 + input).sqrt())


def acos(input):
    """Return the arc cosine."""
    return _core.atan2((1 - input).sqrt() * (1 + input).sqrt(), input)


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
    is_near = input.abs() < 1
    half = sinh(_core.where(is_near, input, _core.zeros_like(input)) / 2)
    x = _core.where(is_near, _core.ones_like(input), input)
    return _core.where(is_near, 1 + 2 * half * half, (x.exp() + (-x).exp()) / 2)


def asinh(input):
    """Return the inverse hyperbolic sine."""
    input = input if input.is_floating_point() else input.float()
    negative = input < 0
    x = _core.where(negative, -input, input)
    y = _of_large(x, lambda x: (x * (1 + x / (1 + (x * x + 1).sqrt()))).log1p())
    return _core.where(negative, -y, y)


def acosh(input):
    """Return the inverse hyperbolic cosine."""
    input = input if input.is_floating_point() else input.float()
    return _of_large(input, lambda x: (x - 1 + (x - 1).sqrt() * (x + 1).sqrt()).log1p())


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
    # In parts of the larger one, whose squares are in range. The scale has no derivative: it cancels.
    scale = _core.maximum(input.detach().abs(), other.detach().abs())
    scale = _core.where((scale == 0).logical_or(scale == math.inf), _core.ones_like(scale), scale)
    x, y = input / scale, other / scale
    return (x * x + y * y).sqrt() * scale


def xlogy(input, other):
    """Return input * log(other): 0 where input is 0."""
    is_limit = (input == 0).logical_and((other <= 0).logical_or(other == math.inf))
    return input * _core.where(is_limit, _core.ones_like(other), other).log()


def logaddexp(input, other):
    """Return log(exp(input) + exp(other))."""
    input, other = broadcast_tensors(input, other)
    difference = _core.where(input == other, _core.zeros_like(input), input - other)
    return _core.maximum(input, other) + (-difference.abs()).exp().log1p()


_NAMES = ("asin acos atan sinh cosh asinh acosh atanh exp2 logit frac deg2rad rad2deg clamp_min clamp_max hypot xlogy "
          "logaddexp").split()
_ALIASES = {"arcsin": asin, "arccos": acos, "arctan": atan, "arcsinh": asinh, "arccosh": acosh, "arctanh": atanh,
            "arctan2": _core.atan2}


def install(package):
    """Add the functions to the package and to tensors."""
    for name, function in {**{name: globals()[name] for name in _NAMES}, **_ALIASES}.items():
        setattr(package, name, function)
        setattr(_core.Tensor, name, function)
