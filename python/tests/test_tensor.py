import lockstep as torch


def test_shape_prints_as_pytorch_prints_it():
    assert repr(torch.randn(2, 3).shape) == "torch.Size([2, 3])"


def test_sum_is_item():
    assert (torch.randn(2, 3) + 1).sum().dim() == 0
