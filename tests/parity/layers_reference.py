#!/usr/bin/python3
"""Writes what PyTorch's layers and small models compute: their states, outputs, and gradients in f64; the losses of
twelve steps of the models; the arguments of initializers. The layers of docs/models.md are run as the page has them.
Run by hand, with Debian's python3-torch:
  tests/parity/layers_reference.py > tests/parity/layers.json
  tests/parity/layers_reference.py --printed > tests/parity/printed_layers.json    layers that print as in PyTorch, too
With --compare, it compares these files with what this PyTorch computes, and compositions with PyTorch's own layers.
tests/models/layers_parity_test.cc and printed_layers.cc have the same lists in C++.
"""
import pathlib
import re
import sys
from unittest import mock
import zlib
import torch
from torch import nn
import torch.nn.functional as F

from comparison import compare_file, distance, rounded, seeds, write

ROOT = pathlib.Path(__file__).resolve().parents[2]
for block in re.findall(r'```python\n(.*?)```', (ROOT / 'docs/models.md').read_text(), re.DOTALL):
    exec(block)  # SwiGLU, Highway, SqueezeExcite

VOCABULARY, CONTEXT, BATCH, STEPS = 11, 6, 4, 12


def tokens(step, *shape):
    """Numbers below the size of the vocabulary."""
    count = 1
    for extent in shape:
        count *= extent
    return torch.tensor([(i * i + 3 * i + 5 * step) % VOCABULARY for i in range(count)]).reshape(shape)


def padding(samples, keys):
    """Returns a mask: the last n keys of sample n are padding."""
    return torch.tensor([[s >= keys - n for s in range(keys)] for n in range(samples)])


def causal(length):
    return torch.ones(length, length).triu(1).bool()


class Attention(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.heads = heads

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2) for y in self.c_attn(x).split(c, 2))
        scores = (q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5).masked_fill(causal(t), -torch.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))


class Mlp(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(features), Attention(features, heads)
        self.ln_2, self.mlp = nn.LayerNorm(features), Mlp(features)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, features=8, heads=2, layers=2):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(VOCABULARY, features), wpe=nn.Embedding(CONTEXT, features),
            h=nn.ModuleList([Block(features, heads) for _ in range(layers)]), ln_f=nn.LayerNorm(features)))
        self.lm_head = nn.Linear(features, VOCABULARY, bias=False)

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1]))
        for block in t.h:
            x = block(x)
        return self.lm_head(t.ln_f(x))


class LstmLanguageModel(nn.Module):
    def __init__(self, features=4, hidden=5, layers=2):
        super().__init__()
        self.encoder = nn.Embedding(VOCABULARY, features)
        self.rnn = nn.LSTM(features, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, VOCABULARY)

    def forward(self, ids):
        return self.decoder(self.rnn(self.encoder(ids))[0])


def lstm(module, x, *state):
    y, (h, c) = module(x, state or None)
    return y, h, c


