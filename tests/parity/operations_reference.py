#!/usr/bin/python3
"""Writes what PyTorch computes for small inputs of every operation in the list, and the inputs' gradients, in f64.
Run by hand, with Debian's python3-torch: tests/parity/operations_reference.py > tests/parity/operations.json
With --compare, it compares that file with what this PyTorch computes, and compositions with PyTorch's own functions.
tests/models/operations_parity_test.cc and operation_cases.cc have the same list in C++.
"""
import pathlib
import sys
import zlib
import torch
import torch.nn.functional as F

from comparison import compare_file, distance, rounded, seeds, write


def ids(*shape):
    """Numbers below 3."""
    count = 1
    for extent in shape:
        count *= extent
    return torch.tensor([(i * i + 1) % 3 for i in range(count)]).reshape(shape)


def zero(x):
    """0, so that results without a gradient have one."""
    return 0 * x.sum().reshape(1)


def comparison(f):
    return lambda x, y: (x + 9) * f(x, y) + 0 * y + x * f(x, 0.5)


def scatter_add(x, index, src):
    """PyTorch has no gradient for a source that is larger than the index. The rest of it takes no part."""
    y = torch.scatter_add(x, 1, index, src.detach())
    used = src[tuple(slice(extent) for extent in index.shape)]
    return y + torch.scatter_add(torch.zeros_like(x), 1, index, used - used.detach())


def rms_norm(x, shape, weight=None, eps=torch.finfo(torch.float64).eps):
    """PyTorch 2.4 and later: F.rms_norm."""
    dims = tuple(range(-len(shape), 0))
    y = x * torch.rsqrt((x * x).mean(dims, True) + eps)
    return y if weight is None else y * weight


def attention(query, key, value, mask=None, causal=False, scale=None):
    """PyTorch 2.0 and later: F.scaled_dot_product_attention."""
    scores = query @ key.transpose(-2, -1) * (scale or query.shape[-1] ** -0.5)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ value


def visible(queries, keys):
    """A mask that shows the first key and others."""
    return torch.tensor([[k == 0 or (q + 2 * k) % 3 == 1 for k in range(keys)] for q in range(queries)])


def turned(x):
    """Numbers below 3 in x's shape that differ along axis 1."""
    return torch.tensor([[[(i + j + k) % 3 for k in range(x.shape[2])] for j in range(x.shape[1])]
                         for i in range(x.shape[0])])


def whole_sums(n):
    return (n.sum(0) + 10 * n.amax(0) + 100 * n.argmin(0) + 1000 * n.cumsum(0)[1] + 10000 * n.sort(0)[0][2] +
            100000 * (n + 1).prod(0))


