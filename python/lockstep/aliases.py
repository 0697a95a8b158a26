"""Modules under which PyTorch also has names of other modules: `torch.utils.data.dataloader.DataLoader`.

All names that PyTorch 1.13 makes reachable by attribute after `import torch`, if Lockstep has their objects.
"""

import sys
import types

from . import _core, amp, cuda, nn, utils

_LAYERS = {
    "activation": "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish "
                  "MultiheadAttention PReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink "
                  "Softsign Tanh Tanhshrink Threshold",
    "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm",
    "container": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d "
            "LazyConvTranspose2d",
    "distance": "CosineSimilarity PairwiseDistance",
    "dropout": "Dropout Dropout1d Dropout2d",
    "flatten": "Flatten Unflatten",
    "fold": "Fold Unfold",
    "instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d "
                    "LazyInstanceNorm3d",
    "linear": "Bilinear Identity LazyLinear Linear",
    "loss": "BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss "
            "HuberLoss KLDivLoss L1Loss MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss "
            "MultiMarginLoss NLLLoss PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss "
            "TripletMarginWithDistanceLoss",
    "module": "Module",
    "normalization": "GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "padding": "CircularPad1d CircularPad2d ConstantPad1d ConstantPad2d ReflectionPad1d ReflectionPad2d "
               "ReplicationPad1d ReplicationPad2d ZeroPad1d ZeroPad2d",
    "pixelshuffle": "PixelShuffle PixelUnshuffle",
    "pooling": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
               "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d LPPool2d MaxPool1d MaxPool2d MaxPool3d MaxUnpool2d",
    "rnn": "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell",
    "sparse": "Embedding EmbeddingBag",
    "transformer": "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer",
    "upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
}


def _tuple_of(n):
    def repeat(x):
        return tuple(x) if isinstance(x, (tuple, list)) else (x,) * n

    return repeat


def _add(parent, name, source, names, **more):
    """Make the module parent.name with these names of source."""
    module = types.ModuleType(f"{parent.__name__}.{name}", f"Names of {source.__name__}.")
    module.__dict__.update({key: getattr(source, key) for key in names.split()}, **more)
    sys.modules[module.__name__] = module
    setattr(parent, name, module)
    return module


def _consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Remove the prefix, which a DataParallel adds, from the names of a state, in place."""
    for old in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[old[len(prefix):]] = state_dict.pop(old)
    metadata = getattr(state_dict, "_metadata", None)
    for old in list(metadata or ()):
        if old + "." == prefix:
            metadata[""] = metadata.pop(old)
        elif old.startswith(prefix):
            metadata[old[len(prefix):]] = metadata.pop(old)


def install():
    """Make the modules."""
    data = utils.data
    _add(data, "dataloader", data, "DataLoader default_collate get_worker_info")
    _add(data, "dataset", data, "ConcatDataset Dataset IterableDataset Subset TensorDataset random_split")
    _add(data, "sampler", data, "BatchSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler "
                                "WeightedRandomSampler")
    _add(nn, "parameter", nn, "Buffer Parameter")
    modules = _add(nn, "modules", nn, " ".join(_LAYERS.values()))
    for name, layers in _LAYERS.items():
        _add(modules, name, nn, layers)
    modules.batchnorm._BatchNorm = nn.BatchNorm2d.__base__
    modules.linear.NonDynamicallyQuantizableLinear = nn.Linear  # the last layer of an attention
    _add(modules, "utils", nn, "", consume_prefix_in_state_dict_if_present=_consume_prefix_in_state_dict_if_present,
         _single=_tuple_of(1), _pair=_tuple_of(2), _triple=_tuple_of(3))
    _add(nn.parallel, "distributed", nn.parallel, "DistributedDataParallel")
    _add(nn.parallel, "scatter_gather", nn.parallel, "gather scatter")
    _add(nn.utils, "clip_grad", nn.utils, "clip_grad_norm_ clip_grad_value_")
    _add(nn.utils, "convert_parameters", nn.utils, "parameters_to_vector vector_to_parameters")
    _add(amp, "autocast_mode", amp, "autocast")
    _add(cuda.amp, "autocast_mode", cuda.amp, "autocast")
    _add(cuda.amp, "grad_scaler", cuda.amp, "GradScaler")
    _add(utils, "dlpack", _core, "from_dlpack")