X, STATE = (5, 2, 3), (4, 2, 4)
CASES = {
    'multihead attention': (lambda: nn.MultiheadAttention(8, 2), [(4, 2, 8), (3, 2, 8), (3, 2, 8)],
                            lambda m, q, k, v: m(q, k, v)),
    'multihead attention with masks': (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True), [(2, 4, 8), (2, 3, 8), (2, 3, 8), (4, 3)],
        lambda m, q, k, v, mask: m(q, k, v, key_padding_mask=padding(2, 3), attn_mask=mask)),
    'multihead attention with a mask for each head': (
        lambda: nn.MultiheadAttention(8, 2, bias=False), [(4, 2, 8), (4, 4, 4)],
        lambda m, x, mask: m(x, x, x, attn_mask=mask)),
    'causal multihead attention': (lambda: nn.MultiheadAttention(8, 4), [(4, 2, 8)],
                                   lambda m, x: (m(x, x, x, attn_mask=causal(4))[0],)),
    'transformer encoder layer': (lambda: nn.TransformerEncoderLayer(8, 2, 12, 0), [(4, 2, 8)], lambda m, x: (m(x),)),
    'transformer encoder layer, norm first': (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, 0, 'gelu', batch_first=True, norm_first=True), [(2, 4, 8)],
        lambda m, x: (m(x, causal(4), padding(2, 4)),)),
    'lstm': (lambda: nn.LSTM(3, 4), [X], lstm),
    'lstm in both directions': (lambda: nn.LSTM(3, 4, 2, bidirectional=True), [X, STATE, STATE], lstm),
    'lstm, batch first, no bias': (lambda: nn.LSTM(3, 4, 2, bias=False, batch_first=True), [X], lstm),
    'gru': (lambda: nn.GRU(3, 4), [X], lambda m, x: m(x)),
    'gru in both directions': (lambda: nn.GRU(3, 4, 2, bidirectional=True), [X, STATE], lambda m, x, h: m(x, h)),
    'gru, batch first, no bias': (lambda: nn.GRU(3, 4, bias=False, batch_first=True), [X], lambda m, x: m(x)),
    'conv1d': (lambda: nn.Conv1d(4, 6, 3, 2, 1, 2, 2), [(2, 4, 9)], lambda m, x: (m(x),)),
    'conv transpose 2d': (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), [(2, 4, 3, 2)], lambda m, x: (m(x),)),
    'adaptive avg pool 2d': (lambda: nn.AdaptiveAvgPool2d((2, 3)), [(1, 2, 5, 4)], lambda m, x: (m(x),)),
    'upsample': (lambda: nn.Upsample(scale_factor=2, mode='bilinear'), [(1, 2, 3, 2)], lambda m, x: (m(x),)),
    'unflatten and flatten': (lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten(2, 3)), [(2, 6, 4)],
                              lambda m, x: (m(x),)),
    'gpt': (Gpt, [], lambda m: (m(tokens(0, 3, CONTEXT)),)),
    'lstm language model': (LstmLanguageModel, [], lambda m: (m(tokens(0, 3, CONTEXT)),)),
}


class RMSNorm(nn.Module):
    """PyTorch 2.4 and later: nn.RMSNorm."""
    def __init__(self, shape, eps=torch.finfo(torch.float64).eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(shape)), eps

    def forward(self, x):
        dims = tuple(range(-self.weight.dim(), 0))
        return x * torch.rsqrt((x * x).mean(dims, True) + self.eps) * self.weight


class LayerNormWithoutBias(nn.Module):
    """PyTorch 2.1 and later: nn.LayerNorm(shape, bias=False)."""
    def __init__(self, shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight)


def of_one(m, x):
    return (m(x),)


def trained_and_tested(m, x):
    """The second output is that of the running statistics."""
    return m(x), m.eval()(x)


