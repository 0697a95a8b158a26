"""torch.bool: masks are truth values, uint8 is numbers and bytes."""

import copy
import io
import pickle

import numpy as np
import pytest

import lockstep as torch
from lockstep import nn
from lockstep.nn import functional as F

BOOL, BYTE = torch.bool, torch.uint8


def byte(*numbers):
    return torch.tensor(list(numbers), dtype=BYTE)


def test_what_makes_truth_values():
    x = torch.tensor([0.0, 1.5, float("nan")])
    for mask in (x == 0, x != 0, x < 1, x <= 1, x > 1, x >= 1, x.isnan(), x.isinf(), x.isfinite(), x.logical_not(),
                 x.logical_and(x), torch.logical_or(x, x), torch.logical_xor(x, x), x.bool(), x.to(BOOL), x.any(),
                 x.all(0), torch.tensor(True), torch.tensor([True, False]), torch.zeros(2, dtype=BOOL),
                 torch.full((2,), True), torch.full_like(x, 1, dtype=BOOL), torch.isclose(x, x),
                 torch.from_numpy(np.array([True])), torch.as_tensor(np.array(True)), torch.eye(2, dtype=BOOL),
                 torch.BoolTensor([1, 0]), torch.randint(0, 2, (3,), dtype=BOOL), x.type("torch.BoolTensor")):
        assert mask.dtype == BOOL, mask
    assert str(BOOL) == "torch.bool" and BOOL.itemsize == 1 and not BOOL.is_floating_point
    assert BOOL != BYTE and hash(BOOL) != hash(BYTE) and (x > 0).type() == "torch.BoolTensor"
    assert torch.tensor([0, 2, -1, 256], dtype=BOOL).tolist() == [False, True, True, True]
    assert torch.tensor([0.0, 0.5, float("nan")], dtype=BOOL).tolist() == [False, True, True]
    assert torch.tensor([0, 256, 2**60]).to(BOOL).tolist() == [False, True, True]
    assert torch.tensor([0.0, 0.1, float("nan")]).bool().tolist() == [False, True, True]
    assert torch.full((1,), 2, dtype=BOOL).to(torch.int64).item() == 1
    assert torch.zeros(2, dtype=BOOL).fill_(3).byte().tolist() == [1, 1]
    assert torch.ones(2).to(torch.float16).bool().dtype == BOOL


def test_elements_and_text():
    mask = torch.tensor([True, False])
    assert mask.tolist() == [True, False] and mask[0].item() is True and mask[1].item() is False
    assert repr(mask) == "tensor([ True, False])" and repr(mask[:1]) == "tensor([True])"
    assert repr(mask[0]) == "tensor(True)" and repr(mask[:0]) == "tensor([], dtype=torch.bool)"
    assert repr(byte(1, 0)) == "tensor([1, 0], dtype=torch.uint8)"
    assert bool(mask[0]) and not bool(mask[1]) and int(mask[0]) == 1 and [5, 6][mask[0]] == 6
    assert mask.numpy().dtype == np.bool_ and mask.numpy().tolist() == [True, False]
    assert torch.from_numpy(mask.numpy()).tolist() == [True, False]
    assert np.asarray(torch.zeros(0, dtype=BOOL)).dtype == np.bool_
    shared = np.array([True, False])
    t = torch.from_numpy(shared)
    t[1] = True
    assert shared.tolist() == [True, True]
    assert mask.to(torch.float32).tolist() == [1, 0] and mask.float().half().tolist() == [1, 0]