X, Y = (2, 3, 4), (3, 1)
Q, K, V = (2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)
CASES = {
    'abs': (torch.abs, [X]),
    'sign': (torch.sign, [X]),
    'reciprocal': (torch.reciprocal, [X]),
    'rsqrt': (lambda x: torch.rsqrt(x * x + 0.5), [X]),
    'sin': (torch.sin, [X]),
    'cos': (torch.cos, [X]),
    'leaky_relu': (F.leaky_relu, [X]),
    'elu': (F.elu, [X]),
    'gelu': (F.gelu, [X]),
    'silu': (F.silu, [X]),
    'softplus': (F.softplus, [X]),
    'softplus of beta': (lambda x: F.softplus(x, 3, 1), [X]),
    'clamp': (lambda x: torch.clamp(x, -0.5, 0.7), [X]),
    'pow': (lambda x: torch.pow(x, 3) + torch.pow(2, x), [X]),
    'pow of tensors': (lambda x, y: torch.pow(torch.abs(x), y), [X, Y]),
    'maximum': (torch.maximum, [X, Y]),
    'minimum': (torch.minimum, [X, Y]),
    'where': (lambda x, y: torch.where(x > y, x * x, y), [X, Y]),
    'masked_fill': (lambda x: torch.masked_fill(x, x <= 0, -2), [X]),
    'sum': (lambda x: torch.sum(x, (0, -1)), [X]),
    'mean': (lambda x: torch.mean(x, 1, True), [X]),
    'var': (lambda x: torch.var(x, 1), [X]),
    'var without correction': (lambda x: torch.var(x, (0, 2), False, True), [X]),
    'std': (lambda x: torch.std(x, -1), [X]),
    'amax': (lambda x: torch.amax(x, 1), [X]),
    'amin': (lambda x: torch.amin(x, (0, 1), True), [X]),
    'max': (lambda x: torch.max(x, 2)[0], [X]),
    'min': (lambda x: torch.min(x, 0, True)[0], [X]),
    'logsumexp': (lambda x: torch.logsumexp(x, (0, 2)), [X]),
    'cumsum': (lambda x: torch.cumsum(x, 1), [X]),
    'permute': (lambda x: torch.permute(x, (2, 0, 1)), [X]),
    'transpose': (lambda x: torch.transpose(x, 0, -1), [X]),
    'expand': (lambda x: x.unsqueeze(1).expand(2, 5, -1, 4), [X]),
    'squeeze': (lambda x: torch.squeeze(x), [(1, 3, 1, 2)]),
    'flatten': (lambda x: torch.flatten(x, 1), [X]),
    'narrow': (lambda x: x.narrow(2, 1, 2), [X]),
    'select': (lambda x: x.select(1, -1), [X]),
    'slice': (lambda x: x[:, :, -3::2], [X]),
    'cat': (lambda x, y: torch.cat([x, y], -1), [X, (2, 3, 1)]),
    'stack': (lambda x, y: torch.stack([x, y], 1), [X, X]),
    'split': (lambda x: torch.split(x, [1, 3], 2)[1], [X]),
    'chunk': (lambda x: torch.chunk(x, 2, 1)[0], [X]),
    'take_along_dim': (lambda x: torch.take_along_dim(x, ids(2, 5, 1), 1), [X]),
    'gather': (lambda x: torch.gather(x, 1, ids(2, 2, 4)), [X]),
    'index_select': (lambda x: torch.index_select(x, 1, ids(6)), [X]),
    'scatter_add': (lambda x, y: torch.scatter_add(x, 1, ids(2, 5, 4), y), [X, (2, 5, 4)]),
    'embedding': (lambda w: F.embedding(ids(2, 4), w, 1), [(3, 5)]),
    'one_hot': (lambda x: x * F.one_hot(ids(2, 3), 4), [X]),
    'matmul': (torch.matmul, [(2, 1, 3, 4), (5, 4, 2)]),
    'matmul with a matrix': (torch.matmul, [X, (4, 3)]),
    'matmul with a vector': (torch.matmul, [(4,), (3, 4, 2)]),
    'bmm': (torch.bmm, [X, (2, 4, 3)]),
    'linear': (F.linear, [X, (5, 4), (5,)]),
    'triu': (lambda x: torch.triu(x, 1), [X]),
    'tril': (torch.tril, [X]),
    'layer_norm': (lambda x, w, b: F.layer_norm(x, (3, 4), w, b), [X, (3, 4), (3, 4)]),
    'group_norm': (lambda x, w, b: F.group_norm(x, 3, w, b), [(2, 6, 4), (6,), (6,)]),
    'softmax': (lambda x: torch.softmax(x, 1), [X]),
    'log_softmax': (lambda x: torch.log_softmax(x, 0), [X]),
    'mse_loss': (lambda x, t: F.mse_loss(x, t, reduction='sum').reshape(1), [X, X]),
    'l1_loss': (lambda x, t: F.l1_loss(x, t).reshape(1), [X, X]),
    'huber_loss': (lambda x, t: F.huber_loss(x, t, delta=0.7).reshape(1), [X, X]),
    'smooth_l1_loss': (lambda x, t: F.smooth_l1_loss(x, t, reduction='none', beta=0.7), [X, X]),
    'binary_cross_entropy_with_logits': (lambda x, t, w: F.binary_cross_entropy_with_logits(
        x, torch.sigmoid(t), w.exp().detach(), pos_weight=(2 * w).exp().detach()).reshape(1) + 0 * w.sum(),
        [X, X, (4,)]),
    'binary_cross_entropy_with_logits of no weights': (lambda x, t: F.binary_cross_entropy_with_logits(
        x, torch.sigmoid(t), reduction='none'), [X, X]),
    'kl_div': (lambda x, t: F.kl_div(torch.log_softmax(x, 1), torch.softmax(t, 1), reduction='batchmean').reshape(1),
               [(3, 5), (3, 5)]),
    'kl_div of logarithms': (lambda x, t: F.kl_div(x, torch.log_softmax(t, 1), reduction='mean',
                                                   log_target=True).reshape(1), [(3, 5), (3, 5)]),
    'nll_loss': (lambda x, w: F.nll_loss(x, ids(2, 4), w.exp().detach()).reshape(1) + 0 * w.sum(), [X, (3,)]),
    'nll_loss ignoring': (lambda x: F.nll_loss(x, ids(2, 4), ignore_index=2, reduction='none'), [X]),
    'cross_entropy': (lambda x: F.cross_entropy(x, ids(5)).reshape(1), [(5, 3)]),
    'cross_entropy smoothed': (lambda x: F.cross_entropy(x, ids(5), label_smoothing=0.1).reshape(1), [(5, 3)]),
    'cross_entropy with everything': (lambda x, w: F.cross_entropy(
        x, ids(2, 4), w.exp().detach(), ignore_index=2, label_smoothing=0.1).reshape(1) + 0 * w.sum(), [X, (3,)]),
    'cross_entropy ignoring, smoothed': (lambda x: F.cross_entropy(
        x, ids(2, 4), ignore_index=2, label_smoothing=0.1).reshape(1), [X]),
    'cross_entropy of probabilities': (lambda x, t, w: F.cross_entropy(
        x, torch.softmax(t, 1), w.exp().detach(), label_smoothing=0.1).reshape(1) + 0 * w.sum(), [X, X, (3,)]),
    'unbind': (lambda x: torch.unbind(x, 1)[2] * torch.unbind(x, -3)[0][0], [X]),
    'unflatten': (lambda x: x.unflatten(2, (2, 2)), [X]),
    'conv1d': (lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2, 2), [(2, 4, 9), (6, 2, 3), (6,)]),
    'conv_transpose2d': (lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 3), (1, 0), (1, 2), 2, (2, 1)),
                         [(2, 4, 3, 2), (4, 3, 3, 2), (6,)]),
    'adaptive_avg_pool2d': (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), [(1, 2, 5, 7)]),
    'adaptive_avg_pool2d evenly': (lambda x: F.adaptive_avg_pool2d(x, (3, None)), [(1, 2, 6, 3)]),
    'interpolate': (lambda x: F.interpolate(x, (5, 2)), [(1, 2, 3, 4)]),
    'interpolate by a factor': (lambda x: F.interpolate(x, scale_factor=1.5), [(1, 2, 3, 4)]),
    'interpolate bilinear': (lambda x: F.interpolate(x, (7, 3), mode='bilinear'), [(1, 2, 3, 4)]),
    'interpolate bilinear by a factor': (lambda x: F.interpolate(x, scale_factor=1.7, mode='bilinear'),
                                         [(1, 2, 3, 4)]),
    'interpolate bilinear with corners': (lambda x: F.interpolate(x, (7, 1), mode='bilinear', align_corners=True),
                                          [(1, 2, 3, 4)]),
    'exp': (torch.exp, [X]),
    'log': (lambda x: torch.log(x * x + 0.5), [X]),
    'sqrt': (lambda x: torch.sqrt(x * x + 0.5), [X]),
    'sigmoid': (torch.sigmoid, [X]),
    'tanh': (torch.tanh, [X]),
    'arithmetic': (lambda x, y: -x + x * y - 2 / (x * x + 1) + (1 - y) / (y * y + 1) - x / 3, [X, Y]),
    'gelu by tanh': (lambda x: F.gelu(x, approximate='tanh'), [X]),
    'sum of all': (lambda x: torch.sum(x).reshape(1), [X]),
    'mean of all': (lambda x: torch.mean(x).reshape(1), [X]),
    'sum of a mask': (lambda x: torch.sum(x > 0.25, 1) + zero(x), [X]),
    'cumsum of a mask': (lambda x: torch.cumsum(x > 0, 2) + zero(x), [X]),
    'amax of a mask': (lambda x: torch.amax((x > 1).to(torch.uint8), (0, 2)) + zero(x), [X]),
    'unsqueeze': (lambda x: torch.unsqueeze(x, 1) * torch.unsqueeze(x, -2), [(2, 3)]),
    'embedding, padding from the end': (lambda w: F.embedding(ids(2, 4), w, -1), [(3, 5)]),
    'scatter_add of a shorter index': (lambda x, y: scatter_add(x, ids(1, 2, 3), y), [X, (2, 5, 4)]),
    'scatter_add of a column': (lambda x, y: scatter_add(x, ids(2, 5, 1), y), [X, (2, 5, 4)]),
    'conv2d': (lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2), (1, 2), 2), [(2, 4, 5, 6), (6, 2, 3, 2), (6,)]),
    'max_pool2d': (lambda x: F.max_pool2d(x, 3, 2, 1), [(1, 2, 5, 6)]),
    'avg_pool2d': (lambda x: F.avg_pool2d(x, (2, 3), (2, 1)), [(1, 2, 5, 6)]),
    'kl_div summed': (lambda x, t: F.kl_div(torch.log_softmax(x, 1), torch.softmax(t, 1), reduction='sum').reshape(1),
                      [(3, 5), (3, 5)]),
    'kl_div of elements': (lambda x, t: F.kl_div(torch.log_softmax(x, 1), torch.softmax(t, 1), reduction='none'),
                           [(3, 5), (3, 5)]),
    'kl_div over elements': (lambda x, t: F.kl_div(torch.log_softmax(x, 1), torch.softmax(t, 1),
                                                   reduction='mean').reshape(1), [(3, 5), (3, 5)]),
    'rms_norm': (lambda x, w: rms_norm(x, (4,), w), [X, (4,)]),
    'rms_norm over two axes': (lambda x, w: rms_norm(x, (3, 4), w, 0.1), [X, (3, 4)]),
    'rms_norm without a weight': (lambda x: rms_norm(x, (4,)), [X]),
    'scaled_dot_product_attention': (attention, [Q, K, V]),
    'causal attention': (lambda q, k, v: attention(q, k, v, causal=True), [Q, K, V]),
    'masked attention': (lambda q, k, v: attention(q, k, v, visible(3, 5)), [Q, K, V]),
    'attention with a bias': (lambda q, k, v, mask: attention(q, k, v, mask, scale=0.7), [Q, K, V, (2, 1, 3, 5)]),
}