# Each from random numbers of its own.
LATER = {
    'rms norm': (lambda: nn.Sequential(RMSNorm((4,)), RMSNorm((3, 4), 0.1)), [(2, 3, 4)], of_one),
    'layer norm': (lambda: nn.LayerNorm((3, 4)), [(2, 3, 4)], of_one),
    'layer norm without a bias': (lambda: LayerNormWithoutBias((3, 4)), [(2, 3, 4)], of_one),
    'group norm': (lambda: nn.GroupNorm(3, 6), [(2, 6, 4)], of_one),
    'embedding': (lambda: nn.Embedding(VOCABULARY, 3), [], lambda m: (m(tokens(0, 2, 5)),)),
    'embedding with padding': (lambda: nn.Embedding(VOCABULARY, 3, -2), [], lambda m: (m(tokens(0, 2, 5)),)),
    'upsample to the nearest': (lambda: nn.Sequential(nn.Upsample(scale_factor=2.5), nn.Upsample((4, 9))),
                                [(1, 2, 3, 2)], of_one),
    'activations': (lambda: nn.Sequential(
        nn.LeakyReLU(0.2), nn.ELU(0.7), nn.SiLU(), nn.Softplus(2, 1), nn.GELU(), nn.GELU('tanh'), nn.Identity(),
        nn.LogSoftmax(1)), [(2, 3, 4)], of_one),
    'more activations': (lambda: nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Softmax(-1), nn.Sigmoid()), [(2, 3, 4)],
                         of_one),
    'SwiGLU': (lambda: SwiGLU(3, 5), [(2, 4, 3)], of_one),
    'Highway': (lambda: Highway(3), [(4, 3)], of_one),
    'SqueezeExcite': (lambda: SqueezeExcite(4, 2), [(2, 4, 3, 3)], of_one),
    'batch norm 1d': (lambda: nn.BatchNorm1d(4), [(5, 4)], trained_and_tested),
    'batch norm 1d of sequences': (lambda: nn.BatchNorm1d(3, 1e-3, 0.2), [(2, 3, 5)], trained_and_tested),
    'conv2d of a wide kernel': (lambda: nn.Conv2d(4, 6, (1, 3), (2, 1), (0, 2), (1, 2), 2), [(2, 4, 3, 5)], of_one),
    'conv transpose 2d of a wide kernel': (
        lambda: nn.ConvTranspose2d(4, 6, (2, 3), (3, 2), (0, 1), (2, 1), 2, dilation=(1, 2)), [(2, 4, 3, 2)], of_one),
    'pooling of sequences': (lambda: nn.Sequential(nn.MaxPool1d(3, 1), nn.AvgPool1d(2), nn.AvgPool1d(3, 2, 1)),
                             [(2, 3, 10)], of_one),
}


def each(m, x):
    """The output of each layer, for the same input."""
    return tuple(layer(4 * x) for layer in m)


class Params(nn.Module):
    """Parameters in containers."""
    def __init__(self):
        super().__init__()
        self.rows = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 3))])
        self.more = nn.ParameterDict({'left': nn.Parameter(torch.ones(3))})
        self.layers = nn.ModuleDict({'a': nn.Linear(3, 3), 'act': nn.Tanh(), 'b': nn.Linear(3, 2)})

    def forward(self, x):
        x = self.layers['act'](self.layers['a'](x * self.rows[0] + self.more['left']))
        return self.layers['b'](x + self.rows[1])


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTMCell(3, 4), nn.GRUCell(3, 4, bias=False)
        self.rnn, self.relu = nn.RNNCell(3, 4), nn.RNNCell(3, 4, nonlinearity='relu')

    def forward(self, x, h, c):
        return (*self.lstm(x, (h, c)), self.gru(x, h), self.gru(x), self.rnn(x, h), self.relu(x, h), self.rnn(x[0], h[0]))


def steps_and_test(m, x):
    """Two steps of training, and the running statistics."""
    return tuple(y for layer in m for y in (layer(x), layer(2 * x + 1), layer.eval()(x)))


def numbers(y):
    """Reduced losses have the shape [1] here."""
    return y.reshape(1) if y.dim() == 0 else y


def losses(*functions):
    return lambda m, *xs: tuple(numbers(f(*xs)) for f in functions)


SIGNS, LABELS, SEVERAL = torch.tensor([1., -1, 1]), torch.tensor([1, 3, 0]), torch.tensor(
    [[3, 0, -1, 1], [0, -1, 2, 1], [1, 2, 3, 0]])
WEIGHT = torch.tensor([0.5, 1, 2, 0.25]).double()


def ctc(reduction, lengths=(6, 5), **options):
    return lambda x: F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2, 2], [3, 1, 0]]), torch.tensor(lengths),
                                torch.tensor([3, 2]), reduction=reduction, **options)


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(8, 2, 12, 0.0, **options)


