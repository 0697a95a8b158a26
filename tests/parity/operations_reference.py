#!/usr/bin/python3
"""Writes what PyTorch computes for small inputs of every operation in the list, and the inputs' gradients, in f64.
Run by hand, with Debian's python3-torch: tests/parity/operations_reference.py > tests/parity/operations.json
tests/models/operations_parity_test.cc has the same list in C++.
"""
import json
import torch
import torch.nn.functional as F


def ids(*shape):
    """Numbers below 3."""
    count = 1
    for extent in shape:
        count *= extent
    return torch.tensor([(i * i + 1) % 3 for i in range(count)]).reshape(shape)


X, Y = (2, 3, 4), (3, 1)
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
    'amax': (lambda x: torch.amax(torch.clamp(x, -9, 0.5), 1), [X]),
    'amin': (lambda x: torch.amin(torch.clamp(x, -0.5, 9), (0, 1), True), [X]),
    'max': (lambda x: torch.max(torch.clamp(x, -9, 0.5), 2)[0], [X]),
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
}


def main():
    torch.manual_seed(0)
    cases = {}
    for name, (f, shapes) in CASES.items():
        # Few digits, which f32 holds as well as f64.
        inputs = [(torch.randn(shape, dtype=torch.float64) * 64).round() / 64 for shape in shapes]
        for x in inputs:
            x.requires_grad_()
        y = f(*inputs)
        weights = torch.tensor([(i * 7 % 11 - 5) / 5 for i in range(y.numel())], dtype=torch.float64).reshape(y.shape)
        y.backward(weights)
        rounded = lambda t: [float(f'{v:.10g}') for v in t.detach().flatten().tolist()]
        cases[name] = {
            'inputs': [{'shape': list(x.shape), 'values': rounded(x)} for x in inputs],
            'shape': list(y.shape),
            'output': rounded(y),
            'gradients': [rounded(x.grad) for x in inputs],
        }
    print('{"torch": ' + json.dumps(torch.__version__) + ', "cases": {')
    print(',\n'.join(json.dumps(name) + ': ' + json.dumps(case) for name, case in cases.items()))
    print('}}')


main()
