#!/usr/bin/python3
"""Writes samples of PyTorch's own tests (OpInfo, ModuleInfo), of special values, and what PyTorch computes for them: one
sample a line. Run by hand, with Debian's python3-torch and python3-hypothesis:
  tests/parity/samples_reference.py > tests/parity/samples.jsonl        a part that is small enough for the repository
  tests/parity/samples_reference.py --all > FILE                        everything, for LOCKSTEP_PARITY_SAMPLES=FILE
tests/models/samples_parity_test.cc computes them, and sample_functions.cc has the C++ call of each.
"""
import collections
import json
import math
import os
import random
import sys
import types
import unittest
import warnings
import zlib

# PyTorch's samples walk through sets of names.
if os.environ.get('PYTHONHASHSEED') != '0':
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, 'PYTHONHASHSEED': '0'})

import numpy
import torch
import torch.nn.functional as F

from comparison import versions

# PyTorch's tests import it, but nothing here calls it.
sys.modules['expecttest'] = types.SimpleNamespace(ACCEPT=False, TestCase=unittest.TestCase)
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402


class Unsupported(Exception):
    """The sample uses an option that Lockstep does not have."""


CALLS = {}


def call(*names):
    """Registers how a sample of these OpInfos becomes a C++ call: a function with PyTorch's parameters that returns the
    C++ name, its tensors, and its other arguments."""
    def register(f):
        for name in names:
            CALLS[name] = f
        return f
    return register


def need(condition, what):
    if not condition:
        raise Unsupported(what)


def is_tensor(x):
    return isinstance(x, torch.Tensor)


def axes(dim):
    return [] if dim is None else [dim] if isinstance(dim, int) else list(dim)


def pair(x):
    need(isinstance(x, int) or len(x) in (1, 2), 'an empty tuple')
    return [x, x] if isinstance(x, int) else list(x) * 2 if len(x) == 1 else list(x)


def one(x):
    return x if isinstance(x, int) else x[0]


def unary(name, cpp):
    CALLS[name] = lambda x: (cpp, [x], {})


for torch_name, cpp_name in {
        'neg': 'negate', 'nn.functional.relu': 'relu', 'nn.functional.silu': 'silu', 'logical_not': 'logical_not',
        **{n: n for n in ['exp', 'log', 'log1p', 'sqrt', 'square', 'abs', 'sign', 'reciprocal', 'rsqrt', 'sin', 'cos',
                          'sigmoid', 'tanh', 'bmm', 'full', 'expm1', 'log2', 'log10', 'tan', 'erf', 'floor', 'ceil',
                          'round', 'trunc', 'isnan', 'isinf', 'isfinite', 'nonzero']}}.items():
    unary(torch_name, cpp_name)
for torch_name, cpp_name in {'mm': 'matmul', 'mv': 'matmul', 'matmul': 'matmul', 'bmm': 'bmm', 'maximum': 'maximum',
                             'minimum': 'minimum', 'logical_and': 'logical_and', 'logical_or': 'logical_or',
                             'logical_xor': 'logical_xor', 'atan2': 'atan2', 'outer': 'outer', 'dot': 'dot',
                             'masked_select': 'masked_select'}.items():
    CALLS[torch_name] = lambda a, b, cpp=cpp_name: (cpp, [a, b], {})
CALLS['__rmatmul__'] = lambda a, b: ('matmul', [b, a], {})


def arithmetic(cpp, exchanged=False):
    def convert(a, b, *, alpha=1, rounding_mode=None):
        if alpha != 1:
            need(is_tensor(a) and is_tensor(b) and not exchanged and type(alpha) in (int, float), 'alpha')
            return cpp + '_multiple', [a, b], {'alpha': alpha}
        name = 'divide_' + rounding_mode if rounding_mode else cpp
        left, right = (b, a) if exchanged else (a, b)
        numbers = [x for x in (left, right) if not is_tensor(x)]
        need(all(isinstance(x, (int, float)) for x in numbers), 'complex numbers')
        need(not any(isinstance(x, bool) for x in numbers), 'a truth value as a number')
        which = '' if not numbers else '_number' if is_tensor(left) else '_right'
        return name + which, [x for x in (left, right) if is_tensor(x)], {'number': float(n) for n in numbers}
    return convert


for torch_name, cpp_name in {'add': 'add', 'sub': 'subtract', 'mul': 'multiply', 'div': 'divide',
                             'true_divide': 'divide', 'floor_divide': 'divide_floor',
                             'remainder': 'remainder', 'pow': 'pow', **{n: n for n in ('eq', 'ne', 'lt', 'le', 'gt',
                                                                                     'ge')}}.items():
    CALLS[torch_name] = arithmetic(cpp_name)
for torch_name, cpp_name in {'__radd__': 'add', 'rsub': 'subtract', '__rsub__': 'subtract', '__rmul__': 'multiply',
                             '__rdiv__': 'divide', '__rpow__': 'pow'}.items():
    CALLS[torch_name] = arithmetic(cpp_name, exchanged=True)


@call('nn.functional.leaky_relu')
def _(x, negative_slope=0.01, inplace=False):
    return 'leaky_relu', [x], {'a': negative_slope}


@call('nn.functional.elu')
def _(x, alpha=1.0, inplace=False):
    return 'elu', [x], {'a': alpha}


@call('nn.functional.gelu')
def _(x, approximate='none'):
    return 'gelu', [x], {'tanh': approximate == 'tanh'}


@call('nn.functional.softplus')
def _(x, beta=1, threshold=20):
    return 'softplus', [x], {'beta': beta, 'threshold': threshold}


@call('clamp')
def _(x, min=None, max=None):
    need((min is None or is_tensor(min)) == (max is None or is_tensor(max)), 'one bound that is a tensor')
    if is_tensor(min) or is_tensor(max):
        return 'clamp_tensors', [t for t in (x, min, max) if t is not None], {'low': min is not None}
    return 'clamp', [x], {'min': min, 'max': max}


@call('clamp_min')
def _(x, min):
    need(not is_tensor(min), 'bounds that are tensors')
    return 'clamp', [x], {'min': min, 'max': None}


