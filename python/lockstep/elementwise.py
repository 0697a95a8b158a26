"""Elementwise functions that are compositions of others, with PyTorch's names. Tensors have them as methods.

Each is written so that the derivative of the composition is that of the function, even at its limits.
"""

import functools
import math

from . import _core

_LOG_2 = math.log(2)
# Squares of much larger numbers overflow, and adding or subtracting 1 does not change such numbers.
_LARGE = 1e8


def _wide(dtype):
    """Return the type in which a composition is computed: in 16 bits, each step would round its result."""
    return dtype if dtype == _core.float64 else _core.float32


def _result_type(a, b):
    """Return the floating type of a result. A tensor without axes does not count beside a floating tensor with axes."""
    floats = [t for t in (a, b) if t.is_floating_point()]
    deciding = [t for t in floats if t.dim()] or floats
    return _core.cat([_core.zeros(0, dtype=t.dtype) for t in deciding]).dtype if deciding else _core.float32


def _composed(function):
    """Compute function(input, ...) in float32 at least; whole numbers and bools give float32."""
    @functools.wraps(function)
    def call(input, *args, **kwargs):
        dtype = input.dtype if input.is_floating_point() else _core.float32
        return function(input.to(_wide(dtype)), *args, **kwargs).to(dtype)

    return call


def _composed_of_two(function):
    """Do the same for function(input, other), one of which may be a number."""
    @functools.wraps(function)
    def call(input, other):
        tensors = [t for t in (input, other) if isinstance(t, _core.Tensor)]
        dtype = _result_type(tensors[0], tensors[-1])
        wide = _wide(dtype)
        return function(*(t.to(wide) if isinstance(t, _core.Tensor)
                          else _core.tensor(t, dtype=wide, device=tensors[0].device)
                          for t in (input, other))).to(dtype)

    return call


def _of_large(input, function):
    """Return function(input), or log(2 input) if input is large."""
    is_large, one = input > _LARGE, _core.ones_like(input)
    y = _core.where(is_large, input, one).log() + _LOG_2
    return _core.where(is_large, y, function(_core.where(is_large, one, input)))


@_composed
def asin(input):
    """Return the arc sine."""
    return _core.atan2(input, (1 - input).sqrt() * (1 + input).sqrt())


@_composed
def acos(input):
    """Return the arc cosine."""
    return _core.atan2((1 - input).sqrt() * (1 + input).sqrt(), input)


@_composed
def atan(input):
    """Return the arc tangent."""
    return _core.atan2(input, _core.ones_like(input))


@_composed
def sinh(input):
    """Return the hyperbolic sine."""
    return (input.expm1() - (-input).expm1()) / 2


@_composed
def cosh(input):
    """Return the hyperbolic cosine."""
    is_near = input.abs() < 1
    half = sinh(_core.where(is_near, input, _core.zeros_like(input)) / 2)
    x = _core.where(is_near, _core.ones_like(input), input)
    return _core.where(is_near, 1 + 2 * half * half, (x.exp() + (-x).exp()) / 2)


@_composed
def asinh(input):
    """Return the inverse hyperbolic sine."""
    negative = input < 0
    x = _core.where(negative, -input, input)
    y = _of_large(x, lambda x: (x * (1 + x / (1 + (x * x + 1).sqrt()))).log1p())
    return _core.where(negative, -y, y)


@_composed
def acosh(input):
    """Return the inverse hyperbolic cosine."""
    return _of_large(input, lambda x: (x - 1 + (x - 1).sqrt() * (x + 1).sqrt()).log1p())


@_composed
def atanh(input):
    """Return the inverse hyperbolic tangent."""
    return (input.log1p() - (-input).log1p()) / 2


def exp2(input):
    """Return 2**input."""
    return _core.pow(2.0, input)


@_composed
def logit(input, eps=None):
    """Return log(x / (1 - x)); with eps, x is clamped to eps and 1 - eps first."""
    if eps is not None:
        # If eps is above 1 / 2, the lower bound applies first, as in PyTorch.
        input = input.clamp(max=1 - eps) if eps <= 0.5 else _core.where(input < eps, eps, input.clamp(max=1 - eps))
        input = input.clamp(min=eps) if eps <= 0.5 else input
    x = input
    return x.log() - (-x).log1p()


def frac(input):
    """Return the fractional part."""
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


@_composed_of_two
def hypot(input, other):
    """Return sqrt(input**2 + other**2)."""
    # Divides by the larger one, so that squares are in range. The scale has no derivative, because it cancels.
    scale = _core.maximum(input.detach().abs(), other.detach().abs())
    scale = _core.where((scale == 0).logical_or(scale == math.inf), _core.ones_like(scale), scale)
    x, y = input / scale, other / scale
    is_infinite = (input.abs() == math.inf).logical_or(other.abs() == math.inf)  # even if the other one is nan
    return _core.where(is_infinite, math.inf, (x * x + y * y).sqrt() * scale)


@_composed_of_two
def xlogy(input, other):
    """Return input * log(other): 0 where input is 0."""
    is_limit = (input == 0).logical_and((other <= 0).logical_or(other == math.inf))
    return input * _core.where(is_limit, _core.ones_like(other), other).log()


@_composed_of_two
def logaddexp(input, other):
    """Return log(exp(input) + exp(other))."""
    difference = input - other
    difference = _core.where(input == other, _core.zeros_like(difference), difference)
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
