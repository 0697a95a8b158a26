"""Options beyond all use, one after the other in each place of each function: an error or a result, never a crash, a
wrapped product, or a loop without end."""

import pytest

import lockstep as torch
from lockstep import nn
from lockstep.nn import functional as F

EXTREME = [-(2**63), -(2**62), -(2**32), -(2**31), -1, 0, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 3 * 2**30, 2**61, 2**62,
           2**62 + 1, 2**63 - 1]

X = torch.zeros(1, 4, 5, 5)
LINE = torch.zeros(1, 4, 5)
CUBE = torch.zeros(1, 4, 3, 3, 3)
KERNEL = torch.zeros(4, 4, 2, 2)
WHOLE = torch.tensor([1, 2])

# A call for each option n.
CALLS = {
    "pixel_shuffle": lambda n: F.pixel_shuffle(X, n),
    "pixel_unshuffle": lambda n: F.pixel_unshuffle(X, n),
    "unfold kernel": lambda n: F.unfold(X, n),
    "unfold dilation": lambda n: F.unfold(X, 2, dilation=n),
    "unfold padding": lambda n: F.unfold(X, 2, padding=n),
    "unfold stride": lambda n: F.unfold(X, 2, stride=n),
    "fold output": lambda n: F.fold(torch.zeros(1, 4, 4), (n, n), 2),
    "fold output of one": lambda n: F.fold(torch.zeros(1, 4, 4), (n, 3), 2),
    "fold kernel": lambda n: F.fold(torch.zeros(1, 4, 4), (3, 3), n),
    "fold dilation": lambda n: F.fold(torch.zeros(1, 4, 4), (3, 3), 2, dilation=n),
    "fold padding": lambda n: F.fold(torch.zeros(1, 4, 4), (3, 3), 2, padding=n),
    "fold stride": lambda n: F.fold(torch.zeros(1, 4, 4), (3, 3), 2, stride=n),
    "conv2d stride": lambda n: F.conv2d(X, KERNEL, stride=n),
    "conv2d padding": lambda n: F.conv2d(X, KERNEL, padding=n),
    "conv2d dilation": lambda n: F.conv2d(X, KERNEL, dilation=n),
    "conv2d same": lambda n: F.conv2d(X, KERNEL, padding="same", dilation=n),
    "conv2d groups": lambda n: F.conv2d(X, KERNEL, groups=n),
    "conv1d padding": lambda n: F.conv1d(LINE, KERNEL[:, :, 0], padding=n),
    "conv1d dilation": lambda n: F.conv1d(LINE, KERNEL[:, :, 0], dilation=n),
    "conv1d stride": lambda n: F.conv1d(LINE, KERNEL[:, :, 0], stride=n),
    "conv3d padding": lambda n: F.conv3d(CUBE, torch.zeros(4, 4, 2, 2, 2), padding=n),
    "conv3d dilation": lambda n: F.conv3d(CUBE, torch.zeros(4, 4, 2, 2, 2), dilation=n),
    "conv3d stride": lambda n: F.conv3d(CUBE, torch.zeros(4, 4, 2, 2, 2), stride=n),
    "conv_transpose2d stride": lambda n: F.conv_transpose2d(X, KERNEL, stride=n),
    "conv_transpose2d padding": lambda n: F.conv_transpose2d(X, KERNEL, padding=n),
    "conv_transpose2d dilation": lambda n: F.conv_transpose2d(X, KERNEL, dilation=n),
    "conv_transpose2d output_padding": lambda n: F.conv_transpose2d(X, KERNEL, output_padding=n),
    "conv_transpose2d both": lambda n: F.conv_transpose2d(X, KERNEL, stride=n, output_padding=n - 1),
    "conv_transpose2d groups": lambda n: F.conv_transpose2d(X, KERNEL, groups=n),
    "max_pool2d kernel": lambda n: F.max_pool2d(X, n),
    "max_pool2d stride": lambda n: F.max_pool2d(X, 2, stride=n),
    "max_pool2d padding": lambda n: F.max_pool2d(X, 2, padding=n),
    "max_pool2d dilation": lambda n: F.max_pool2d(X, 2, dilation=n),
    "max_pool2d kernel and padding": lambda n: F.max_pool2d(X, n, padding=n // 2),
    "max_pool2d ceil": lambda n: F.max_pool2d(X, 2, stride=n, ceil_mode=True),
    "max_pool1d dilation": lambda n: F.max_pool1d(LINE, 2, dilation=n),
    "max_pool3d kernel": lambda n: F.max_pool3d(CUBE, n),
    "max_pool3d stride": lambda n: F.max_pool3d(CUBE, 2, stride=n),
    "avg_pool1d kernel": lambda n: F.avg_pool1d(LINE, n),
    "avg_pool2d kernel": lambda n: F.avg_pool2d(X, n),
    "avg_pool2d stride": lambda n: F.avg_pool2d(X, 2, stride=n),
    "avg_pool2d padding": lambda n: F.avg_pool2d(X, 2, padding=n),
    "avg_pool2d kernel and padding": lambda n: F.avg_pool2d(X, n, padding=n // 2),
    "avg_pool3d kernel": lambda n: F.avg_pool3d(CUBE, n),
    "lp_pool2d kernel": lambda n: F.lp_pool2d(X, 2, n),
    "lp_pool2d stride": lambda n: F.lp_pool2d(X, 2, 2, stride=n),
    "adaptive_avg_pool2d": lambda n: F.adaptive_avg_pool2d(X, n),
    "adaptive_max_pool2d": lambda n: F.adaptive_max_pool2d(X, n),
    "adaptive_avg_pool1d": lambda n: F.adaptive_avg_pool1d(LINE, n),
    "interpolate size": lambda n: F.interpolate(X, size=n),
    "interpolate factor": lambda n: F.interpolate(X, scale_factor=n),
    "interpolate bilinear": lambda n: F.interpolate(X, size=n, mode="bilinear"),
    "pad": lambda n: F.pad(X, (n, 0)),
    "pad both": lambda n: F.pad(X, (n, n)),
    "pad circular": lambda n: F.pad(X, (n, n), mode="circular"),
    "pad replicate": lambda n: F.pad(X, (n, 0, 0, 0), mode="replicate"),
    "pad reflect": lambda n: F.pad(X, (n, 0, 0, 0), mode="reflect"),
    "zeros": lambda n: torch.zeros(n),
    "zeros of two": lambda n: torch.zeros(n, n),
    "zeros with none": lambda n: torch.zeros(n, 0),
    "zeros of bytes": lambda n: torch.zeros(n, dtype=torch.uint8),
    "full": lambda n: torch.full((n,), 1),
    "rand": lambda n: torch.rand(n),
    "randperm": lambda n: torch.randperm(n),
    "randint": lambda n: torch.randint(5, (n,)),
    "randint low": lambda n: torch.randint(n, 2**63 - 1, (2,)),
    "arange": lambda n: torch.arange(n),
    "arange from": lambda n: torch.arange(n, 5),
    "arange step": lambda n: torch.arange(0, 5, n),
    "linspace": lambda n: torch.linspace(0, 1, n),
    "eye": lambda n: torch.eye(n),
    "eye with columns": lambda n: torch.eye(2, n),
    "one_hot": lambda n: F.one_hot(WHOLE, n),
    "one_hot of": lambda n: F.one_hot(torch.tensor([n])),
    "bincount": lambda n: torch.bincount(WHOLE, minlength=n),
    "repeat": lambda n: X.repeat(n, 1, 1, 1),
    "repeat twice": lambda n: X.repeat(n, n, 1, 1),
    "tile": lambda n: torch.tile(X, (n, n)),
    "repeat_interleave": lambda n: X.repeat_interleave(n, 0),
    "repeat_interleave of counts": lambda n: WHOLE.repeat_interleave(torch.tensor([n, 1])),
    "expand": lambda n: X.expand(n, 4, 5, 5),
    "reshape": lambda n: X.reshape(n, -1),
    "reshape of two": lambda n: X.reshape(n, n),
    "view": lambda n: X.view(n, 100),
    "unflatten": lambda n: X.unflatten(1, (n, 2)),
    "unflatten of two": lambda n: X.unflatten(1, (n, n)),
    "narrow": lambda n: X.narrow(1, n, 1),
    "narrow length": lambda n: X.narrow(1, 1, n),
    "select": lambda n: X.select(1, n),
    "index": lambda n: X[0, n],
    "slice": lambda n: X[:, n:],
    "slice end": lambda n: X[:, :n],
    "slice step": lambda n: X[:, 1:n:n],
    "slice steps": lambda n: X[:, ::n],
    "split": lambda n: X.split(n, 1),
    "split sizes": lambda n: X.split([n, 4 - n], 1),
    "chunk": lambda n: X.chunk(n, 1),
    "roll": lambda n: X.roll(n, 1),
    "roll all": lambda n: X.roll(n),
    "flip": lambda n: X.flip(n),
    "transpose": lambda n: X.transpose(0, n),
    "squeeze": lambda n: X.squeeze(n),
    "unsqueeze": lambda n: X.unsqueeze(n),
    "flatten": lambda n: X.flatten(n),
    "sum": lambda n: X.sum(n),
    "cumsum": lambda n: X.cumsum(n),
    "softmax": lambda n: X.softmax(n),
    "topk": lambda n: X.topk(n),
    "triu": lambda n: X.triu(n),
    "tril": lambda n: X[0, 0].tril(n),
    "diagonal": lambda n: torch.diag(X[0, 0], n),
    "diff": lambda n: torch.diff(X, n),
    "index_select": lambda n: X.index_select(1, torch.tensor([n])).tolist(),
    "gather": lambda n: WHOLE.gather(0, torch.tensor([n])).tolist(),
    "scatter": lambda n: WHOLE.scatter(0, torch.tensor([n]), 1).tolist(),
    "take": lambda n: WHOLE[torch.tensor([n])].tolist(),
    "embedding": lambda n: F.embedding(torch.tensor([n]), torch.zeros(3, 2)).tolist(),
    "embedding padding": lambda n: F.embedding(WHOLE, torch.zeros(3, 2), padding_idx=n),
    "cross_entropy": lambda n: F.cross_entropy(torch.zeros(1, 3), torch.tensor([n])).item(),
    "group_norm": lambda n: F.group_norm(X, n),
    "multinomial": lambda n: torch.multinomial(torch.ones(3), n, replacement=True),
    "Linear": lambda n: nn.Linear(n, n)(torch.zeros(1, 1)),
    "Conv2d": lambda n: nn.Conv2d(n, 2, n)(X),
    "Embedding": lambda n: nn.Embedding(n, n)(WHOLE),
    "Upsample": lambda n: nn.Upsample(scale_factor=n)(X),
    "PixelShuffle": lambda n: nn.PixelShuffle(n)(X),
    "blank": lambda n: F.ctc_loss(torch.zeros(4, 1, 3), torch.tensor([[1]]), torch.tensor([4]), torch.tensor([1]),
                                  blank=n),
}
# A result that really has so many elements.
FILLS = {"zeros of bytes", "pad", "pad both", "pad replicate", "repeat", "repeat_interleave of counts", "eye",
         "eye with columns", "arange", "arange from", "linspace", "zeros", "full", "rand", "randperm", "randint",
         "one_hot", "one_hot of", "bincount", "interpolate size", "interpolate factor", "interpolate bilinear",
         "Linear", "Upsample"}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_or_a_result(name):
    for n in EXTREME:
        if name in FILLS and abs(n) in (2**31, 2**31 - 1, 2**32, 2**32 + 1, 3 * 2**30):
            continue  # gigabytes
        try:
            result = CALLS[name](n)
        except (torch.Error, TypeError, ValueError, IndexError, OverflowError, MemoryError, RuntimeError) as error:
            assert str(error)
            continue
        if isinstance(result, torch.Tensor):
            assert all(0 <= extent < 2**63 for extent in result.shape), (n, result.shape)
            assert result.numel() < 2**33, (n, result.shape)


def test_products_that_would_wrap_to_0():
    with pytest.raises(torch.Error, match="pixel_shuffle"):
        F.pixel_shuffle(X, 2**32)
    with pytest.raises(torch.Error, match="more elements than can be counted"):
        torch.zeros(2**32, 2**32)
    with pytest.raises(torch.Error):
        F.fold(torch.zeros(1, 4, 4), (3, 3), 2**32)
