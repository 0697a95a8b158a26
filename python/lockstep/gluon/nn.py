"""Layers whose input sizes follow from the first batch."""

from .. import _core, nn as _nn
from .._core import internal as _internal
from ..grad_mode import no_grad as _no_grad
from ..nn import functional as _F
from . import autograd as _autograd
from .arrays import _array, as_array
from .init import Uniform
from .utils import _list


class Block(_nn.Module):
    """A module with Gluon's names: initialize(), collect_params(), save_parameters()."""

    def initialize(self, init=None, ctx=None, force_reinit=False, device=None):
        """Give all parameters their initial values, the same on all devices (ctx)."""
        devices = _list(ctx if ctx is not None else device) if (ctx is not None or device is not None) else []
        kind, values = (init or Uniform())._text
        _internal.initialize(self, kind, values, devices, force_reinit)

    # Outside autograd.record(), a block predicts: batch norm and dropout are in evaluation mode, and nothing is
    # recorded.
    def __call__(self, *args):
        recording = _autograd.is_recording()
        if self.training != recording:
            self.train(recording)
        if recording:
            return as_array(super().__call__(*args))
        with _no_grad():
            return as_array(super().__call__(*args))

    def collect_params(self):
        """Return the parameters by name."""
        return {name: GluonParameter(p) for name, p in self.named_parameters()}

    @property
    def params(self):
        """The block's own parameters: net[0].params.get("weight")."""
        return {name: GluonParameter(p) for name, p in self.named_parameters(recurse=False)}

    def save_parameters(self, filename):
        """Write the weights to a safetensors file."""
        _core.save_weights(str(filename), self)

    def load_parameters(self, filename, ctx=None):
        """Read the weights from a safetensors file."""
        _core.load_weights(str(filename), self)

    def hybridize(self, active=True):
        """Do nothing: lockstep.Trainer can record steps."""


HybridBlock = Block


class GluonParameter:
    """A parameter with Gluon's methods."""

    def __init__(self, parameter):
        self._parameter = parameter

    def data(self, ctx=None):
        """Return the value on a device; without one, on the only device, or on the CPU if there are several.

        Raises where the parameter is not initialized.
        """
        if ctx is None:
            devices = self.list_ctx()
            ctx = devices[0] if len(devices) == 1 else None
        return _array(_internal.parameter_on(self._parameter, ctx))

    def grad(self, ctx=None):
        """Return the gradient."""
        return _array(self._parameter.grad)

    def list_ctx(self):
        """Return the devices that hold the parameter."""
        return _internal.parameter_devices(self._parameter)

    list_device = list_ctx

    @property
    def shape(self):
        return self._parameter.shape


class Sequential(Block):
    """Blocks one after the other: net.add(block, ...)."""

    def __init__(self, *blocks):
        super().__init__()
        self._count = 0
        self.add(*blocks)

    def add(self, *blocks):
        """Append blocks."""
        for block in blocks:
            self.add_module(str(self._count), block)
            self._count += 1

    def forward(self, x):
        for block in self:
            x = block(x)
        return x

    def __iter__(self):
        return iter(getattr(self, str(i)) for i in range(self._count))

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return getattr(self, str(range(self._count)[index]))


HybridSequential = Sequential


def _activated(y, activation):
    return y if activation is None else getattr(_F if hasattr(_F, activation) else _core, activation)(y)


class _Layer(Block):
    """A block around one layer of lockstep.nn, whose parameters are the block's own."""

    def __init__(self, layer, activation=None):
        super().__init__()
        self.pass_on(layer)
        object.__setattr__(self, "_layer", layer)
        object.__setattr__(self, "_activation", activation)

    @property
    def weight(self):
        """The layer's weight."""
        return GluonParameter(self._layer.weight)

    @property
    def bias(self):
        """The layer's bias; None without one."""
        return None if self._layer.bias is None else GluonParameter(self._layer.bias)

    def forward(self, x):
        return _activated(self._layer(x), self._activation)


def _one(value):
    return value[0] if isinstance(value, (tuple, list)) and len(set(value)) == 1 else value


class Dense(_Layer):
    """A linear layer; `flatten` joins all axes but the first."""

    def __init__(self, units, activation=None, use_bias=True, flatten=True, in_units=0):
        layer = _nn.Linear(in_units, units, bias=use_bias) if in_units else _nn.LazyLinear(units, bias=use_bias)
        super().__init__(layer, activation)
        object.__setattr__(self, "_flatten", flatten)

    def forward(self, x):
        return super().forward(x.flatten(1) if self._flatten and x.dim() > 2 else x)


class Conv2D(_Layer):
    """A convolution of pictures."""

    def __init__(self, channels, kernel_size, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1,
                 activation=None, use_bias=True, in_channels=0):
        options = dict(kernel_size=kernel_size, stride=strides, padding=padding, dilation=dilation, groups=groups,
                       bias=use_bias)
        layer = _nn.Conv2d(in_channels, channels, **options) if in_channels else _nn.LazyConv2d(channels, **options)
        super().__init__(layer, activation)


class BatchNorm(_Layer):
    """Batch norm of channels on axis 1, of pictures [N, C, H, W] (in_axes=4) or vectors [N, C] (in_axes=2)."""

    def __init__(self, axis=1, momentum=0.9, epsilon=1e-5, in_channels=0, in_axes=4):
        if axis != 1:
            raise ValueError(f"BatchNorm: axis {axis}, expected 1")
        kind = {4: "BatchNorm2d", 2: "BatchNorm1d"}[in_axes]
        options = dict(eps=epsilon, momentum=1 - momentum)
        layer = getattr(_nn, kind)(in_channels, **options) if in_channels else getattr(_nn, "Lazy" + kind)(**options)
        super().__init__(layer)


class Dropout(_Layer):
    """Dropout with probability `rate`."""

    def __init__(self, rate):
        super().__init__(_nn.Dropout(rate))


class Activation(Block):
    """relu, sigmoid, tanh, ..."""

    def __init__(self, activation):
        super().__init__()
        object.__setattr__(self, "_activation", activation)

    def forward(self, x):
        return _activated(x, self._activation)


class Flatten(Block):
    """All axes but the first as one."""

    def forward(self, x):
        return x.flatten(1)


class GlobalAvgPool2D(Block):
    """The mean over height and width, [N, C, 1, 1]."""

    def forward(self, x):
        return _F.adaptive_avg_pool2d(x, 1)


class MaxPool2D(_Layer):
    """The maximum of each window."""

    def __init__(self, pool_size=(2, 2), strides=None, padding=0):
        super().__init__(_nn.MaxPool2d(_one(pool_size), stride=_one(strides), padding=_one(padding)))


class AvgPool2D(_Layer):
    """The mean of each window."""

    def __init__(self, pool_size=(2, 2), strides=None, padding=0):
        super().__init__(_nn.AvgPool2d(_one(pool_size), stride=_one(strides), padding=_one(padding)))