def decoder_layer(**options):
    return nn.TransformerDecoderLayer(8, 2, 12, 0.0, **options)


# Each from random numbers of its own. They also print as here.
PRINTED = {
    'gates and their limits': (lambda: nn.Sequential(
        nn.GLU(), nn.GLU(1), nn.Hardtanh(), nn.Hardtanh(-2., 0.5), nn.ReLU6(), nn.Hardsigmoid(), nn.Hardswish(),
        nn.Hardshrink(), nn.Softshrink(1.5), nn.Threshold(0.5, -20.)), [(3, 4, 8)], each),
    'curves': (lambda: nn.Sequential(nn.SELU(), nn.CELU(), nn.CELU(0.5), nn.Mish(), nn.LogSigmoid(), nn.Softsign(),
                                     nn.Softmin(dim=-1), nn.Tanhshrink()), [(3, 4, 8)], each),
    'prelu': (lambda: nn.Sequential(nn.PReLU(), nn.PReLU(4)), [(3, 4, 5)], each),
    'containers': (Params, [(2, 3)], of_one),
    'paddings of sequences': (lambda: nn.Sequential(
        nn.ReflectionPad1d(2), nn.ReflectionPad1d((0, 3)), nn.ReplicationPad1d((5, 1)), nn.ConstantPad1d((1, 2), 3.5)),
        [(2, 3, 4)], each),
    'paddings of images': (lambda: nn.Sequential(
        nn.ReflectionPad2d(1), nn.ReflectionPad2d((1, 2, 0, 3)), nn.ReplicationPad2d((2, 0, 1, 5)), nn.ZeroPad2d(2),
        nn.ZeroPad2d((0, 1, 2, -1)), nn.ConstantPad2d((1, 2, 0, 1), -2.)), [(2, 2, 4, 3)], each),
    'paddings of an image': (lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.ZeroPad2d(1)), [(2, 4, 3)], each),
    'convolutions of one size': (lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3, padding='same'), nn.Conv2d(2, 3, (2, 4), padding='same', dilation=(3, 1), bias=False),
        nn.Conv2d(2, 3, (4, 3), padding='same', padding_mode='reflect')), [(2, 2, 5, 6)], each),
    'convolutions of sequences of one size': (lambda: nn.Sequential(
        nn.Conv1d(2, 3, 4, padding='same'), nn.Conv1d(2, 3, 4, padding='same', padding_mode='circular')), [(2, 2, 5)],
        each),
    'convolutions with padding': (lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3, 2, (1, 2), padding_mode='reflect'), nn.Conv2d(2, 3, 3, 1, 2, padding_mode='circular'),
        nn.Conv2d(2, 3, 3, 1, 3, padding_mode='replicate'), nn.Conv2d(2, 3, 3)), [(2, 2, 5, 6)], each),
    'convolutions of one image': (lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(2, 3, 3, 2), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d((2, 2)),
        nn.Conv2d(2, 3, 3, 1, 1, padding_mode='reflect')), [(2, 5, 6)], each),
    'convolutions of one sequence': (lambda: nn.Sequential(
        nn.Conv1d(2, 3, 3), nn.ConvTranspose1d(2, 3, 3, 2), nn.MaxPool1d(2), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(2)),
        [(2, 6)], each),
    'transposed convolutions of sequences': (lambda: nn.Sequential(
        nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, 2), nn.ConvTranspose1d(4, 2, 2, 3, dilation=2, bias=False)), [(2, 4, 5)],
        each),
    'convolutions of volumes': (lambda: nn.Sequential(
        nn.Conv3d(2, 3, 2), nn.Conv3d(2, 4, (3, 2, 1), (2, 1, 2), (2, 0, 1), (2, 1, 1), 2, False)), [(2, 2, 4, 3, 2)],
        each),
    'convolutions of one volume': (lambda: nn.Sequential(nn.Conv3d(2, 3, 2)), [(2, 3, 2, 3)], each),
    'dilated max pooling': (lambda: nn.Sequential(
        nn.MaxPool2d(2, 1, dilation=2), nn.MaxPool2d((2, 3), 2, 1, dilation=(1, 2)),
        nn.MaxPool2d(3, 2, 1, dilation=2, ceil_mode=True)), [(2, 2, 7, 8)], each),
    'dilated max pooling of sequences': (lambda: nn.Sequential(nn.MaxPool1d(3, 2, 1, dilation=2)), [(2, 2, 7)], each),
    'adaptive pooling': (lambda: nn.Sequential(
        nn.AdaptiveMaxPool2d((2, 3)), nn.AdaptiveMaxPool2d((3, 3)), nn.AdaptiveMaxPool2d((1, 1))), [(2, 2, 5, 6)], each),
    'adaptive pooling of sequences': (lambda: nn.Sequential(
        nn.AdaptiveMaxPool1d(3), nn.AdaptiveMaxPool1d(4), nn.AdaptiveAvgPool1d(3), nn.AdaptiveAvgPool1d(1)),
        [(2, 2, 8)], each),
    'places of the largest': (nn.Identity, [(2, 2, 6, 7)], lambda m, x: tuple(
        F.max_pool2d(x, 3, 2, 1, dilation, return_indices=True)[1] + 0 * x.sum() for dilation in (1, 2))),
    'batch norms': (lambda: nn.Sequential(
        nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3, track_running_stats=False), nn.BatchNorm2d(3, momentum=None),
        nn.BatchNorm2d(3, 1e-3, affine=False, track_running_stats=False)), [(2, 3, 3, 2)], steps_and_test),
    'batch norms of features': (lambda: nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.BatchNorm1d(3, momentum=None)),
                                [(4, 3)], steps_and_test),
    'batch norm of volumes': (lambda: nn.Sequential(nn.BatchNorm3d(3)), [(2, 3, 2, 1, 2)], steps_and_test),
    'instance norms': (lambda: nn.Sequential(nn.InstanceNorm2d(3), nn.InstanceNorm2d(3, 1e-2, affine=True)),
                       [(2, 3, 3, 2)], each),
    'instance norms of one sequence': (lambda: nn.Sequential(nn.InstanceNorm1d(3, affine=True)), [(3, 4)], each),
    'instance norms with running statistics': (lambda: nn.Sequential(
        nn.InstanceNorm2d(3, track_running_stats=True),
        nn.InstanceNorm2d(3, 1e-2, 0.3, affine=True, track_running_stats=True)), [(2, 3, 3, 2)], steps_and_test),
    'lstm with projections': (lambda: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), [X, (4, 2, 2), STATE], lstm),
    'lstm with projections, no bias': (lambda: nn.LSTM(3, 4, batch_first=True, bias=False, proj_size=3), [X], lstm),
    'bags': (lambda: nn.EmbeddingBag(VOCABULARY, 3, padding_idx=2), [], lambda m: (
        m(tokens(0, 2, 5)), m(tokens(1, 10), torch.tensor([0, 4, 4])))),
    'dropout of all or none': (lambda: nn.Sequential(nn.Dropout(1.0), nn.Dropout2d(0.0), nn.Dropout1d(0.0)),
                               [(2, 3, 4)], each),
    'rnn': (lambda: nn.RNN(3, 4, 2, bidirectional=True), [X, STATE], lambda m, x, h: m(x, h)),
    'rnn of relu': (lambda: nn.RNN(3, 4, nonlinearity='relu', batch_first=True, bias=False), [X], lambda m, x: m(x)),
    'cells': (Cells, [(2, 3), (2, 4), (2, 4)], lambda m, x, h, c: m(x, h, c)),
    'lstm of one sequence': (lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), [(5, 3), (4, 4), (4, 4)],
                             lstm),
    'gru of one sequence': (lambda: nn.GRU(3, 4), [(5, 3)], lambda m, x: m(x)),
    'losses of probabilities': (nn.Identity, [(3, 4), (3, 4), (3, 4)], losses(
        lambda x, y, w: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        lambda x, y, w: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), w.detach(), reduction='none'),
        lambda x, y, w: F.gaussian_nll_loss(x, y, w * w),
        lambda x, y, w: F.gaussian_nll_loss(x, y, w[:, :1] ** 2, full=True, eps=0.5, reduction='sum'),
        lambda x, y, w: F.poisson_nll_loss(x, y),
        lambda x, y, w: F.poisson_nll_loss(x * x, 4 * y.detach() ** 2, log_input=False, full=True, reduction='none'))),
    'losses of margins': (nn.Identity, [(3, 4), (3, 4), (3, 4)], losses(
        lambda x, y, z: F.triplet_margin_loss(x, y, z),
        lambda x, y, z: F.triplet_margin_loss(x, y, z, 2, 1, swap=True, reduction='none'),
        lambda x, y, z: F.pairwise_distance(x, y, keepdim=True),
        lambda x, y, z: F.margin_ranking_loss(x, y, z.detach().sign(), 0.5),
        lambda x, y, z: F.cosine_embedding_loss(x, y, SIGNS.double(), 0.1, reduction='none'),
        lambda x, y, z: F.hinge_embedding_loss(x, y.detach().sign()),
        lambda x, y, z: F.soft_margin_loss(x, y.detach().sign(), reduction='sum'))),
    'losses of several labels': (nn.Identity, [(3, 4), (3, 4)], losses(
        lambda x, y: F.multilabel_soft_margin_loss(x, y.sigmoid()),
        lambda x, y: F.multilabel_soft_margin_loss(x, y.sigmoid(), WEIGHT, reduction='none'),
        lambda x, y: F.multilabel_margin_loss(x, SEVERAL),
        lambda x, y: F.multilabel_margin_loss(y[1], SEVERAL[1]),
        lambda x, y: F.multi_margin_loss(x, LABELS),
        lambda x, y: F.multi_margin_loss(y, LABELS, 2, 0.5, WEIGHT, reduction='none'))),
    'ctc losses': (nn.Identity, [(6, 2, 5)], losses(
        ctc('mean'), ctc('sum', blank=4), ctc('none', (4, 3)), ctc('none', (3, 5), zero_infinity=True))),
    'multihead attention of other keys': (
        lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=4), [(4, 2, 8), (3, 2, 6), (3, 2, 4)],
        lambda m, q, k, v: m(q, k, v)),
    'transformer encoder': (lambda: nn.TransformerEncoder(encoder_layer(), 2, nn.LayerNorm(8)), [(4, 2, 8)],
                            lambda m, x: (m(x, causal(4)),)),
    'transformer decoder': (
        lambda: nn.TransformerDecoder(decoder_layer(norm_first=True, batch_first=True), 2), [(2, 4, 8), (2, 3, 8)],
        lambda m, x, memory: (m(x, memory, causal(4), memory_key_padding_mask=padding(2, 3)),)),
    'transformer': (lambda: nn.Transformer(8, 2, 1, 1, 12, 0.0), [(4, 2, 8), (3, 2, 8)],
                    lambda m, x, y: (m(x, y, tgt_mask=causal(3)),)),
    'patches': (lambda: nn.Sequential(nn.Unfold(2), nn.Unfold((2, 3), (2, 1), (1, 2), (1, 2))), [(2, 3, 4, 5)], each),
    'images of patches': (lambda: nn.Sequential(nn.Fold((4, 5), (2, 3), (2, 1), (1, 2), (1, 2))), [(2, 12, 16)], each),
    'pixels of channels': (lambda: nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2)), [(1, 8, 2, 4)], each),
    'cubes and areas': (lambda: nn.Sequential(
        nn.Upsample(scale_factor=1.7, mode='bicubic'), nn.Upsample((4, 9), mode='bicubic', align_corners=True),
        nn.Upsample((3, 7), mode='area')), [(1, 2, 4, 5)], each),
}
# PyTorch's own layers for those that are composed above, because PyTorch 1.13 lacks them.
NATIVE = {
    'rms norm': lambda: nn.Sequential(nn.RMSNorm((4,)), nn.RMSNorm((3, 4), 0.1)),
    'layer norm without a bias': lambda: nn.LayerNorm((3, 4), bias=False),
}
TANH = nn.init.calculate_gain('tanh')
INITIALIZERS = {
    'xavier_uniform': lambda w: nn.init.xavier_uniform_(w),
    'xavier_uniform for tanh': lambda w: nn.init.xavier_uniform_(w, TANH),
    'xavier_normal': lambda w: nn.init.xavier_normal_(w),
    'xavier_normal for tanh': lambda w: nn.init.xavier_normal_(w, TANH),
    'kaiming_uniform': lambda w: nn.init.kaiming_uniform_(w),
    'kaiming_uniform, fan_out, 0.2': lambda w: nn.init.kaiming_uniform_(w, 0.2, 'fan_out'),
    'kaiming_normal': lambda w: nn.init.kaiming_normal_(w, nonlinearity='relu'),
    'kaiming_normal, fan_out, 0.2': lambda w: nn.init.kaiming_normal_(w, 0.2, 'fan_out'),
    'layers': lambda w: nn.init.kaiming_uniform_(w, 5 ** 0.5),
}
MODELS = {'gpt': Gpt, 'lstm language model': LstmLanguageModel}


