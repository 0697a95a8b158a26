"""Views of views, of tensors that are gone, and of all elements: who sees a write, and whose history is whose."""

import numpy as np
import pytest

import lockstep as torch

F = torch.nn.functional


def leaf():
    return torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("first, second", [
    (lambda x: x.t(), lambda x: x[:, 0]), (lambda x: x.t(), lambda x: x.t()),
    (lambda x: x.permute(0, 1), lambda x: x.t()), (lambda x: x[:, 0], lambda x: x.t()),
    (lambda x: x.t()[:, 0], lambda x: x.t()), (lambda x: x.t().t(), lambda x: x.permute(1, 0)),
])
def test_a_write_with_a_gradient_does_not_pass_by_another_view_of_a_tensor_that_is_gone(first, second):
    """No view keeps elements of before the write: it is refused, as while the tensor is there."""
    def views(x):
        return first(x), second(x)

    for write in (lambda p: p.mul_(3), lambda p: p.__setitem__(0, 7.0), lambda p: p.copy_(p.detach() * leaf().sum())):
        p, q = views(leaf() * 1)
        before = q.tolist()
        with pytest.raises(RuntimeError, match="is a view, or has views"):
            write(p)
        assert q.tolist() == before
    p, q = views(leaf().detach() * 1)
    with pytest.raises(RuntimeError, match="shares its memory"):
        p.data = torch.zeros_like(p)
    del q
    p.mul_(leaf().sum())  # nobody else sees it
    assert p.requires_grad


def test_a_view_of_a_tensor_that_is_gone_is_written_with_a_gradient():
    x = leaf()
    p = (x * 1).t()[0]
    p.mul_(3)
    p.sum().backward()
    assert x.grad.tolist() == [[3, 0, 0], [3, 0, 0]]


@pytest.mark.parametrize("view", [lambda x: x[...], lambda x: x[()], lambda x: x[:], lambda x: x[:, :],
                                  lambda x: x.squeeze(0), lambda x: x.squeeze((0, 1))])
def test_a_view_of_all_elements_is_a_tensor_of_its_own(view):
    a = leaf()
    x = a * 1
    y = view(x)
    assert y is not x
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    (x.sum() + y.sum()).backward()
    assert a.grad.tolist() == [[3] * 3] * 2 and y.grad.tolist() == [[2] * 3] * 2
    plain = torch.zeros(2, 3)
    view(plain).requires_grad_()
    assert not plain.requires_grad
    assert not view(a).is_leaf
    view(plain).add_(1)
    assert plain.sum().item() == 6
    t = torch.zeros(3, 2).t()
    view(t).add_(1)
    assert t.sum().item() == 6


@pytest.mark.parametrize("key", [True, (True, 0), (0, True), (..., True), (None, True)])
def test_true_as_an_index_copies(key):
    x = torch.zeros(2, 3)
    x[key].add_(1)
    assert x.sum().item() == 0


@pytest.mark.parametrize("keepdim", [False, True])
def test_kthvalue_is_a_tensor_of_its_own(keepdim):
    for part in torch.tensor([[3.0, 1.0, 2.0], [9.0, 8.0, 7.0]]).kthvalue(2, 1, keepdim):
        assert part.is_contiguous() and part.contiguous() is part
        part.contiguous().mul_(2)
        part.view(-1).add_(1)
        assert part.flatten().tolist() in ([5, 17], [5, 3])


@pytest.mark.parametrize("dtype, digits", [(torch.float64, 53), (torch.float32, 24), (torch.bfloat16, 8),
                                           (torch.float16, 11)])
def test_limits_of_hardsigmoid_and_hardswish(dtype, digits):
    """The numbers beside 3 are on the right side of it."""
    step = 2.0 ** (2 - digits)
    x = torch.tensor([3 - step, 3.0, 3 + step, -3 + step, -3.0, -3 - step], dtype=dtype, requires_grad=True)
    F.hardsigmoid(x).sum().backward()
    assert [g > 0 for g in x.grad.tolist()] == [True, False, False, True, False, False]
    x.grad = None
    F.hardswish(x).sum().backward()
    assert x.grad[2].item() == 1 and x.grad[5].item() == 0


def test_margin_losses_of_0_have_no_gradient():
    x = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    F.multi_margin_loss(x, torch.tensor([0])).backward()
    F.multilabel_margin_loss(x, torch.tensor([[0, -1, -1]])).backward()
    assert x.grad.tolist() == [[0, 0, 0]]
