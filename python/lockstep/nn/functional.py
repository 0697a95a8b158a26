"""Functions that layers are made of: torch.nn.functional.

>>> import lockstep as torch
>>> import lockstep.nn.functional as F
>>> F.relu(torch.tensor([-1.0, 2.0]))
tensor([0., 2.])
"""

import math

from .. import _core
from ..grad_mode import no_grad
from .._core.functional import *  # noqa: F401,F403
from .._core.functional import _instance_norm, softmax


def _over_channels(values, x):
    """Reshape values of channels, [C], to broadcast with x, [N, C, ..]."""
    return values.reshape([1, -1] + [1] * (x.dim() - 2))


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Normalize each channel of [N, C, ..] by the batch's statistics, or by the running ones.

    With `training`, the running statistics, unless they are None, move towards the batch's by the fraction `momentum`.
    A cut batch counts as a whole, while nn.BatchNorm2d normalizes each shard by its own statistics.
    """
    if input.dim() < 2:
        raise _core.Error(f"batch_norm: input is {list(input.shape)}, expected [N, C, ..]")
    # Computes statistics, and the results, in float32 at least.
    x = input if input.dtype == _core.float64 else input.float()
    if training:
        axes = [0] + list(range(2, x.dim()))
        mean = x.mean(axes)
        var = x.var(axes, correction=0)
        if running_mean is not None:
            count = input.numel() // input.size(1)
            if count < 2:
                raise ValueError(f"batch_norm: {count} value for each channel, expected more than 1 when training")

            def move_statistics():
                with no_grad():
                    running_mean.copy_(running_mean * (1 - momentum) + mean.detach() * momentum)
                    running_var.copy_(running_var * (1 - momentum) + var.detach() * (momentum * count / (count - 1)))

            _core._autograd.once(move_statistics)
    elif running_mean is None or running_var is None:
        raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
    else:
        mean, var = running_mean, running_var
    y = (x - _over_channels(mean, x)) * _over_channels((var + eps).rsqrt(), x)
    if weight is not None:
        y = y * _over_channels(weight, x)
    return (y if bias is None else y + _over_channels(bias, x)).to(input.dtype)


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                  momentum=0.1, eps=1e-5):
    """Normalize each channel of each sample of [N, C, ..] by its own statistics."""
    if running_mean is not None or running_var is not None or not use_input_stats:
        raise _core.Error("instance_norm: running statistics, expected none: nn.InstanceNorm2d has them")
    return _instance_norm(input, weight, bias, eps)


def affine_grid(theta, size, align_corners=False):
    """Return the positions [N, H, W, 2] for grid_sample() from matrices [N, 2, 3]; size is [N, C, H, W]."""
    if len(size) != 4:
        raise _core.Error(f"affine_grid: size is {list(size)}, expected [N, C, H, W]")
    n, _, height, width = size

    def line(count):
        if align_corners:
            return _core.linspace(-1, 1, count, dtype=theta.dtype) if count > 1 else _core.zeros(1, dtype=theta.dtype)
        return (2 * _core.arange(count).to(theta.dtype) + 1) / count - 1

    x, y = line(width).reshape(1, width).expand(height, width), line(height).reshape(height, 1).expand(height, width)
    places = _core.stack([x, y, _core.ones(height, width, dtype=theta.dtype)], -1).reshape(1, height * width, 3)
    return (places.to(theta.device) @ theta.transpose(1, 2)).reshape(n, height, width, 2)


def bilinear(input1, input2, weight, bias=None):
    """Return input1 weight input2 + bias: [.., a], [.., b], [out, a, b] -> [.., out]."""
    y = _core.einsum("...a,oab,...b->...o", input1, weight, input2)
    return y if bias is None else y + bias


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """Draw from the classes of `logits`, softly, or as one class (Jang et al. 2017)."""
    # Of half types in float32: 1e-20 would be 0 in float16, and the noise infinite.
    wide = logits.float() if logits.dtype in (_core.float16, _core.bfloat16) else logits
    uniform = _core.rand_like(wide).clamp(min=1e-20)
    soft = softmax((wide - (-uniform.log()).log()) / tau, dim=dim).to(logits.dtype)
    if not hard:
        return soft
    chosen = soft.max(dim, keepdim=True)[1]
    one = _core.zeros_like(soft).scatter(dim, chosen, 1.0)
    return one - soft.detach() + soft


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False,
                                      reduction="mean"):
    """Return max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    distance = distance_function or _core.functional.pairwise_distance
    far = distance(anchor, negative)
    if swap:
        far = _core.minimum(far, distance(positive, negative))
    losses = (distance(anchor, positive) - far + margin).clamp(min=0)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}, expected 'none', 'mean', or 'sum'")
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """Divide each element of [N, C, ..] by (k + alpha mean of the squares of `size` channels around it)^beta."""
    if input.dim() < 3:
        raise ValueError(f"local_response_norm: {list(input.shape)}, expected [N, C, ..] of at least three axes")
    squares = input.square().reshape([input.size(0), 1, input.size(1), math.prod(input.shape[2:])])
    framed = _core.functional.pad(squares, [0, 0, size // 2, (size - 1) // 2])
    means = _core.functional.avg_pool2d(framed, (size, 1), stride=1).reshape(list(input.shape))
    return input / (means * alpha + k).pow(beta)



