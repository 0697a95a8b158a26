"""Layers that are composed of others or of functions, and Python parts of the library's layers."""

from .. import _core
from .._core import BatchNorm, Embedding, Identity, Linear, Module, Parameter, RNNBase
from . import functional as F, init
from .module import _construct

_make_identity = _construct[Identity] = Identity.__init__
Identity.__init__ = lambda self, *args, **kwargs: _make_identity(self)

# Reads sizes from the weight: the first batch may have decided them, and a layer made in C++ has no arguments.
Linear.in_features = property(lambda self: self.weight.shape[1])
Linear.out_features = property(lambda self: self.weight.shape[0])



def _from_pretrained(cls, embeddings, freeze=True, padding_idx=None, **options):
    """Make an embedding with these rows."""
    rows, columns = embeddings.shape
    layer = cls(rows, columns, padding_idx=padding_idx, **options)
    layer.weight = Parameter(embeddings, requires_grad=not freeze)
    return layer


Embedding.from_pretrained = classmethod(_from_pretrained)
RNNBase.flatten_parameters = lambda self: None


def _reset_parameters(self):
    """Give the parameters, and the running statistics, their initial values again. A class may define its own."""
    for part in (*self.parameters(False), *self.buffers(False)):
        part._reset()


def _reset_running_stats(self):
    """Give the running statistics their initial values again."""
    for buffer in self.buffers(False):
        buffer._reset()


_reset_parameters.of_library = True
_NORMS = (BatchNorm, _core.InstanceNorm1d, _core.InstanceNorm2d, _core.InstanceNorm3d)
for _class in (Linear, Embedding, _core.EmbeddingBag, RNNBase, _core.LSTMCell, _core.GRUCell, _core.RNNCell,
               _core.Conv1d, _core.Conv2d, _core.Conv3d, _core.ConvTranspose1d, _core.ConvTranspose2d, _core.LayerNorm,
               _core.GroupNorm, _core.RMSNorm, *_NORMS):
    _class.reset_parameters = _reset_parameters
for _class in _NORMS:
    _class.reset_running_stats = _reset_running_stats
    _class._version = 2  # of a state with num_batches_tracked
del _class, _NORMS


class SyncBatchNorm(BatchNorm):
    """Batch norm over the batch of all devices and ranks. convert_sync_batchnorm() converts a model's layers to it."""

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """Make every batch norm of the model synchronized, in place."""
        if process_group is not None:
            raise _core.Error("convert_sync_batchnorm: a process_group, expected None")
        _core.convert_sync_batchnorm(module)
        return module


class Bilinear(Module):
    """x1^T A x2 + b for each output feature."""

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__(device=device, dtype=dtype)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = in1_features**-0.5
        self.weight = Parameter(_core.zeros(out_features, in1_features, in2_features))
        init.uniform_(self.weight, -bound, bound)
        self.bias = Parameter(_core.zeros(out_features)) if bias else None
        if bias:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


class LocalResponseNorm(Module):
    """Divides elements by the sum of squares of neighboring channels."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class Softmax2d(Module):
    """Softmax over the channels of pictures."""

    def forward(self, input):
        return F.softmax(input, -3)


class AdaptiveMaxPool3d(Module):
    """Maxima of as many windows as the output has elements."""

    def __init__(self, output_size, return_indices=False):
        super().__init__()
        if return_indices:
            raise _core.Error("AdaptiveMaxPool3d: return_indices=True, expected False")
        self.output_size = output_size

    def forward(self, input):
        return F.adaptive_max_pool3d(input, self.output_size)

    def extra_repr(self):
        return f"output_size={self.output_size}"


class MaxUnpool2d(Module):
    """Puts elements where F.max_pool2d(return_indices=True) found them."""

    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        pair = [x if isinstance(x, tuple) else (x, x) for x in (kernel_size, stride or kernel_size, padding)]
        self.kernel_size, self.stride, self.padding = pair

    def forward(self, input, indices, output_size=None):
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class UpsamplingNearest2d(_core.Upsample):
    """Upsample with mode nearest."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(_core.Upsample):
    """Upsample with mode bilinear and aligned corners."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
