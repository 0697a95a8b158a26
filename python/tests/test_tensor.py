import numpy as np
import pytest

import lockstep as torch


def test_shape_prints_as_pytorch_prints_it():
    assert repr(torch.randn(2, 3).shape) == "torch.Size([2, 3])"


def test_numbers_meet_tensors_as_in_pytorch():
    i = torch.arange(5)
    assert (i * 2).dtype == torch.int64 and (i * 2.5).dtype == torch.float32
    assert (2**i).tolist() == [1, 2, 4, 8, 16] and (1 - i).tolist() == [1, 0, -1, -2, -3]
    assert (7 // (i + 1)).tolist() == [7, 3, 2, 1, 1] and (i % 3).tolist() == [0, 1, 2, 0, 1]
    assert ((i > 2) * 2).dtype == torch.int64
    assert (i + 2**60).tolist()[4] == 2**60 + 4
    assert (i > 2.5).tolist() == [0, 0, 0, 1, 1]
    assert (np.float64(2) * i).dtype == torch.float32


def test_write_in_place():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    also_y = y
    y += x
    assert also_y is y
    y.sum().backward()
    assert x.grad.tolist() == [3, 3]
    with pytest.raises(torch.Error, match="leaf"):
        x += 1
    i = torch.arange(3)
    with pytest.raises(torch.Error, match="expected i64"):
        i += 0.5


def test_array_shares_memory():
    a = np.zeros((2, 3), np.float32)
    t = torch.from_numpy(a)
    t += 1
    assert a.sum() == t.numpy().sum() == 6
    t.numpy()[0, 0] = 5
    assert a[0, 0] == 5
    with pytest.raises(torch.Error, match="must not be written|copy of an array"):
        t = torch.from_numpy(np.zeros(3, np.int32))
        t += 1


def test_no_grad_is_a_scope_and_a_decorator():
    @torch.no_grad()
    def mode():
        return torch.is_grad_enabled()

    with torch.no_grad():
        with torch.enable_grad():
            assert torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
    assert not mode() and torch.is_grad_enabled()
