"""Gluon's words for what MXNet's tutorials use: `from lockstep import gluon, init, np, npx, autograd`.

>>> net.initialize(init=init.Normal(sigma=0.01), ctx=devices)
>>> x_shards = gluon.utils.split_and_load(x, devices)
>>> with autograd.record():
...     losses = [loss(net(x), y) for x, y in zip(x_shards, y_shards)]
>>> for l in losses: l.backward()
>>> trainer.step(batch_size)

Shards are a list of tensors, one for each device, as in Gluon. A batch of split_and_load() of lockstep itself is one
tensor, cut over the devices.
"""

import contextlib
import types

from . import _core, nn as _nn, optim as _optim
from ._core import internal as _internal
from .grad_mode import no_grad as _no_grad
from .nn import functional as _F


_state = types.SimpleNamespace(recording=False)


def _list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def try_gpu(i=0):
    """Return device i of the program: a GPU, or a CPU device where there is no GPU. Past the last one: the first."""
    devices = _core.devices()
    return devices[i] if i < len(devices) else devices[0]


def try_all_gpus():
    """Return all devices of the program."""
    return _core.devices()


def waitall():
    """Wait for all work."""
    _core.synchronize()


# ---- init: net.initialize(init.Normal(sigma=0.01))


class Normal:
    """Normal with standard deviation sigma."""

    def __init__(self, sigma=0.01):
        self._text = ("normal", {"std": sigma})


class Uniform:
    """Uniform in [-scale, scale)."""

    def __init__(self, scale=0.07):
        self._text = ("uniform", {"scale": scale})


class Xavier:
    """Uniform of Glorot and Bengio, with the gain that makes Gluon's default magnitude of 3."""

    def __init__(self, rnd_type="uniform", factor_type="avg", magnitude=3):
        if rnd_type != "uniform" or factor_type != "avg" or magnitude != 3:
            raise ValueError("Xavier: expected rnd_type='uniform', factor_type='avg', magnitude=3")
        self._text = ("xavier", {})


init = types.SimpleNamespace(Normal=Normal, Uniform=Uniform, Xavier=Xavier)


# ---- gluon.nn: layers whose input sizes follow from the first batch


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
        if self.training != _state.recording:
            self.train(_state.recording)
        if _state.recording:
            return super().__call__(*args)
        with _no_grad():
            return super().__call__(*args)

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
        """Read them."""
        _core.load_weights(str(filename), self)

    def hybridize(self, active=True):
        """Do nothing: steps are recorded where lockstep.Trainer records them."""


class GluonParameter:
    """A parameter with Gluon's methods."""

    def __init__(self, parameter):
        self._parameter = parameter

    def data(self, ctx=None):
        """Return the value on a device; without one, on the CPU. Raises where the parameter is not initialized."""
        return _internal.parameter_on(self._parameter, ctx)

    def grad(self, ctx=None):
        """Return the gradient."""
        return self._parameter.grad

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
    """Dropout of a share `rate`."""

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


nn = types.SimpleNamespace(Block=Block, HybridBlock=Block, Sequential=Sequential, HybridSequential=Sequential,
                           Dense=Dense, Conv2D=Conv2D, BatchNorm=BatchNorm, Dropout=Dropout, Activation=Activation,
                           Flatten=Flatten, GlobalAvgPool2D=GlobalAvgPool2D, MaxPool2D=MaxPool2D, AvgPool2D=AvgPool2D)


# ---- gluon.loss: the loss of each sample, whose backward() is that of their sum


class _SampleLosses:
    """The loss of each sample, [n]. What it has no method for is the tensor's."""

    def __init__(self, tensor):
        self._tensor = tensor

    def backward(self):
        """Compute the gradients of the sum; trainer.step(batch_size) divides them."""
        self._tensor.sum().backward()

    def __getattr__(self, name):
        return getattr(self._tensor, name)

    def __len__(self):
        return self._tensor.shape[0]

    def __repr__(self):
        return repr(self._tensor)

    def __array__(self, *args, **kwargs):
        return self._tensor.__array__(*args, **kwargs)


def _forward(name):
    def apply(self, other):
        return _SampleLosses(getattr(self._tensor, name)(getattr(other, "_tensor", other)))

    return apply


for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"):
    setattr(_SampleLosses, _name, _forward(_name))


class SoftmaxCrossEntropyLoss:
    """Of logits [n, classes] and labels [n]."""

    def __call__(self, prediction, label):
        return _SampleLosses(_F.cross_entropy(prediction, label, reduction="none"))


class L2Loss:
    """Half of the mean square of each sample."""

    def __call__(self, prediction, label):
        return _SampleLosses(((prediction - label.reshape(tuple(prediction.shape))) ** 2).flatten(1).mean(1) / 2)


loss = types.SimpleNamespace(SoftmaxCrossEntropyLoss=SoftmaxCrossEntropyLoss, L2Loss=L2Loss)