def few_digits(t, scale=64):
    """Rounds to few digits, so that f32 holds the same numbers as f64."""
    return (t * scale).round() / scale


def make(module, deviation=0.5):
    net = module().double()
    for parameter in net.parameters():
        parameter.data = few_digits(torch.randn(parameter.shape, dtype=torch.float64) * deviation, 256)
    return net


def state_of(net):
    return {name: {'shape': list(t.shape), 'values': rounded(t)} for name, t in net.state_dict().items()}


def computed(module, shapes, call):
    net = make(module)
    inputs = [few_digits(torch.randn(shape, dtype=torch.float64)).requires_grad_() for shape in shapes]
    state, outputs = state_of(net), call(net, *inputs)
    loss = 0
    for y in outputs:
        loss = loss + (y * seeds(y.shape)).sum()
    loss.backward()
    return {
        'state': state,
        'inputs': [{'shape': list(x.shape), 'values': rounded(x)} for x in inputs],
        'outputs': [{'shape': list(y.shape), 'values': rounded(y)} for y in outputs],
        'input_gradients': [rounded(x.grad) for x in inputs],
        'gradients': {name: rounded(p.grad) for name, p in net.named_parameters()},
    }


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=1e-2)


def rmsprop(parameters):
    return torch.optim.RMSprop(parameters, lr=1e-3, alpha=0.9, eps=1e-6, weight_decay=1e-2, momentum=0.5, centered=True)