# Inputs are halves from -1.5 to 1.5, so that there are equal ones.
TIES = {
    **{name: (comparison(getattr(torch, name)), [X, Y]) for name in ['eq', 'ne', 'lt', 'le', 'gt', 'ge']},
    'argmax of all': (lambda x: torch.argmax(x) + zero(x), [X]),
    'argmin of all': (lambda x: torch.argmin(x) + zero(x), [X]),
    'argmax': (lambda x: torch.argmax(x, 1, True) + zero(x), [X]),
    'argmin': (lambda x: torch.argmin(x, -1) + zero(x), [X]),
    'max with places': (lambda x: torch.max(x, 2)[0] * (torch.max(x, 2)[1] + 1), [X]),
    'min with places': (lambda x: torch.min(x, 1, True)[0] * (torch.min(x, 1, True)[1] + 1), [X]),
    'amax of equals': (lambda x: torch.amax(x, 2), [X]),
    'amin of equals': (lambda x: torch.amin(x, (0, 1), True), [X]),
    'max of all': (torch.max, [X]),
    'min of all': (torch.min, [X]),
    'maximum of equals': (torch.maximum, [X, Y]),
    'minimum of equals': (torch.minimum, [X, Y]),
    'clamp from below': (lambda x: torch.clamp(x, min=0.5), [X]),
    'clamp from above': (lambda x: torch.clamp(x, max=0.5), [X]),
    'activations at zero': (lambda x: F.relu(x) + 2 * torch.abs(x) + 3 * F.leaky_relu(x, 0.3) + 4 * F.elu(x, 0.7), [X]),
    'std of equals': (lambda x: torch.std(x[:, :1].expand(2, 3, 4), 1) + torch.std(x, 1), [X]),
    **{f'{name}, {reduction}': (lambda x, t, f=f, r=reduction: f(x, t, r).reshape(X if r == 'none' else 1), [X, X])
       for name, f in {'mse_loss': lambda x, t, r: F.mse_loss(x, t, reduction=r),
                       'l1_loss': lambda x, t, r: F.l1_loss(x, t, reduction=r),
                       'huber_loss': lambda x, t, r: F.huber_loss(x, t, reduction=r, delta=0.5),
                       'smooth_l1_loss': lambda x, t, r: F.smooth_l1_loss(x, t, reduction=r, beta=0.5)}.items()
       for reduction in ['none', 'mean', 'sum']},
}