def test_promotion_is_pytorchs():
    mask, whole, small, real = torch.tensor([True, False]), torch.tensor([2, 3]), byte(2, 3), torch.tensor([0.5, 1])
    for f in (lambda a, b: a + b, lambda a, b: a * b, torch.maximum, lambda a, b: b + a):
        assert f(mask, mask).dtype == BOOL and f(mask, whole).dtype == torch.int64
        assert f(mask, small).dtype == BYTE and f(mask, real).dtype == torch.float32
        assert f(small, whole).dtype == torch.int64 and f(small, small).dtype == BYTE
        assert f(small, torch.tensor(5)).dtype == BYTE and f(mask, torch.tensor(5)).dtype == torch.int64
    assert (mask + mask).tolist() == [True, False] and (mask * mask).tolist() == [True, False]
    assert (mask + True).dtype == BOOL and (mask + 1).tolist() == [2, 1] and (mask * 0.5).tolist() == [0.5, 0]
    assert (mask + 1).dtype == torch.int64 and (1 - mask).tolist() == [0, 1] and (True + mask).tolist() == [True, True]
    assert (mask / mask[0]).dtype == torch.float32 and (mask // 1).dtype == torch.int64
    assert (whole == mask).dtype == BOOL and (mask == 1).tolist() == [True, False]
    assert (mask == 2).tolist() == [False] * 2
    assert (mask < 0.5).tolist() == [False, True] and (mask > -1).all() and (mask == mask).all()
    for f in (lambda: mask - mask, lambda: mask - True, lambda: True - mask, lambda: -mask, lambda: mask // mask,
              lambda: mask.clone().add_(1), lambda: mask.mean(), lambda: mask & 0.5, lambda: real & mask,
              lambda: ~real):
        with pytest.raises((torch.Error, TypeError)):
            f()


def test_reductions():
    mask = torch.tensor([[True, False], [True, True]])
    assert mask.sum().dtype == torch.int64 and mask.sum().item() == 3 and mask.sum(0).tolist() == [2, 1]
    assert mask.cumsum(0).dtype == torch.int64 and mask.prod().item() == 0
    assert mask.max().dtype == BOOL and mask.max().item() is True and mask.amin(1).tolist() == [False, True]
    assert mask.sum(dtype=BOOL).item() is True and mask.sum(dtype=BYTE).dtype == BYTE
    assert byte(200, 100).sum().item() == 300 and byte(200, 100).sum(dtype=BYTE).item() == 44
    assert mask.any().item() is True and byte(0, 2).any().dtype == BYTE and byte(0, 2).any().item() == 1
    assert mask.sort(1).values.tolist() == [[False, True], [True, True]] and mask.unique().tolist() == [False, True]
    assert torch.count_nonzero(mask).item() == 3 and mask.nonzero().shape == (3, 2)


def test_bits_of_whole_numbers_are_bits():
    for make in (byte, lambda *n: torch.tensor(list(n))):
        six, three = make(6), make(3)
        assert (six & three).item() == 2 and (six | three).item() == 7 and (six ^ three).item() == 5
        assert (six & 1).item() == 0 and (six | 1).item() == 7 and (3 ^ six).item() == 5
        assert torch.bitwise_and(six, three).item() == 2 and torch.bitwise_or(six, 1).item() == 7
        six &= three
        assert six.item() == 2 and six.dtype == three.dtype
    assert (~byte(6)).item() == 249 and (~torch.tensor(6)).item() == -7
    assert (torch.tensor(-1) & 2**60 + 1).item() == 2**60 + 1
    mask, other = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    assert (mask & other).tolist() == [True, False, False] and (mask | other).tolist() == [True, True, False]
    assert (mask ^ other).tolist() == [False, True, False] and (~mask).tolist() == [False, False, True]
    assert (mask & True).dtype == BOOL and (mask & 3).tolist() == [1, 1, 0] and (mask ^ byte(2, 2, 2)).dtype == BYTE


def test_sums_of_masks_with_alpha_are_masks():
    mask, other = torch.tensor([True, False]), torch.tensor([False, False])
    for alpha in (2, -1, True):
        for y in (torch.add(other, mask, alpha=alpha), other.clone().add_(mask, alpha=alpha)):
            assert y.dtype == BOOL and y.tolist() == [True, False]
        assert torch.add(other, True, alpha=alpha).tolist() == [True, True]
    for alpha in (0, False):
        y = torch.add(other, mask, alpha=alpha)
        assert y.dtype == BOOL and y.tolist() == [False, False]
        assert torch.add(other, True, alpha=alpha).tolist() == [False, False]
    for b in (mask, True):
        with pytest.raises(torch.Error, match="whole number for bools"):
            torch.add(mask, b, alpha=1.5)
        with pytest.raises(torch.Error, match="bool"):
            torch.sub(mask, b, alpha=2)


def test_bytes_wrap_as_in_pytorch():
    x = byte(255, 1)
    assert (x + 1).tolist() == [0, 2] and (x + x).tolist() == [254, 2] and (0 - x).tolist() == [1, 255]
    assert (x * 2).tolist() == [254, 2] and (x + 1).dtype == BYTE and (255 - x).tolist() == [0, 254]
    assert (-x).tolist() == [1, 255] and (x // 2).tolist() == [127, 0] and (x % 2).tolist() == [1, 1]
    assert (x**2).tolist() == [1, 1] and abs(x).tolist() == [255, 1] and (x / 2).tolist() == [127.5, 0.5]
    assert (x + 0.5).dtype == torch.float32 and x.sum().item() == 256
    assert torch.maximum(x, byte(3, 3)).tolist() == [255, 3]
    x += 2
    assert x.tolist() == [1, 3]


@pytest.mark.parametrize("kind", [BOOL, BYTE])
def test_masks_of_both_types_choose(kind):
    """A uint8 tensor is a mask where PyTorch 1.13 takes one: every number but 0 holds."""
    x, mask = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 1], dtype=kind)
    if kind == BYTE:
        mask = byte(0, 1, 7)
    assert x[mask].tolist() == [2, 3] and x.masked_select(mask).tolist() == [2, 3]
    assert x.masked_fill(mask, 9).tolist() == [1, 9, 9] and torch.where(mask, x, -x).tolist() == [-1, 2, 3]
    y = x.clone()
    y[mask] = 5
    assert y.tolist() == [1, 5, 5]
    assert x.clone().masked_fill_(mask, torch.tensor(0.0)).tolist() == [1, 0, 0]
    attention = nn.MultiheadAttention(4, 2)
    query = torch.randn(3, 1, 4)
    _, weights = attention(query, query, query, key_padding_mask=mask.reshape((1, 3)))
    assert weights[0, :, 1:].abs().sum().item() == 0


