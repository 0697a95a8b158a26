"""Initial values of parameters.

The values depend on the seed and the parameter's name, and are the same on all devices. They are made together with the
parameter's other values, so calling these functions in a constructor places nothing.
"""

import math

from .. import _core
from .._core import Parameter, _init
from ..grad_mode import no_grad

_FANS = ("fan_in", "fan_out")


def _of(tensor, function, *args):
    if not isinstance(tensor, Parameter):
        raise TypeError(f"init: a {type(tensor).__name__}, expected an nn.Parameter")
    function(tensor, *args)
    return tensor


def _of_any(tensor, function, method, *args):
    """Set a parameter's initializer, or fill another tensor, such as p.data, from the stream of manual_seed()."""
    if isinstance(tensor, Parameter):
        return _of(tensor, function, *args)
    with no_grad():
        return getattr(tensor, method)(*args)


def uniform_(tensor, a=0.0, b=1.0):
    """Fill with numbers in [a, b)."""
    return _of_any(tensor, _init.uniform_, "uniform_", a, b)


def normal_(tensor, mean=0.0, std=1.0):
    """Fill from a normal distribution."""
    return _of_any(tensor, _init.normal_, "normal_", mean, std)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0):
    """Fill from a normal distribution limited to [a, b]."""
    return _of(tensor, _init.trunc_normal_, mean, std, a, b)


def constant_(tensor, val):
    """Fill with one number."""
    return _of_any(tensor, _init.constant_, "fill_", val)


def ones_(tensor):
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor):
    """Fill with zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor):
    """Fill with the identity matrix."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        tensor.copy_(_core.eye(*tensor.shape))
    return tensor


def calculate_gain(nonlinearity, param=None):
    """Return the gain of xavier and orthogonal for this nonlinearity."""
    if nonlinearity in ("linear", "sigmoid") or nonlinearity.startswith("conv"):
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _fans(tensor):
    """Return the numbers of inputs and outputs of a weight [out, in, kernel...]."""
    _matrix(tensor)
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _fan(tensor, mode):
    mode = mode.lower()
    if mode not in _FANS:
        raise ValueError(f"Mode {mode} not supported, please use one of {list(_FANS)}")
    return _fans(tensor)[_FANS.index(mode)] or 1  # of no elements, any


def _matrix(tensor):
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")


def xavier_uniform_(tensor, gain=1.0):
    """Glorot and Bengio, uniform."""
    if not isinstance(tensor, Parameter):
        bound = gain * math.sqrt(6 / sum(_fans(tensor)))
        return uniform_(tensor, -bound, bound)
    _matrix(tensor)
    return _of(tensor, _init.xavier_uniform_, gain)


def xavier_normal_(tensor, gain=1.0):
    """Glorot and Bengio, normal."""
    if not isinstance(tensor, Parameter):
        return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans(tensor))))
    _matrix(tensor)
    return _of(tensor, _init.xavier_normal_, gain)


def _slope(nonlinearity, a):
    """The slope of a leaky ReLU with this gain."""
    gain = calculate_gain(nonlinearity, a)
    if gain > math.sqrt(2):
        raise _core.Error(f"init: kaiming for {nonlinearity}, whose gain {gain} is above that of a ReLU: expected "
                          "'relu', 'leaky_relu', or 'linear'")
    return math.sqrt(max(2 / gain**2 - 1, 0)) if nonlinearity != "leaky_relu" else a


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """He et al., uniform."""
    if not isinstance(tensor, Parameter):
        bound = calculate_gain(nonlinearity, a) * math.sqrt(3 / _fan(tensor, mode))
        return uniform_(tensor, -bound, bound)
    _matrix(tensor)
    return _of(tensor, _init.kaiming_uniform_, _slope(nonlinearity, a), mode.lower())


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """He et al., normal."""
    if not isinstance(tensor, Parameter):
        std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
        return normal_(tensor, 0.0, std)
    _matrix(tensor)
    return _of(tensor, _init.kaiming_normal_, _slope(nonlinearity, a), mode.lower())


def orthogonal_(tensor, gain=1):
    """Saxe et al.: orthonormal rows or columns."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    return _of(tensor, _init.orthogonal_, gain)