# Each from random numbers of its own.
LATER = {
    'log1p': (lambda x: torch.log1p(x * x - 0.5), [X]),
    'norm': (lambda x: torch.linalg.vector_norm(x, 2, 1), [X]),
    'norm of all': (lambda x: torch.norm(x), [X]),
    'norms of other powers': (lambda x: sum(torch.linalg.vector_norm(x, p, (0, 2), True) for p in (1, 3, torch.inf)),
                              [X]),
    'prod': (lambda x: torch.prod(x, 1), [X]),
    'prod of all': (torch.prod, [X]),
    'pad': (lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), [X]),
    'pad by negative widths': (lambda x: F.pad(x, (-1, 2, 1, -1)), [X]),
    'sort': (lambda x: torch.sort(x, 1)[0], [X]),
    'sort, descending': (lambda x: torch.sort(x, -1, True)[0] * (torch.sort(x, -1, True)[1] + 1), [X]),
    'argsort': (lambda x: torch.argsort(x, 0) + zero(x), [X]),
    'topk': (lambda x: torch.topk(x, 2)[0], [X]),
    'topk, smallest': (lambda x: torch.topk(x, 2, 1, False)[0] * (torch.topk(x, 2, 1, False)[1] + 1), [X]),
    'max_pool1d': (lambda x: F.max_pool1d(x, 3, 2, 1), [(2, 3, 8)]),
    'avg_pool1d': (lambda x: F.avg_pool1d(x, 3, 2, 1), [(2, 3, 8)]),
    'avg_pool1d without padding in the mean': (lambda x: F.avg_pool1d(x, 3, 2, 1, count_include_pad=False),
                                               [(2, 3, 8)]),
    'max_pool2d, stride of the kernel': (lambda x: F.max_pool2d(x, (2, 3)), [(1, 2, 5, 6)]),
    'lp_pool2d': (lambda x: F.lp_pool2d(x, 2, (2, 3), (2, 1)), [(1, 2, 5, 6)]),
    'lp_pool2d, ceil_mode': (lambda x: F.lp_pool2d(x, 4, 3, 2, True), [(1, 2, 6, 8)]),
    'lp_pool2d of a broken power': (lambda x: F.lp_pool2d(x * x, 1.5, 2), [(1, 2, 4, 6)]),
    'max_pool2d, ceil_mode': (lambda x: F.max_pool2d(x, (3, 2), (2, 3), 1, ceil_mode=True), [(1, 2, 6, 6)]),
    'avg_pool2d, ceil_mode': (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), [(1, 2, 6, 8)]),
    'avg_pool2d, ceil_mode without padding in the mean':
        (lambda x: F.avg_pool2d(x, (3, 4), (2, 3), 1, ceil_mode=True, count_include_pad=False), [(1, 2, 6, 9)]),
}
LATER_TIES = {
    'logical functions': (lambda x, y: torch.logical_and(x, y) + 2 * torch.logical_or(x, y) +
                          4 * torch.logical_xor(x, y) + 8 * torch.logical_not(x) + zero(x) + zero(y), [X, Y]),
    'any and all': (lambda x: torch.any(x > 0.5, 1) + 2 * torch.all(x > -1, 1) + 4 * torch.any(x) + zero(x), [X]),
    'sort of equals': (lambda x: torch.sort(x, dim=2, stable=True)[0] *
                       (torch.sort(x, dim=2, stable=True)[1] + 1), [X]),
    'prod of zeros': (lambda x: torch.prod(x, 1), [X]),
    'norm of zeros': (lambda x: torch.linalg.vector_norm(0 * x[:, :1], 2, 1) + torch.linalg.vector_norm(x, 2, 1),
                      [X]),
}

