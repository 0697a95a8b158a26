"""Tensors that are cut over several devices: what PyTorch's programs do with a model's outputs."""

import subprocess
import sys

import pytest

import lockstep as torch
from lockstep import _core


def test_a_batch_on_three_devices():
    # A process of its own: the first use of a device decides how many there are.
    result = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def main():
    torch.set_devices(3)
    x = torch.randn(6, 4)
    net = torch.nn.Linear(4, 5)
    y = net(_core.internal.split_and_load(x, torch.devices()))
    whole = y.to_host()
    assert y.shape == (6, 5) and str(y.detach()) == str(whole)
    assert y.tolist() == whole.tolist() and (y.detach().numpy() == whole.numpy()).all()
    assert torch.allclose((y * 2 + 1).sum(), (whole * 2 + 1).sum())
    assert y.argmax(1).tolist() == whole.argmax(1).tolist()
    (y.softmax(-1) ** 2).sum().backward()
    z = y.detach()
    z += 1
    assert torch.allclose(y.to_host(), whole + 1)  # shares the memory, as in PyTorch
    column = z[:, 0]
    try:
        column += 1
    except torch.Error as error:
        assert "samples" in str(error)
    else:
        assert z.to_host()[:, 0].tolist() == column.tolist()
    with pytest.raises(torch.Error, match="samples|cut"):
        z[0] = 1
    with pytest.raises(ValueError):
        y.detach().numpy()[0] = 1
    w = x.to("cpu:1")
    w[0] = 5
    assert w[0].tolist() == [5] * 4 and w.to("cpu").device == torch.device("cpu", 0)


if __name__ == "__main__":
    main()