def maximized(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9, weight_decay=1e-2, maximize=True)


def trained(module, make_optimizer, sign=1):
    net = make(module, 0.25)
    state, losses = state_of(net), []
    optimizer = make_optimizer(net.parameters())
    for step in range(STEPS):
        ids = tokens(step, BATCH, CONTEXT + 1)
        loss = F.cross_entropy(net(ids[:, :-1]).reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        (sign * loss).backward()
        optimizer.step()
        losses.append(float(f'{loss.item():.10g}'))
    return {'state': state, 'losses': losses}


LBFGS = {
    'no search': dict(lr=0.5, max_iter=6),
    'a short history': dict(lr=0.8, max_iter=5, history_size=2),
    'strong_wolfe': dict(max_iter=5, line_search_fn='strong_wolfe'),
    'strong_wolfe, few evaluations': dict(lr=3, max_iter=12, max_eval=7, line_search_fn='strong_wolfe'),
    'until it changes little': dict(max_iter=100, tolerance_change=3e-3, line_search_fn='strong_wolfe'),
}


def minimized(options):
    """Losses before each step, evaluations after it, and the last weights."""
    torch.manual_seed(7)
    net = make(lambda: nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)))
    x = few_digits(torch.randn(16, 2, dtype=torch.float64))
    state, y = state_of(net), few_digits((x[:, :1] * x[:, 1:]).sin())
    optimizer, losses, evaluations = torch.optim.LBFGS(net.parameters(), **options), [], []

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    for _ in range(4):
        losses.append(float(f'{optimizer.step(closure).item():.10g}'))
        evaluations.append(next(iter(optimizer.state.values()))['func_evals'])
    return {'state': state, 'x': rounded(x), 'y': rounded(y), 'losses': losses, 'evaluations': evaluations,
            'weights': state_of(net)}