# Numbers, places, and letters: tests/models/function_cases.cc.
FUNCTIONS = {
    'expm1': (torch.expm1, [X]),
    'log2': (lambda x: torch.log2(x * x + 0.5), [X]),
    'log10': (lambda x: torch.log10(x * x + 0.5), [X]),
    'tan': (lambda x: torch.tan(x / 3), [X]),
    'erf': (torch.erf, [X]),
    'atan2': (torch.atan2, [X, Y]),
    'whole numbers': (lambda x: torch.floor(x) + 10 * torch.ceil(x) + 100 * torch.round(x * 2) + 1000 * torch.trunc(x) +
                      zero(x), [X]),
    'nan_to_num': (lambda x: torch.nan_to_num(torch.log(x), 0.5, None, -3), [X]),
    'whole quotients': (lambda x, y: torch.div(x, y * y + 0.5, rounding_mode='floor') + 10 *
                        torch.div(x, y * y + 0.5, rounding_mode='trunc') + torch.div(x, 0.3), [X, Y]),
    'remainder': (lambda x, y: torch.remainder(x, y * y + 0.5) + torch.remainder(x, -0.7), [X, Y]),
    'clamp by tensors': (lambda x, y: torch.clamp(x, y, y + 0.5) + torch.clamp(x, max=y), [X, Y]),
    'masked_fill by a tensor': (lambda x, y: torch.masked_fill(x, x > 0, y), [X, ()]),
    'cumprod': (lambda x: torch.cumprod(x, 1) + torch.cumprod(x, -1), [X]),
    'median': (lambda x: torch.median(x, 2)[0] * (torch.median(x, 2)[1] + 1) * torch.median(x), [X]),
    'std_mean': (lambda x: torch.std_mean(x, (0, 2))[0] * torch.std_mean(x, (0, 2))[1], [X]),
    'repeat': (lambda x: x.repeat(2, 1, 2, 1) * torch.tile(x, (2, 1)), [(2, 3, 4)]),
    'repeat_interleave': (lambda x: torch.repeat_interleave(x, 2, 1), [X]),
    'repeat_interleave by numbers': (lambda x: torch.repeat_interleave(x, ids(3), 1), [X]),
    'flip': (lambda x: torch.flip(x, (0, -1)) * x, [X]),
    'roll': (lambda x: torch.roll(x, (1, -2), (1, 2)) * torch.roll(x, 5), [X]),
    'movedim': (lambda x: torch.movedim(x, (0, 1), (-1, 0)), [X]),
    'linspace': (lambda x: x * torch.linspace(-1, 2, 4, dtype=torch.float64), [X]),
    'meshgrid': (lambda x, y: torch.meshgrid(x, y, indexing='ij')[0] * torch.meshgrid(y, x, indexing='xy')[0],
                 [(3,), (4,)]),
    'einsum': (lambda x, y: torch.einsum('bij,bkj->kib', x, y), [X, (2, 5, 4)]),
    'einsum of three': (lambda x, y, z: torch.einsum('bij,jk,i', x, y, z), [X, (4, 2), (3,)]),
    'einsum with an ellipsis': (lambda x, y, z: torch.einsum('...i,...i->...', x, y) + torch.einsum('ii...->...', z),
                                [X, (3, 4), (2, 2, 3)]),
    'normalize': (lambda x: F.normalize(x) + F.normalize(x, 1, -1), [X]),
    'cosine_similarity': (lambda x, y: F.cosine_similarity(x, y, -1), [X, (3, 4)]),
    'pairwise_distance': (F.pairwise_distance, [X, X]),
    'cdist': (lambda x, y: torch.cdist(x, y) + torch.cdist(x, y, 1), [X, (2, 5, 4)]),
    'outer, mv, dot': (lambda x, y: torch.outer(torch.mv(x, y), y) * torch.dot(y, y), [(3, 4), (4,)]),
    'mm': (torch.mm, [(3, 4), (4, 2)]),
    'scatter': (lambda x, y: torch.scatter(x, 1, turned(x), y), [X, X]),
    'scatter of a number': (lambda x: torch.scatter(x, 1, ids(2, 1, 3), 0.5), [X]),
    'gather of a smaller index': (lambda x: torch.gather(x, 1, ids(1, 5, 2)), [X]),
    'index_add': (lambda x, y: torch.index_add(x, 1, ids(5), y, alpha=0.5), [X, (2, 5, 4)]),
    'masked_select': (lambda x: torch.masked_select(x, x > 0), [X]),
    'nonzero': (lambda x: torch.nonzero(x > 0) + zero(x), [X]),
    'bincount': (lambda x: torch.bincount(ids(9)) * x, [(2, 3)]),
    'whole sums and orders': (lambda x: whole_sums(ids(3, 4)) * x, [(3, 4)]),
    'cummax': (lambda x: torch.cummax(x, 1)[0] * (torch.cummax(x, 1)[1] + 1), [X]),
    'cummin': (lambda x: torch.cummin(x, -1)[0] * (torch.cummin(x, -1)[1] + 1), [X]),
    'add and sub of multiples': (lambda x, y: torch.add(x, y, alpha=0.5) * torch.sub(x, y, alpha=2), [X, Y]),
    'embedding_bag': (lambda w: F.embedding_bag(ids(4, 3), w, mode='mean') + F.embedding_bag(ids(4, 3), w, mode='sum') *
                      F.embedding_bag(ids(4, 3), w, mode='max'), [(3, 5)]),
    'embedding_bag with padding': (lambda w: F.embedding_bag(ids(4, 3), w, mode='mean', padding_idx=1) +
                                   F.embedding_bag(ids(4, 3), w, mode='max', padding_idx=2), [(3, 5)]),
    'embedding_bag of weights': (lambda w, s: F.embedding_bag(ids(4, 3), w, mode='sum', per_sample_weights=s),
                                 [(3, 5), (4, 3)]),
    'max_pool3d': (lambda x: F.max_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), ceil_mode=True), [(1, 2, 3, 5, 4)]),
    'avg_pool3d': (lambda x: F.avg_pool3d(x, 2, (1, 2, 2), (1, 0, 1)) +
                   F.avg_pool3d(x, 2, (1, 2, 2), (1, 0, 1), count_include_pad=False), [(1, 2, 3, 4, 4)]),
    'avg_pool3d, ceil_mode': (lambda x: F.avg_pool3d(x, (2, 3, 3), 2, (1, 1, 0), True), [(2, 4, 6, 4)]),
    'adaptive pools of volumes': (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)) *
                                  F.adaptive_max_pool3d(x, (2, 3, 1)), [(1, 2, 3, 5, 4)]),
    'grid_sample': (lambda x, g: F.grid_sample(x, g, align_corners=False), [(2, 3, 4, 5), (2, 3, 2, 2)]),
    'grid_sample with corners': (lambda x, g: F.grid_sample(x, g, padding_mode='border', align_corners=True),
                                 [(2, 3, 4, 5), (2, 3, 2, 2)]),
    'grid_sample of the nearest': (lambda x, g: F.grid_sample(x, g, 'nearest', align_corners=False),
                                   [(2, 3, 4, 5), (2, 3, 2, 2)]),
    'whole sums at places': (lambda x: x * (torch.scatter_add(ids(3, 4), 0, ids(2, 4), ids(2, 4) - 2**40) +
                                            torch.index_add(ids(3, 4), 0, ids(5), ids(5, 4), alpha=3)), [(3, 4)]),
    'softmax in f64': (lambda x: torch.softmax(x, 1, dtype=torch.float64), [X]),
    'types that differ': (lambda x: (x + ids(3, 4)) * (x > 0) - ids(3, 4) / 4 + (3 - x) / (ids(4) + 1) +
                          torch.where(x > 0.5, ids(4), x), [X]),
    'extremes of types that differ': (lambda x: torch.maximum(x, ids(3, 4)) + torch.clamp(x, ids(4) - 1, ids(4)) +
                                      torch.remainder(x, ids(3, 4) + 1) + torch.add(ids(4), x, alpha=0.5), [X]),
    'comparisons of types that differ': (lambda x: x * (x < ids(3, 4)) + (ids(4) == (ids(4) > 1)) +
                                         torch.sqrt(ids(4) * 2 + (ids(4) > 1) * ids(4)) +
                                         torch.abs(ids(4) - 2) * x, [X]),
    'embedding_bag at offsets': (lambda w: F.embedding_bag(ids(9), w, torch.tensor([0, 4, 4, 6]), mode='mean') +
                                 F.embedding_bag(ids(9), w, torch.tensor([0, 1, 5, 6]), mode='sum') *
                                 F.embedding_bag(ids(9), w, torch.tensor([0, 1, 5, 5]), mode='max'), [(3, 5)]),
    'embedding_bag at offsets with padding': (lambda w: F.embedding_bag(
        ids(9), w, torch.tensor([0, 2, 5, 9]), mode='mean', padding_idx=1, include_last_offset=True) + F.embedding_bag(
            ids(9), w, torch.tensor([0, 1, 5]), mode='max', padding_idx=-1), [(3, 5)]),
    'embedding_bag at offsets of weights': (lambda w, s: F.embedding_bag(
        ids(9), w, torch.tensor([0, 4, 6]), mode='sum', per_sample_weights=s), [(3, 5), (9,)]),
}
# Inputs of halves.
FUNCTIONS_OF_TIES = {
    'unique': (lambda x: (lambda values, inverse, counts: values + 10 * counts + inverse.sum() + zero(x))(
        *torch.unique(x.detach(), return_inverse=True, return_counts=True)), [X]),
    'unique slices': (lambda x: (lambda values, inverse, counts: values * counts.reshape(-1, 1) + inverse.sum() + zero(x))(
        *torch.unique(x.detach()[:, :1].repeat(4, 1), dim=0, return_inverse=True, return_counts=True)), [(5, 3)]),
    'cummax of equals': (lambda x: torch.cummax(x, 2)[0] * (torch.cummax(x, 2)[1] + 1) +
                         torch.cummin(x, 2)[0] * (torch.cummin(x, 2)[1] + 1), [X]),
}