def test_masks_in_writes_and_functions():
    mask = torch.tensor([True, False, True])
    mask[1] = 5
    assert mask.tolist() == [True, True, True]
    mask.zero_()
    mask[torch.tensor([0, 2])] = torch.tensor([True, True])
    assert mask.tolist() == [True, False, True]
    mask.copy_(torch.tensor([0.0, 0.3, 0.0]))
    assert mask.tolist() == [False, True, False]
    assert F.pad(mask, (1, 0), value=True).tolist() == [True, False, True, False]
    assert torch.cat([mask, mask]).dtype == BOOL and torch.stack([mask, ~mask]).shape == (2, 3)
    assert torch.cat([mask, torch.tensor([2])]).tolist() == [0, 1, 0, 2]
    assert mask.gather(0, torch.tensor([1])).item() is True and mask.index_select(0, torch.tensor([1])).dtype == BOOL
    assert mask.scatter(0, torch.tensor([0]), True).tolist() == [True, True, False]
    assert mask.reshape((3, 1)).expand(3, 2).t().sum(1).tolist() == [1, 1]
    assert mask.flip(0).tolist() == [False, True, False]
    assert torch.tril(torch.ones(2, 2, dtype=BOOL)).tolist() == [[True, False], [True, True]]
    assert mask.repeat(2).dtype == BOOL and mask.roll(1).tolist() == [False, False, True]
    assert torch.where(mask, True, mask).dtype == BOOL and torch.where(mask, mask, 2).tolist() == [2, 1, 2]
    x = torch.ones(3, requires_grad=True)
    (x * mask).sum().backward()
    assert x.grad.tolist() == [0, 1, 0]
    with pytest.raises(torch.Error, match="floating"):
        mask.requires_grad_()


def test_files_keep_truth_values(tmp_path):
    mask = torch.tensor([True, False])
    torch.save({"mask": mask, "bytes": byte(2, 0)}, tmp_path / "x.pt")
    read = torch.load(tmp_path / "x.pt")
    assert read["mask"].dtype == BOOL and read["bytes"].dtype == BYTE and read["bytes"].tolist() == [2, 0]
    stream = io.BytesIO()
    torch.save(mask, stream)
    stream.seek(0)
    assert torch.load(stream).tolist() == [True, False]
    assert copy.deepcopy(mask).dtype == BOOL and pickle.loads(pickle.dumps(BOOL)) == BOOL

    class Masked(nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.register_buffer("mask", torch.tensor([1, 0], dtype=dtype))

    # Files of before had no type for masks.
    for kind, other in ((BOOL, BYTE), (BYTE, BOOL), (BOOL, BOOL)):
        net = Masked(kind)
        net.mask.zero_()
        net.load_state_dict(Masked(other).state_dict())
        assert net.mask.dtype == kind and net.mask.tolist() == [1, 0]


def test_dlpack_knows_truth_values():
    mask = torch.tensor([True, False])
    assert torch.from_dlpack(mask).dtype == BOOL
    other = pytest.importorskip("torch")
    assert other.from_dlpack(other.tensor([1, 0], dtype=other.uint8)).dtype == other.uint8


def test_transforms_divide_bytes_alone():
    to_tensor = torch.transforms.ToTensor()
    assert to_tensor(np.array([[True, False]])).tolist() == [[[True, False]]]
    assert to_tensor(np.array([[255, 0]], dtype=np.uint8)).tolist() == [[[1, 0]]]
    with pytest.raises(torch.Error, match="expected u8 or f32"):
        torch.transforms.Normalize([0.5], [0.5])(torch.zeros((1, 2, 2), dtype=BOOL))


def test_comparisons_on_several_devices_and_collectives():
    x = torch.arange(8).reshape((8, 1))
    for device in ("cpu:0", "cpu"):
        mask = x.to(device) > 3
        assert mask.dtype == BOOL and (mask & mask).sum().item() == 4 and mask.cpu().tolist()[7] == [True]


def test_bytes_in_functions_of_floating_numbers_and_products():
    x = byte(1, 200)
    assert x.dot(x).item() == (1 + 200 * 200) % 256 and (x.reshape((1, 2)) @ x).tolist() == [65]
    assert x.cumprod(0).tolist() == [1, 200] and torch.tensor(3, dtype=BYTE).cumprod(0).dtype == torch.int64
    assert torch.cosh(byte(1)).item() == pytest.approx(1.5430806)
    assert torch.arange(3.1, dtype=BYTE).tolist() == [0, 1, 2, 3]
    index = torch.tensor([0, 0])
    assert torch.zeros(1, dtype=BOOL).scatter_add(0, index, torch.tensor([True, True])).tolist() == [True]
    assert byte(250).index_add(0, index, byte(5, 5)).tolist() == [4]