def seeded(name, module, shapes, call):
    torch.manual_seed(zlib.crc32(name.encode()))
    return computed(module, shapes, call)


def arguments(initializer, shape):
    """Returns the arguments with which the initializer calls uniform_ or normal_."""
    weight = torch.empty(shape)
    with mock.patch.object(torch.Tensor, 'uniform_') as uniform, mock.patch.object(torch.Tensor, 'normal_') as normal:
        initializer(weight)
    call = uniform if uniform.called else normal
    return {'shape': list(shape), 'distribution': 'uniform' if uniform.called else 'normal',
            'arguments': [float(f'{a:.10g}') for a in call.call_args[0]]}


def printed_form(net):
    """PyTorch has a class of its own for the last layer of an attention, and since 2.0 quotes modes."""
    text = str(net).replace('NonDynamicallyQuantizableLinear', 'Linear')
    return re.sub(r"(, mode=)'?(\w+)'?", r"\1'\2'", text)


def printed():
    return {'cases': {name: {'str': printed_form(case[0]()), **seeded(name, *case)} for name, case in PRINTED.items()}}


def main():
    if sys.argv[1:] == ['--printed']:
        return write(printed())
    torch.manual_seed(0)
    parts = {'cases': {name: computed(*case) for name, case in CASES.items()},
             'training': {name: trained(model, adamw) for name, model in MODELS.items()}}
    parts['cases'].update({name: seeded(name, *case) for name, case in LATER.items()})
    torch.manual_seed(0)
    parts['training']['lstm language model, rmsprop'] = trained(LstmLanguageModel, rmsprop)
    torch.manual_seed(0)
    parts['training']['lstm language model, maximized'] = trained(LstmLanguageModel, maximized, -1)
    parts['lbfgs'] = {name: minimized(options) for name, options in LBFGS.items()}
    parts['initializers'] = {f'{name} of {len(shape)} axes': arguments(f, shape)
                             for name, f in INITIALIZERS.items() for shape in [(6, 4), (8, 3, 5, 2)]}
    if sys.argv[1:] != ['--compare']:
        return write(parts)
    compare_file(pathlib.Path(__file__).with_name('layers.json'), parts)
    compare_file(pathlib.Path(__file__).with_name('printed_layers.json'), printed())
    if not hasattr(F, 'rms_norm'):
        return
    for name, module in NATIVE.items():
        native, case = seeded(name, module, *LATER[name][1:]), parts['cases'][name]
        assert native['state'] == case['state'], name
        pairs = [(native['outputs'][0]['values'], case['outputs'][0]['values']),
                 (native['input_gradients'][0], case['input_gradients'][0]),
                 *((native['gradients'][key], case['gradients'][key]) for key in case['gradients'])]
        print(f"  PyTorch's own {name}: largest difference {max(distance(*pair) for pair in pairs):.1e} of the norm")


main()