# PyTorch's own functions for cases that are composed above, because PyTorch 1.13 lacks them.
NATIVE = {
    'rms_norm': lambda x, w: F.rms_norm(x, (4,), w),
    'rms_norm over two axes': lambda x, w: F.rms_norm(x, (3, 4), w, 0.1),
    'rms_norm without a weight': lambda x: F.rms_norm(x, (4,)),
    'scaled_dot_product_attention': lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    'causal attention': lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    'masked attention': lambda q, k, v: F.scaled_dot_product_attention(q, k, v, visible(3, 5)),
    'attention with a bias': lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, scale=0.7),
}


def computed(f, inputs):
    inputs = [x.detach().requires_grad_() for x in inputs]
    y = f(*inputs)
    y.backward(seeds(y.shape))
    return {
        'inputs': [{'shape': list(x.shape), 'values': rounded(x)} for x in inputs],
        'shape': list(y.shape),
        'output': rounded(y),
        'gradients': [rounded(x.grad) for x in inputs],
    }


def main():
    torch.manual_seed(0)
    # Few digits, which f32 holds as well as f64.
    normal = lambda shape: (torch.randn(shape, dtype=torch.float64) * 64).round() / 64
    halves = lambda shape: (torch.randn(shape, dtype=torch.float64) * 1.5).round().clamp(-3, 3) / 2
    inputs = {name: [make(shape) for shape in shapes]
              for make, cases in [(normal, CASES), (halves, TIES)] for name, (_, shapes) in cases.items()}
    for make, cases in [(normal, LATER), (halves, LATER_TIES), (normal, FUNCTIONS), (halves, FUNCTIONS_OF_TIES)]:
        for name, (_, shapes) in cases.items():
            torch.manual_seed(zlib.crc32(name.encode()))
            inputs[name] = [make(shape) for shape in shapes]
    cases = {name: computed(f, inputs[name]) for name, (f, _) in
             {**CASES, **TIES, **LATER, **LATER_TIES, **FUNCTIONS, **FUNCTIONS_OF_TIES}.items()}
    if sys.argv[1:] != ['--compare']:
        return write({'cases': cases})
    compare_file(pathlib.Path(__file__).with_name('operations.json'), {'cases': cases})
    if not hasattr(F, 'rms_norm'):
        return
    for name, f in NATIVE.items():
        native = computed(f, inputs[name])
        pairs = [(native['output'], cases[name]['output']), *zip(native['gradients'], cases[name]['gradients'])]
        print(f'  PyTorch\'s own {name}: largest difference {max(distance(*pair) for pair in pairs):.1e} of the norm')


main()