# ---- gluon.Trainer


class Trainer:
    """An optimizer whose step divides the summed gradients by the batch size: "sgd", "adam"."""

    def __init__(self, params, optimizer, optimizer_params=None, kvstore="device"):
        if hasattr(params, "values"):
            params = list(params.values())
        parameters = [p._parameter if isinstance(p, GluonParameter) else p for p in params]
        options = dict(optimizer_params or {})
        # MXNet's defaults, and its names for options.
        usual = {"sgd": {"lr": 0.01}, "adam": {"lr": 0.001}, "adagrad": {"lr": 0.01, "eps": 1e-7},
                 "rmsprop": {"lr": 0.001, "alpha": 0.9}, "adadelta": {"lr": 1.0, "eps": 1e-5}}
        names = {"learning_rate": "lr", "epsilon": "eps"} | ({"rho": "alpha"} if optimizer == "rmsprop" else {})
        options = usual.get(optimizer, {}) | {names.get(name, name): value for name, value in options.items()}
        if "wd" in options:
            options["weight_decay"] = options.pop("wd")
        kinds = {"sgd": _optim.SGD, "adam": _optim.Adam, "adagrad": _optim.Adagrad, "rmsprop": _optim.RMSprop,
                 "adadelta": _optim.Adadelta}
        if optimizer not in kinds:
            raise ValueError(f"Trainer: optimizer {optimizer!r}, expected one of {', '.join(kinds)}")
        self.optimizer = kinds[optimizer](parameters, **options)

    @property
    def learning_rate(self):
        return self.optimizer.param_groups[0]["lr"]

    def set_learning_rate(self, lr):
        """Set the rate of the next steps."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def step(self, batch_size):
        """Divide the gradients, summed over all devices, by batch_size, and update every replica."""
        _internal.scale_gradients(self.optimizer, 1 / batch_size)
        self.optimizer.step()


# ---- gluon.utils, autograd, npx, np


def split_data(data, num_slice, even_split=True):
    """Cut axis 0 into num_slice tensors. With even_split, it must come out even."""
    n = data.shape[0]
    if even_split and n % num_slice:
        raise ValueError(f"data with shape {tuple(data.shape)} cannot be evenly split into {num_slice} slices along "
                         "axis 0")
    # As Gluon: every slice but the last has n // num_slice rows.
    rows = n // num_slice
    ends = [(i + 1) * rows for i in range(num_slice - 1)] + [n]
    return [data[a:b] for a, b in zip([0, *ends], ends)]


def split_and_load(data, ctx_list, batch_axis=0, even_split=True):
    """Cut axis 0 of a batch and move each piece to its device. Returns a list, one tensor for each device."""
    if batch_axis != 0:
        raise ValueError(f"split_and_load: batch_axis {batch_axis}, expected 0")
    ctx_list = _list(ctx_list)
    pieces = split_data(data, len(ctx_list), even_split)
    return [_internal.on_device(piece, device) for piece, device in zip(pieces, ctx_list)]


def clip_global_norm(arrays, max_norm):
    raise NotImplementedError("clip_global_norm: expected trainer.optimizer.clip_grad_norm(max_norm)")


utils = types.SimpleNamespace(split_and_load=split_and_load, split_data=split_data)


@contextlib.contextmanager
def _recording(on):
    before, _state.recording = _state.recording, on
    try:
        yield
    finally:
        _state.recording = before


def _record(train_mode=True):
    if not train_mode:
        raise ValueError("autograd.record: train_mode=False, expected True")
    return _recording(True)


def _pause(train_mode=False):
    if train_mode:
        raise ValueError("autograd.pause: train_mode=True, expected False")
    return _recording(False)


autograd = types.SimpleNamespace(record=_record, pause=_pause)


def _cpu(index=0):
    return _core.device("cpu")


def _gpu(index=0):
    return _core.device("cuda", index)


def _num_gpus():
    return sum(d.type == "cuda" for d in _core.devices())


npx = types.SimpleNamespace(waitall=waitall, set_np=lambda *args, **kwargs: None, cpu=_cpu, gpu=_gpu,
                            num_gpus=_num_gpus, relu=lambda x: _core.relu(x),
                            softmax=lambda x, axis=-1: _core.softmax(x, axis))


def _uniform(low=0.0, high=1.0, size=(), ctx=None, device=None):
    x = _core.rand(*_list(size)) * (high - low) + low
    target = ctx if ctx is not None else device
    return x if target is None else x.to(target)


def _normal(loc=0.0, scale=1.0, size=(), ctx=None, device=None):
    x = _core.randn(*_list(size)) * scale + loc
    target = ctx if ctx is not None else device
    return x if target is None else x.to(target)


np = types.SimpleNamespace(random=types.SimpleNamespace(uniform=_uniform, normal=_normal))
