"""Modules, layers, and losses with PyTorch's names and defaults."""

from .._core import Buffer, Module, Parameter  # noqa: F401
from . import module  # noqa: F401  (completes Module)
from .containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential  # noqa: F401
from .._core import (  # noqa: F401
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AvgPool1d,
    AvgPool2d, AvgPool3d, BatchNorm1d, BatchNorm2d, BatchNorm3d, CELU, CircularPad1d, CircularPad2d,
    ConstantPad1d, ConstantPad2d, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, Dropout, Dropout1d,
    Dropout2d, ELU, Embedding, EmbeddingBag, FeedForward, Flatten, Fold, GELU, GLU, GroupNorm, GRU, GRUCell,
    Hardshrink, Hardsigmoid, Hardswish, Hardtanh, Identity, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm,
    LeakyReLU, Linear, LogSigmoid, LogSoftmax, LPPool2d, LSTM, LSTMCell, MaxPool1d, MaxPool2d, MaxPool3d, Mish,
    MultiheadAttention, PixelShuffle, PixelUnshuffle, PReLU, ReflectionPad1d, ReflectionPad2d, ReLU, ReLU6,
    ReplicationPad1d, ReplicationPad2d, RMSNorm, RNN, RNNBase, RNNCell, RotaryPositionalEmbeddings, SELU, Sigmoid,
    SiLU, Softmax, Softmin, Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold, TransformerDecoderLayer,
    TransformerEncoderLayer, Unflatten, Unfold, Upsample, ZeroPad1d, ZeroPad2d)
from .layers import (  # noqa: F401
    AdaptiveMaxPool3d, Bilinear, LocalResponseNorm, MaxUnpool2d, Softmax2d, SyncBatchNorm, UpsamplingBilinear2d,
    UpsamplingNearest2d)
from .lazy import *  # noqa: F401,F403
from .loss import *  # noqa: F401,F403
from .transformer import Transformer, TransformerDecoder, TransformerEncoder  # noqa: F401
from . import functional, init, parallel, utils  # noqa: F401,E402
from .parallel import DataParallel  # noqa: F401,E402