@call('clamp_max')
def _(x, max):
    need(not is_tensor(max), 'bounds that are tensors')
    return 'clamp', [x], {'min': None, 'max': max}


@call('where')
def _(x, condition, other):
    return 'where', [condition, x, other], {}


@call('masked_fill')
def _(x, mask, value):
    if is_tensor(value):
        return 'masked_fill_tensor', [x, mask, value], {}
    return 'masked_fill', [x, mask], {'value': value}


@call('full_like')
def _(x, value, dtype=None, **options):
    need(dtype is None and not is_tensor(value), 'dtype')
    return 'full_like', [x], {'value': value}


@call('nn.functional.linear')
def _(x, w, b=None):
    return 'linear', [x, w] + ([] if b is None else [b]), {}


@call('reshape', 'view')
def _(x, *shape):
    return 'reshape', [x], {'shape': list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)}


@call('reshape_as', 'view_as')
def _(x, other):
    return 'reshape', [x], {'shape': list(other.shape)}


@call('ravel')
def _(x):
    return 'flatten', [x], {'start': 0, 'end': -1}


@call('flatten')
def _(x, start_dim=0, end_dim=-1):
    return 'flatten', [x], {'start': start_dim, 'end': end_dim}


@call('unflatten')
def _(x, dim, sizes):
    return 'unflatten', [x], {'dim': dim, 'shape': list(sizes)}


@call('squeeze')
def _(x, dim=None):
    return 'squeeze', [x], {'dims': axes(dim)}


@call('unsqueeze')
def _(x, dim):
    return 'unsqueeze', [x], {'dim': dim}


@call('permute')
def _(x, *dims):
    return 'permute', [x], {'dims': list(dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)}


@call('transpose')
def _(x, a, b):
    return 'transpose', [x], {'a': a, 'b': b}


@call('expand', 'broadcast_to')
def _(x, *shape):
    return 'expand', [x], {'shape': list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)}


@call('expand_as')
def _(x, other):
    return 'expand', [x], {'shape': list(other.shape)}


@call('narrow')
def _(x, dim, start, length):
    need(isinstance(start, int), 'a start that is a tensor')
    return 'narrow', [x], {'dim': dim, 'start': start, 'length': length}


@call('select')
def _(x, dim, index):
    return 'select', [x], {'dim': dim, 'index': index}


@call('slice')
def _(x, dim=0, start=None, end=None, step=1):
    return 'slice', [x], {'dim': dim, 'start': start, 'end': end, 'step': step}


@call('split')
def _(x, sizes, dim=0):
    return ('split', [x], {'size': sizes, 'dim': dim}) if isinstance(sizes, int) else \
        ('split_sizes', [x], {'sizes': list(sizes), 'dim': dim})


@call('split_with_sizes')
def _(x, sizes, dim=0):
    return 'split_sizes', [x], {'sizes': list(sizes), 'dim': dim}


@call('chunk')
def _(x, chunks, dim=0):
    return 'chunk', [x], {'chunks': chunks, 'dim': dim}


@call('unbind')
def _(x, dim=0):
    return 'unbind', [x], {'dim': dim}


@call('nn.functional.pad')
def _(x, pad, mode='constant', value=0):
    need(mode == 'constant', 'mode')
    return 'pad', [x], {'widths': list(pad), 'value': value or 0}


@call('constant_pad_nd')
def _(x, pad, value=0):
    return 'pad', [x], {'widths': list(pad), 'value': value}


@call('cat')
def _(tensors, dim=0):
    return 'cat', list(tensors), {'dim': dim}


@call('stack')
def _(tensors, dim=0):
    return 'stack', list(tensors), {'dim': dim}


@call('take_along_dim')
def _(x, index, dim=None):
    need(dim is not None, 'no dim')
    return 'take_along_dim', [x, index], {'dim': dim}


@call('gather')
def _(x, dim, index):
    extents = range(x.dim())
    equal = x.dim() == index.dim() and all(i == dim % x.dim() or index.shape[i] == x.shape[i] for i in extents)
    return 'take_along_dim' if equal else 'gather', [x, index], {'dim': dim}


@call('index_select')
def _(x, dim, index):
    return 'index_select', [x, index], {'dim': dim}


@call('nn.functional.embedding')
def _(weight, indices, padding_idx=None, max_norm=None, scale_grad_by_freq=False, sparse=False):
    # OpInfo exchanges the arguments.
    need(max_norm is None and not scale_grad_by_freq and not sparse, 'max_norm, scale_grad_by_freq, sparse')
    return 'embedding', [indices, weight], {'padding': padding_idx}


@call('scatter_add')
def _(x, dim, index, src):
    return 'scatter_add', [x, index, src], {'dim': dim}


@call('nn.functional.one_hot')
def _(x, num_classes=-1):
    need(num_classes >= 0, 'num_classes')
    return 'one_hot', [x], {'classes': num_classes}


def reduction(cpp):
    def convert(x, dim=None, keepdim=False, *, dtype=None):
        need(dtype is None or dtype == x.dtype, 'dtype')
        return cpp, [x], {'dims': axes(dim), 'keepdim': keepdim}
    return convert


for torch_name in ['sum', 'mean', 'amax', 'amin', 'any', 'all', 'logsumexp']:
    CALLS[torch_name] = reduction(torch_name)


@call('sum_to_size')
def _(x, *shape):
    shape = list(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    need(x.dtype != torch.bool or shape != list(x.shape), 'a mask itself, and not its sum')
    return 'sum_to', [x], {'shape': shape}


@call('var', 'std')
def var(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    count = correction if correction is not None else 0 if unbiased is False else 1
    return 'var', [x], {'dims': axes(dim), 'keepdim': keepdim, 'correction': count}


CALLS['std'] = lambda *args, **options: ('std', *var(*args, **options)[1:])


def extreme(name):
    def convert(x, dim=None, keepdim=False, **options):
        other = options.get('other', dim)
        if is_tensor(other):
            return name + 'imum', [x, other], {}
        if dim is None:
            return name, [x], {}
        return name + '_dim', [x], {'dim': dim, 'keepdim': keepdim}
    return convert


CALLS['max'], CALLS['min'] = extreme('max'), extreme('min')


@call('argmax')
def _(x, dim=None, keepdim=False):
    return 'argmax', [x], {'dim': dim, 'keepdim': keepdim}


@call('argmin')
def _(x, dim=None, keepdim=False):
    return 'argmin', [x], {'dim': dim, 'keepdim': keepdim}


@call('prod')
def _(x, dim=None, keepdim=False, *, dtype=None):
    need(dtype is None or (dtype == x.dtype and dtype != torch.bool), 'dtype')
    return ('prod', [x], {}) if dim is None else ('prod_dim', [x], {'dim': dim, 'keepdim': keepdim})


@call('norm', 'linalg.vector_norm')
def _(x, p=2, dim=None, keepdim=False, *, ord=None, dtype=None):
    p = 2 if p is None else p if ord is None else ord
    need(isinstance(p, (int, float)) and dtype is None, 'p, dtype')
    return 'norm', [x], {'p': float(p), 'dims': axes(dim), 'keepdim': keepdim}


@call('cumsum')
def _(x, dim, dtype=None):
    need(dtype is None or dtype == x.dtype, 'dtype')
    return 'cumsum', [x], {'dim': dim}


@call('sort')
def _(x, dim=-1, descending=False, *, stable=None):
    return 'sort', [x], {'dim': dim, 'descending': descending}


@call('argsort')
def _(x, dim=-1, descending=False):
    return 'argsort', [x], {'dim': dim, 'descending': descending}


@call('topk')
def _(x, k, dim=-1, largest=True, sorted=True):
    return 'topk', [x], {'k': k, 'dim': dim, 'largest': largest}


@call('softmax')
def _(x, dim, dtype=None):
    need(dtype in TYPES or dtype is None, 'dtype')
    return 'softmax', [x], {'dim': dim, 'dtype': TYPES.get(dtype)}


@call('log_softmax')
def _(x, dim, dtype=None):
    need(dtype in TYPES or dtype is None, 'dtype')
    return 'log_softmax', [x], {'dim': dim, 'dtype': TYPES.get(dtype)}


@call('nan_to_num')
def _(x, nan=None, posinf=None, neginf=None):
    return 'nan_to_num', [x], {'nan': nan or 0.0, 'posinf': posinf, 'neginf': neginf}


@call('cumprod')
def _(x, dim, dtype=None):
    need(dtype is None or dtype == x.dtype, 'dtype')
    return 'cumprod', [x], {'dim': dim}


@call('median')
def _(x, dim=None, keepdim=False):
    return ('median', [x], {}) if dim is None else ('median_dim', [x], {'dim': dim, 'keepdim': keepdim})


CALLS['std_mean'] = lambda *args, **options: ('std_mean', *var(*args, **options)[1:])
CALLS['var_mean'] = lambda *args, **options: ('var_mean', *var(*args, **options)[1:])


@call('repeat')
def _(x, *sizes):
    return 'repeat', [x], {'shape': list(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)}


@call('tile')
def _(x, *sizes):
    return 'tile', [x], {'shape': list(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)}


@call('repeat_interleave')
def _(x, repeats, dim=None, output_size=None):
    if not is_tensor(repeats):
        return 'repeat_interleave', [x], {'repeats': repeats, 'dim': dim}
    need(dim is not None and repeats.numel() == x.shape[dim] and x.dim() > 0, 'repeats of another extent')
    return 'repeat_interleave_tensor', [x, repeats], {'dim': dim}


@call('flip')
def _(x, dims):
    dims = list(dims)
    need(dims, 'no axes')
    return 'flip', [x], {'dims': dims}


@call('roll')
def _(x, shifts, dims=None):
    dims = [] if dims is None else axes(dims)
    shifts = axes(shifts)
    need(len(shifts) == len(dims) or (not dims and len(shifts) == 1), 'shifts')
    return 'roll', [x], {'shifts': shifts, 'dims': dims}


@call('movedim')
def _(x, source, destination):
    return 'movedim', [x], {'source': axes(source), 'destination': axes(destination)}


@call('einsum')
def _(operands, equation):
    return 'einsum', list(operands), {'equation': equation}


@call('nn.functional.normalize')
def _(x, p=2.0, dim=1, eps=1e-12):
    return 'normalize', [x], {'p': float(p), 'dim': dim, 'eps': eps}


@call('nn.functional.cosine_similarity')
def _(a, b, dim=1, eps=1e-8):
    return 'cosine_similarity', [a, b], {'dim': dim, 'eps': eps}


@call('nn.functional.pairwise_distance')
def _(a, b, p=2.0, eps=1e-6, keepdim=False):
    return 'pairwise_distance', [a, b], {'p': float(p), 'eps': eps, 'keepdim': keepdim}


@call('cdist')
def _(a, b, p=2.0, compute_mode=None):
    return 'cdist', [a, b], {'p': float(p)}


@call('scatter')
def _(x, dim, index, src=None, *, value=None, reduce=None):
    need(reduce is None, 'reduce')
    src = value if src is None else src
    return ('scatter', [x, index, src], {'dim': dim}) if is_tensor(src) else \
        ('scatter_number', [x, index], {'dim': dim, 'value': src})


@call('index_add')
def _(x, dim, index, source, *, alpha=1):
    return 'index_add', [x, index, source], {'dim': dim, 'alpha': alpha}


@call('unique')
def _(x, sorted=True, return_inverse=False, return_counts=False, dim=None):
    need(sorted and return_inverse and return_counts, 'some of the results')
    # PyTorch 1.13 compares other slices as if their axes were exchanged.
    need(dim is None or x.dim() <= 2 or dim == 0, 'the order of slices')
    return 'unique', [x], {} if dim is None else {'dim': dim}


@call('bincount')
def _(x, weights=None, minlength=0):
    return 'bincount', [x] if weights is None else [x, weights], {'minlength': minlength}


CALLS['tril'] = lambda x, diagonal=0: ('tril', [x], {'diagonal': diagonal})
CALLS['triu'] = lambda x, diagonal=0: ('triu', [x], {'diagonal': diagonal})


@call('nn.functional.conv1d')
def _(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    need(not isinstance(padding, str), 'padding')
    return 'conv1d', [x, w] + ([] if b is None else [b]), {
        'stride': one(stride), 'padding': one(padding), 'dilation': one(dilation), 'groups': groups}


@call('nn.functional.conv2d')
def _(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    need(not isinstance(padding, str), 'padding')
    return 'conv2d', [x, w] + ([] if b is None else [b]), {
        'stride': pair(stride), 'padding': pair(padding), 'dilation': pair(dilation), 'groups': groups}


@call('nn.functional.conv_transpose2d')
def _(x, w, b=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return 'conv_transpose2d', [x, w] + ([] if b is None else [b]), {
        'stride': pair(stride), 'padding': pair(padding), 'output_padding': pair(output_padding), 'groups': groups,
        'dilation': pair(dilation)}


def triple(x):
    return [x] * 3 if isinstance(x, int) else list(x) * 3 if len(x) == 1 else list(x)


EXTENTS = {1: one, 2: pair, 3: triple}


def windows(dims, kernel_size, stride, padding, dilation=1, ceil_mode=False):
    extents = EXTENTS[dims]
    return {'kernel': extents(kernel_size), 'stride': extents(stride or kernel_size), 'padding': extents(padding),
            **({} if extents(dilation) == extents(1) else {'dilation': extents(dilation)}),
            **({'ceil': True} if ceil_mode else {})}


def max_pool(dims):
    def convert(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        need(not return_indices or dims == 2, 'indices')
        return f'max_pool{dims}d' + ('_with_indices' if return_indices else ''), [x], windows(
            dims, kernel_size, stride, padding, dilation, ceil_mode)
    return convert


def avg_pool(dims):
    def convert(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        need(divisor_override is None, 'divisor_override')
        return f'avg_pool{dims}d', [x], {**windows(dims, kernel_size, stride, padding, 1, ceil_mode),
                                         'counts': count_include_pad}
    return convert


for dims in (1, 2):
    CALLS[f'nn.functional.max_pool{dims}d'], CALLS[f'nn.functional.avg_pool{dims}d'] = max_pool(dims), avg_pool(dims)


@call('nn.functional.adaptive_avg_pool2d')
def _(x, size):
    return 'adaptive_avg_pool2d', [x], {'size': [-1 if s is None else s for s in pair(size)]}


@call('nn.functional.layer_norm')
def _(x, shape, weight=None, bias=None, eps=1e-5):
    need(bias is None or weight is not None, 'a bias without a weight')
    return 'layer_norm', [t for t in (x, weight, bias) if t is not None], {'shape': list(shape), 'eps': eps}


@call('nn.functional.group_norm')
def _(x, groups, weight=None, bias=None, eps=1e-5):
    need((weight is None) == (bias is None), 'a weight without a bias')
    return 'group_norm', [t for t in (x, weight, bias) if t is not None], {'groups': groups, 'eps': eps}


@call('nn.functional.interpolate', 'nn.functional.upsample_bilinear', 'nn.functional.upsample_nearest')
def _(x, size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None):
    need(x.dim() == 4 and mode in ('nearest', 'bilinear', 'bicubic', 'area') and not recompute_scale_factor and
         not isinstance(scale_factor, (tuple, list)), 'mode')
    return 'interpolate', [x], {'size': None if size is None else pair(size), 'factor': scale_factor,
                                'bilinear': mode == 'bilinear', 'corners': bool(align_corners),
                                **({'mode': mode} if mode in ('bicubic', 'area') else {})}


CALLS['nn.functional.upsample_bilinear'] = lambda x, size=None, scale_factor=None: CALLS['nn.functional.interpolate'](
    x, size, scale_factor, 'bilinear', True)


def loss(cpp, **defaults):
    def convert(x, target, *, reduction='mean', size_average=None, reduce=None, **options):
        need(size_average is None and reduce is None and options.keys() <= defaults.keys(), 'size_average, reduce')
        need(x.shape == target.shape, 'targets that broadcast')
        return cpp, [x, target], {'reduction': reduction, **defaults, **options}
    return convert


CALLS['nn.functional.mse_loss'] = loss('mse_loss')
CALLS['nn.functional.l1_loss'] = loss('l1_loss')
CALLS['nn.functional.huber_loss'] = loss('huber_loss', delta=1)
CALLS['nn.functional.smooth_l1_loss'] = loss('smooth_l1_loss', beta=1)
CALLS['nn.functional.kl_div'] = loss('kl_div', log_target=False)


@call('nn.functional.binary_cross_entropy_with_logits')
def _(x, target, weight=None, size_average=None, reduce=None, reduction='mean', pos_weight=None):
    return 'bce_with_logits', [t for t in (x, target, weight, pos_weight) if t is not None], {
        'reduction': reduction, 'weighted': weight is not None, 'pos_weighted': pos_weight is not None}


@call('nn.functional.nll_loss')
def _(x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean'):
    return 'nll_loss', [t for t in (x, target, weight) if t is not None], {
        'reduction': reduction, 'ignore': None if ignore_index == -100 else ignore_index, 'smoothing': 0}


@call('nn.functional.cross_entropy')
def _(x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', label_smoothing=0.0):
    ignore = None if target.is_floating_point() or ignore_index == -100 else ignore_index
    return 'cross_entropy', [t for t in (x, target, weight) if t is not None], {
        'reduction': reduction, 'ignore': ignore, 'smoothing': label_smoothing}


# Those from here on have samples after the others, each function from random numbers of its own.
FIRST = set(CALLS)

for torch_name in ('hardsigmoid', 'hardswish', 'logsigmoid', 'mish', 'relu6', 'selu', 'softsign', 'tanhshrink'):
    CALLS['nn.functional.' + torch_name] = lambda x, inplace=False, cpp=torch_name: (cpp, [x], {})
for torch_name, cpp_name in {'clone': 'clone', 'contiguous': 'contiguous', 'zeros_like': 'zeros_like',
                             'ones_like': 'ones_like', 't': 't'}.items():
    CALLS[torch_name] = lambda x, cpp=cpp_name: (cpp, [x], {})
for dims in (1, 2, 3):
    for kind in ('avg', 'max'):
        def adaptive(x, size, return_indices=False, cpp=f'adaptive_{kind}_pool{dims}d', extents=EXTENTS[dims]):
            need(not return_indices, 'indices')
            return cpp, [x], {'size': [-1 if s is None else s for s in (
                size if isinstance(size, (list, tuple)) and len(size) > 1 else axes(extents(size)))]}
        CALLS.setdefault(f'nn.functional.adaptive_{kind}_pool{dims}d', adaptive)
CALLS['nn.functional.max_pool3d'], CALLS['nn.functional.avg_pool3d'] = max_pool(3), avg_pool(3)
CALLS['cummax'], CALLS['cummin'] = (lambda x, dim, cpp=cpp: (cpp, [x], {'dim': dim}) for cpp in ('cummax', 'cummin'))
CALLS['nn.functional.glu'] = lambda x, dim=-1: ('glu', [x], {'dim': dim})
CALLS['nn.functional.celu'] = lambda x, alpha=1.0, inplace=False: ('celu', [x], {'a': alpha})
CALLS['nn.functional.hardshrink'] = lambda x, lambd=0.5: ('hardshrink', [x], {'a': lambd})
CALLS['nn.functional.softshrink'] = lambda x, lambd=0.5: ('softshrink', [x], {'a': lambd})
CALLS['nn.functional.hardtanh'] = lambda x, min_val=-1, max_val=1, inplace=False: (
    'hardtanh', [x], {'min': min_val, 'max': max_val})
CALLS['nn.functional.threshold'] = lambda x, threshold, value, inplace=False: (
    'threshold', [x], {'a': threshold, 'value': value})
CALLS['nn.functional.prelu'] = lambda x, weight: ('prelu', [x, weight], {})
CALLS['nn.functional.pixel_shuffle'] = lambda x, upscale_factor: ('pixel_shuffle', [x], {'factor': upscale_factor})
CALLS['nn.functional.pixel_unshuffle'] = lambda x, downscale_factor: (
    'pixel_unshuffle', [x], {'factor': downscale_factor})
CALLS['nn.functional.unfold'] = lambda x, kernel_size, dilation=1, padding=0, stride=1: (
    'unfold', [x], {'kernel': pair(kernel_size), 'dilation': pair(dilation), 'padding': pair(padding),
                    'stride': pair(stride)})


@call('nn.functional.softmin')
def _(x, dim=None, dtype=None):
    need(dim is not None and dtype is None, 'dtype')
    return 'softmin', [x], {'dim': dim}


@call('meshgrid')
def _(*tensors, indexing='ij'):
    tensors = tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors
    return 'meshgrid', list(tensors), {'xy': indexing == 'xy'}


@call('nn.functional.conv_transpose1d')
def _(x, w, b=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return 'conv_transpose1d', [x, w] + ([] if b is None else [b]), {
        'stride': one(stride), 'padding': one(padding), 'output_padding': one(output_padding), 'groups': groups,
        'dilation': one(dilation)}


@call('nn.functional.instance_norm')
def _(x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    need((weight is None) == (bias is None) and use_input_stats, 'running statistics')
    return 'instance_norm', [t for t in (x, weight, bias) if t is not None], {'eps': eps}


@call('nn.functional.grid_sample')
def _(x, grid, mode='bilinear', padding_mode='zeros', align_corners=None):
    need(x.dim() == 4 and mode in ('bilinear', 'nearest') and padding_mode in ('zeros', 'border'), 'mode')
    return 'grid_sample', [x, grid], {'nearest': mode == 'nearest', 'border': padding_mode == 'border',
                                      'corners': bool(align_corners)}


@call('nn.functional.embedding_bag')
def _(weight, indices, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode='mean', sparse=False,
      per_sample_weights=None, include_last_offset=False, padding_idx=None):
    # OpInfo exchanges the arguments.
    need(max_norm is None and not scale_grad_by_freq and not sparse, 'max_norm, scale_grad_by_freq, sparse')
    return 'embedding_bag', [t for t in (indices, weight, offsets, per_sample_weights) if t is not None], {
        'mode': mode, 'offsets': offsets is not None, 'last': include_last_offset, 'padding': padding_idx}


# Targets as classes, and lengths.
@call('nn.functional.ctc_loss')
def _(x, targets, lengths, target_lengths, blank=0, reduction='mean', zero_infinity=False):
    need(is_tensor(lengths) and targets.dim() == 2, 'targets')
    return 'ctc_loss', [x, targets, lengths, target_lengths], {
        'blank': blank, 'reduction': reduction, 'zero_infinity': zero_infinity}


def more_loss(cpp, count, **defaults):
    """A loss of `count` tensors."""
    def convert(*tensors, reduction='mean', weight=None, **options):
        found = {**defaults, **options}
        need(options.keys() <= {*defaults.keys(), 'var'}, 'size_average, reduce')
        need(cpp == 'cosine_embedding_loss' or len({t.shape for t in tensors[:2]}) == 1 or 'multi' in cpp,
             'tensors that broadcast')
        need(cpp != 'margin_ranking_loss' or tensors[2].shape == tensors[0].shape, 'tensors that broadcast')
        # A variance that is a tensor comes last.
        tensors += tuple(found.pop(k) for k in [k for k, v in found.items() if is_tensor(v)])
        need(len(tensors) == count, 'size_average, reduce')
        need(cpp != 'gaussian_nll_loss' or tensors[2].dim() == tensors[0].dim() > 0, 'a variance of fewer axes')
        return cpp, [*tensors, *([] if weight is None else [weight])], {
            'reduction': reduction, 'weighted': weight is not None, **found}
    return convert


for torch_name, count, defaults in (
        ('binary_cross_entropy', 2, {}), ('soft_margin_loss', 2, {}), ('multilabel_margin_loss', 2, {}),
        ('multilabel_soft_margin_loss', 2, {}), ('hinge_embedding_loss', 2, {'margin': 1.0}),
        ('cosine_embedding_loss', 3, {'margin': 0.0}), ('margin_ranking_loss', 3, {'margin': 0.0}),
        ('gaussian_nll_loss', 3, {'full': False, 'eps': 1e-6}),
        ('poisson_nll_loss', 2, {'log_input': True, 'full': False, 'eps': 1e-8}),
        ('multi_margin_loss', 2, {'p': 1, 'margin': 1.0}),
        ('triplet_margin_loss', 3, {'margin': 1.0, 'p': 2, 'eps': 1e-6, 'swap': False})):
    CALLS['nn.functional.' + torch_name] = more_loss(torch_name, count, **defaults)

# Each result element follows from one element of each operand: tighter limits, and the sign of 0 counts.
ELEMENTWISE = {
    'negate', 'exp', 'log', 'log1p', 'sqrt', 'square', 'abs', 'sign', 'reciprocal', 'rsqrt', 'sin', 'cos', 'relu',
    'leaky_relu', 'elu', 'gelu', 'silu', 'softplus', 'sigmoid', 'tanh', 'clamp', 'maximum', 'minimum', 'where',
    'masked_fill', 'full_like', 'expm1', 'log2', 'log10', 'tan', 'erf', 'floor', 'ceil', 'round', 'trunc', 'isnan',
    'isinf', 'isfinite', 'nan_to_num', 'atan2', 'clamp_tensors', 'masked_fill_tensor',
    *(f + which for f in ('add', 'subtract', 'multiply', 'divide', 'pow', 'eq', 'ne', 'lt', 'le', 'gt', 'ge',
                            'divide_floor', 'divide_trunc', 'remainder')
      for which in ('', '_number', '_right'))}

EPS = 2.0 ** -23
MOST_AXES = 6
TYPES = {torch.float32: 'f32', torch.int64: 'i64', torch.bool: 'bool', torch.uint8: 'u8', torch.float64: 'f64'}


def shorter(v):
    return int(v) if v == int(v) and abs(v) < 1e6 and math.copysign(1, v) == (1 if v >= 0 else -1) else v


def number(v, digits):
    if isinstance(v, float):
        return ('nan' if math.isnan(v) else 'inf' if v > 0 else '-inf') if not math.isfinite(v) else \
            shorter(float(f'{v:.{digits}g}'))
    return int(v)


def numbers(t, digits=8):
    return [number(v, digits) for v in t.detach().flatten().tolist()]


def plain(value):
    """Arguments as JSON has them."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return number(value, 17) if isinstance(value, float) else value


def seeds(y):
    count = y.numel()
    return torch.tensor([(i * 7 % 11 - 5) / 5 for i in range(count)], dtype=torch.float32).reshape(y.shape)


def map_tensors(value, f):
    if is_tensor(value):
        return f(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(map_tensors(v, f) for v in value)
    if isinstance(value, dict):
        return {k: map_tensors(v, f) for k, v in value.items()}
    return value


def computed(f, sample, dtype, grads_for):
    """PyTorch's outputs, and the gradients of these tensors, in this type."""
    leaves = {}

    def leaf(t):
        if id(t) not in leaves:
            wide = t.detach().to(dtype) if t.is_floating_point() else t
            leaves[id(t)] = wide.clone().requires_grad_(t.is_floating_point())
        return leaves[id(t)]
    args, options = map_tensors(sample, leaf)
    y = f(*args, **options)
    if y is NotImplemented:
        raise RuntimeError('not implemented')
    outputs = [y] if is_tensor(y) else list(y)
    roots = [o for o in outputs if o.requires_grad]
    inputs = [leaves[id(t)] for t in grads_for if id(t) in leaves and t.is_floating_point()]
    grads = {}
    if roots and inputs:
        found = torch.autograd.grad(roots, inputs, [seeds(o).to(o.dtype) for o in roots], allow_unused=True)
        grads = {id(leaf): g for leaf, g in zip(inputs, found)}
    return outputs, [grads.get(id(leaves[id(t)])) if id(t) in leaves else None for t in grads_for]


def compared(wide, narrow):
    """Numbers in f64, and where PyTorch's own f32 differs from them by more than one rounding."""
    if wide is None:
        return None
    result = {'t': TYPES[narrow.dtype], 's': list(wide.shape), 'v': numbers(wide)}
    if wide.is_floating_point():
        errors, in_f32 = [], []
        for i, (w, n) in enumerate(zip(wide.detach().float().flatten().tolist(), narrow.flatten().tolist())):
            if w == n or (math.isnan(w) and math.isnan(n)):
                continue
            if not (math.isfinite(w) and math.isfinite(n)):
                in_f32.append([i, number(n, 9)])
        for i, (w, n) in enumerate(zip(wide.detach().flatten().tolist(), narrow.flatten().tolist())):
            error = float(f'{abs(w - n):.3g}')
            if math.isfinite(error) and abs(w - n) > EPS * abs(w):
                errors.append([i, error])
        if errors:
            result['e'] = errors
        if in_f32:
            result['f32'] = in_f32
    return result


counts = collections.Counter()

# Of a line of the part for the repository.
EVERYTHING = sys.argv[1:] == ['--all']
LONGEST = math.inf if EVERYTHING else 850
LONGEST_OF_LATER = math.inf if EVERYTHING else 1300


def write(suite, name, convert, f, args, options):
    """Writes a sample, or counts why not."""
    try:
        cpp, tensors, arguments = convert(*args, **options)
    except Unsupported:
        counts[f'{suite}: without a counterpart'] += 1
        return False
    except TypeError as error:
        # An option that the C++ call does not have.
        counts[f'{suite}: without a counterpart: {name}: {error}'] += 1
        return False
    if not tensors or any(not is_tensor(t) or t.dtype not in TYPES or t.dim() > MOST_AXES for t in tensors):
        counts[f'{suite}: without a counterpart'] += 1
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            wide, wide_grads = computed(f, (args, options), torch.float64, tensors)
            narrow, narrow_grads = computed(f, (args, options), torch.float32, tensors)
    except RuntimeError:
        counts[f'{suite}: PyTorch refuses'] += 1
        return False
    if any(y.dtype not in TYPES or y.dtype == torch.float64 or y.dim() > MOST_AXES for y in narrow):
        counts[f'{suite}: without a counterpart'] += 1
        return False
    line = json.dumps({
        'suite': suite, 'name': name, 'f': cpp, 'elementwise': cpp in ELEMENTWISE,
        'x': [{'t': TYPES[t.dtype], 's': list(t.shape), 'v': numbers(t, 9)} for t in tensors],
        'a': {k: plain(v) for k, v in arguments.items()},
        'y': [compared(w, n) for w, n in zip(wide, narrow)],
        'dx': [compared(w, n) for w, n in zip(wide_grads, narrow_grads)],
    }, separators=(',', ':'))
    if suite != 'special values' and len(line) > (LONGEST if name in FIRST or suite != 'OpInfo' else LONGEST_OF_LATER):
        return False
    counts[f'{suite}: written'] += 1
    print(line)
    return True


def size_of(sample):
    total = [0]

    def add(t):
        total[0] += t.numel()
        return t
    map_tensors(sample, add)
    return total[0]


def shortened(t):
    """Few digits."""
    if not t.is_floating_point():
        return t.detach().clone()
    return torch.tensor([float(f'{v:.3g}') for v in t.detach().flatten().tolist()], dtype=torch.float32).reshape(t.shape)


def op_samples(everything, later=False):
    for op in op_db:
        if op.name not in CALLS or op.variant_test_name in ('complex',) or (op.name in FIRST) == later:
            continue
        if later:
            torch.manual_seed(zlib.crc32(op.name.encode()))
        for dtype in (torch.float32, torch.int64, torch.bool):
            if dtype not in op.supported_dtypes('cpu'):
                continue
            samples = list(op.sample_inputs('cpu', dtype))
            if everything:
                try:
                    samples += list(op.reference_inputs('cpu', dtype))
                except (NotImplementedError, RuntimeError, AttributeError):
                    pass
            else:
                samples = [s for s in samples if size_of((s.input, s.args, s.kwargs)) <= (60 if later else 30)]
                step = -(-len(samples) // ((3 if later else 4) if dtype == torch.float32 else 1))
                samples = samples[::max(step, 1)]
            for sample in samples:
                if size_of((sample.input, sample.args, sample.kwargs)) > 20000:
                    continue
                change = (lambda t: t.detach()) if everything else shortened
                args, options = map_tensors(((sample.input, *sample.args), sample.kwargs), change)
                write('OpInfo', op.name, CALLS[op.name], op.op, args, options)


FUNCTIONAL = {
    'nn.Linear': ('nn.functional.linear', lambda m: {}),
    'nn.Conv1d': ('nn.functional.conv1d', lambda m: {'stride': m.stride, 'padding': m.padding, 'dilation': m.dilation,
                                                      'groups': m.groups}),
    'nn.Conv2d': ('nn.functional.conv2d', lambda m: {'stride': m.stride, 'padding': m.padding, 'dilation': m.dilation,
                                                      'groups': m.groups}),
    'nn.ConvTranspose2d': ('nn.functional.conv_transpose2d', lambda m: {
        'stride': m.stride, 'padding': m.padding, 'output_padding': m.output_padding, 'dilation': m.dilation,
        'groups': m.groups}),
}
SAME = {'nn.ELU': ('nn.functional.elu', lambda m: {'alpha': m.alpha}), 'nn.ReLU': ('nn.functional.relu', lambda m: {}),
        'nn.Sigmoid': ('sigmoid', lambda m: {}),
        'nn.AdaptiveAvgPool2d': ('nn.functional.adaptive_avg_pool2d', lambda m: {'size': m.output_size}),
        'nn.AvgPool1d': ('nn.functional.avg_pool1d', lambda m: {
            'kernel_size': m.kernel_size, 'stride': m.stride, 'padding': m.padding, 'ceil_mode': m.ceil_mode,
            'count_include_pad': m.count_include_pad}),
        'nn.L1Loss': ('nn.functional.l1_loss', lambda m: {'reduction': m.reduction}),
        'nn.NLLLoss': ('nn.functional.nll_loss', lambda m: {
            'weight': m.weight, 'ignore_index': m.ignore_index, 'reduction': m.reduction}),
        'nn.CrossEntropyLoss': ('nn.functional.cross_entropy', lambda m: {
            'weight': m.weight, 'ignore_index': m.ignore_index, 'reduction': m.reduction,
            'label_smoothing': m.label_smoothing}),
        'nn.Embedding': ('nn.functional.embedding', lambda m: {'padding_idx': m.padding_idx})}


def module_samples(everything):
    """Modules without a state of their own, as the functions that they call, with their parameters."""
    for info in module_db:
        if info.name not in FUNCTIONAL and info.name not in SAME:
            continue
        seen = 0
        for sample in info.module_inputs_func(info, device='cpu', dtype=torch.float32, requires_grad=False,
                                              training=True):
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
            inputs = sample.forward_input
            if inputs is None:
                continue
            name, options_of = (FUNCTIONAL.get(info.name) or SAME[info.name])
            parameters = [p.detach() for p in (getattr(module, 'weight', None), getattr(module, 'bias', None))
                          if p is not None] if info.name in FUNCTIONAL or info.name == 'nn.Embedding' else []
            args = (*parameters, *inputs.args) if info.name == 'nn.Embedding' else (*inputs.args, *parameters)
            args, options = map_tensors((args, {**inputs.kwargs, **options_of(module)}),
                                        (lambda t: t.detach()) if everything else shortened)
            if not everything and (size_of((args, options)) > 100 or seen >= 2):
                continue
            f = F.embedding if name == 'nn.functional.embedding' else getattr(F, name.split('.')[-1], None)
            call_f = (lambda w, i, **o: F.embedding(i, w, **o)) if f is F.embedding else f
            if name == 'nn.functional.adaptive_avg_pool2d':
                call_f = lambda x, size: F.adaptive_avg_pool2d(x, size)
            seen += bool(write('ModuleInfo', info.name, CALLS[name], call_f, args, options))


def special_numbers():
    inf = math.inf
    some = [0.0, 1e-45, 1e-40, 1.1754944e-38, 1e-30, 1e-25, 1e-20, 1e-12, 1e-7, 1e-4, 0.1, 0.25, 1 / 3, 0.5, 0.7, 0.999,
            1.0, 1.5, 2.0, 2.5, math.pi, 3.0, 5.0, 8.0, 9.0, 10.0, 17.0, 20.0, 40.0, 80.0, 88.7, 89.0, 100.0, 103.0, 127.0,
            1e3, 65504.0, 1e5, 16777216.0, 1e10, 1e15, 1.8e19, 1e20, 1e25, 1e30, 3e38, inf]
    return torch.tensor([*some, *(-v for v in some), math.nan], dtype=torch.float32)


def special_samples(everything):
    x = special_numbers()
    few = x if everything else x[torch.tensor([0, 2, 13, 16, 18, 42, 46, 47, 63, 65, 93, 94])]
    functions = {
        'neg': torch.neg, 'exp': torch.exp, 'log': torch.log, 'log1p': torch.log1p, 'sqrt': torch.sqrt,
        'square': torch.square, 'abs': torch.abs, 'sign': torch.sign, 'reciprocal': torch.reciprocal,
        'rsqrt': torch.rsqrt, 'sin': torch.sin, 'cos': torch.cos, 'sigmoid': torch.sigmoid, 'tanh': torch.tanh,
        'nn.functional.relu': F.relu, 'nn.functional.silu': F.silu, 'nn.functional.leaky_relu': F.leaky_relu,
        'nn.functional.elu': F.elu, 'nn.functional.gelu': F.gelu, 'nn.functional.softplus': F.softplus,
        'expm1': torch.expm1, 'log2': torch.log2, 'log10': torch.log10, 'tan': torch.tan, 'erf': torch.erf,
        'floor': torch.floor, 'ceil': torch.ceil, 'round': torch.round, 'trunc': torch.trunc, 'isnan': torch.isnan,
        'isinf': torch.isinf, 'isfinite': torch.isfinite,
    }
    for name, f in functions.items():
        write('special values', name, CALLS[name], f, (x,), {})
    for low, high in [(-1.0, 2.0), (None, 0.0), (0.5, None), (2.0, -2.0), (-math.inf, math.inf)]:
        write('special values', 'clamp', CALLS['clamp'], torch.clamp, (few,), {'min': low, 'max': high})
    binary = {'atan2': torch.atan2, 'floor_divide': torch.floor_divide, 'remainder': torch.remainder,
              'add': torch.add, 'sub': torch.sub, 'mul': torch.mul, 'div': torch.div, 'pow': torch.pow,
              'maximum': torch.maximum, 'minimum': torch.minimum,
              **{n: getattr(torch, n) for n in ('eq', 'ne', 'lt', 'le', 'gt', 'ge')}}
    for name, f in binary.items():
        # The gradient of a broadcast operand is a sum, so both have all pairs.
        a, b = few.reshape(-1, 1).expand(len(few), len(few)).reshape(-1), few.repeat(len(few))
        for start in range(0, len(a), 1000):
            write('special values', name, CALLS[name], f, (a[start:start + 1000].clone(), b[start:start + 1000].clone()), {})
        if name in ('maximum', 'minimum', 'atan2'):
            continue
        for n in (few if everything else few[::4]).tolist():
            write('special values', name, CALLS[name], f, (few, n), {})
    whole = torch.tensor([-2 ** 63, -2 ** 53 - 1, -300, -2, -1, 0, 1, 2, 3, 127, 128, 255, 256, 2 ** 53 + 1, 2 ** 63 - 1])
    small = torch.tensor([0, 1, 2, 100, 127, 128, 200, 254, 255], dtype=torch.uint8)
    for name in ('eq', 'ne', 'lt', 'le', 'gt', 'ge'):
        for n in ((-1e30, -300.0, -2.5, -0.5, 0.0, 0.5, 1.0, 127.5, 255.0, 255.5, 1e30, math.inf, -math.inf, math.nan)
                  if everything else (-0.5, 0.5, 255.5, 1e30, math.nan)):
            write('special values', name, CALLS[name], binary[name], (whole, n), {})
            write('special values', name, CALLS[name], binary[name], (small, n), {})
    # The ends of vector loops.
    for count in (range(0, 70, 1) if everything else (1, 7, 17)):
        values = torch.linspace(-3, 3, max(count, 1))[:count]
        values = torch.tensor([float(f'{v:.3g}') for v in values.tolist()])
        for name, f in functions.items():
            if everything or name in ('exp', 'sin', 'tanh', 'nn.functional.gelu'):
                write('special values', name, CALLS[name], f, (values,), {})
    for shape in ((0,), (0, 3), (3, 0)):
        none = torch.zeros(shape)
        for name, f in {**functions, 'sum': torch.sum, 'mean': torch.mean, 'prod': torch.prod}.items():
            write('special values', name, CALLS[name], f, (none,), {})
        write('special values', 'mse_loss', CALLS['nn.functional.mse_loss'], F.mse_loss, (none, none.clone()), {})


def type_samples():
    """Operands of different types, also without axes."""
    real, whole, mask = torch.tensor([0.5, -2.0, 3.25]), torch.tensor([2, -3, 3]), torch.tensor([True, False, True])
    functions = {'add': torch.add, 'sub': torch.sub, 'mul': torch.mul, 'div': torch.div, 'atan2': torch.atan2,
                 'maximum': torch.maximum, 'floor_divide': torch.floor_divide, 'remainder': torch.remainder,
                 'eq': torch.eq, 'lt': torch.lt, 'ge': torch.ge}
    for name, f in functions.items():
        for a, b in ((real, whole), (whole, real), (mask, real), (mask, whole), (whole, real[1]), (real, whole[0])):
            write('types', name, CALLS[name], f, (a, b), {})
    for a, b in ((real, whole), (mask, real), (whole, mask), (whole, real[0])):
        write('types', 'where', CALLS['where'], lambda x, c, y: torch.where(c, x, y), (a, mask, b), {})
    for name in ('exp', 'sqrt', 'log1p', 'sin', 'tan', 'erf', 'rsqrt', 'reciprocal', 'sigmoid', 'tanh', 'abs', 'square'):
        write('types', name, CALLS[name], getattr(torch, name), (whole,), {})
        if name not in ('abs', 'square'):
            write('types', name, CALLS[name], getattr(torch, name), (mask,), {})


def main():
    everything = EVERYTHING
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    print(json.dumps({'torch': torch.__version__}))
    op_samples(everything)
    module_samples(everything)
    special_samples(everything)
    op_samples(everything, True)
    type_samples()
    for what, count in sorted(counts.items()):
        print(f'{what}: {count}', file=sys.stderr)
    print(versions(), file=sys.stderr)


main()
