"""Arrays that share memory with tensors: a program may write them as soon as a call has returned."""

import numpy as np
import pytest

import lockstep as torch
from lockstep import nn
from lockstep.nn import functional as F

torch.set_devices(2)


def busy(device):
    """Keeps the device's lane from what comes next for a while."""
    with torch.no_grad():
        w = torch.rand(700, 700, device=device)
        for _ in range(3):
            w = w @ w
        return w


class Square(nn.Module):
    def forward(self, x):
        return x * x


def calls_with_arrays():
    device = torch.devices()[0]
    w = torch.ones(64, 64, device=device)
    net = nn.Linear(64, 64)
    nn.init.ones_(net.weight)
    nn.init.zeros_(net.bias)
    net.to(device)
    parallel = nn.DataParallel(Square())
    parallel_linear = nn.DataParallel(nn.Linear(64, 64))
    yield "linear", lambda x: F.linear(x, net.weight, net.bias)
    yield "net", net
    yield "matmul", lambda x: x @ w
    yield "+", lambda x: x + w
    yield "reflected", lambda x: w - x
    yield "parameter", lambda x: x * net.weight
    yield "cat", lambda x: torch.cat([w, x])
    yield "stack", lambda x: torch.stack([w, x])
    yield "where", lambda x: torch.where(w > 0, x, w)
    yield "mse_loss", lambda x: F.mse_loss(w, x, reduction="none")
    yield "mse_loss of x", lambda x: F.mse_loss(x, w, reduction="none")
    yield "smooth_l1_loss", lambda x: F.smooth_l1_loss(w, x, reduction="none")
    yield "einsum", lambda x: torch.einsum("ij,jk->ik", x, w)
    yield "masked_fill", lambda x: w.masked_fill(x == 1, 5.0)
    yield "to", lambda x: x.to(torch.devices()[1], non_blocking=True)
    yield "to and *", lambda x: x.to(torch.devices()[1], non_blocking=True) * 2
    yield "view", lambda x: x[3:40].t() @ w[:37]
    yield "copy_", lambda x: torch.zeros(64, 64, device=device).copy_(x, non_blocking=True)
    yield "x[:] =", lambda x: [d := torch.zeros(64, 64, device=device), d.__setitem__(slice(None), x)][0]
    yield "add_", lambda x: torch.zeros(64, 64, device=device).add_(x)
    yield "DataParallel", parallel
    yield "DataParallel of a layer", parallel_linear
    yield "cut", lambda x: torch.gather(torch._core.internal.split_and_load(x, torch.devices()) * 2)
    yield "layer_norm", lambda x: F.layer_norm(x, (64,), net.bias, net.bias)
    yield "data", lambda x: [p := nn.Parameter(torch.zeros(64, 64)), setattr(p, "data", x), p.data * 1][2]
    yield "grad", lambda x: [p := nn.Parameter(torch.zeros(64, 64)), setattr(p, "grad", x), p.grad * 1][2]


@pytest.mark.parametrize("source", ["from_numpy", "numpy", "dlpack", "as_tensor", "to_dlpack"])
def test_an_array_may_be_filled_anew_as_soon_as_a_call_has_returned(source):
    with torch.no_grad():
        for name, f in calls_with_arrays():
            if source in ("from_numpy", "as_tensor"):
                array = np.ones((64, 64), np.float32)
                x = torch.from_numpy(array) if source == "from_numpy" else torch.as_tensor(array)
            elif source == "dlpack":
                array = np.ones((64, 64), np.float32)
                x = torch.from_dlpack(array)
            else:
                x = torch.ones(64, 64)
                array = x.numpy() if source == "numpy" else np.from_dlpack(x)
                if not array.flags.writeable:
                    array = x.numpy()
            expected = f(torch.ones(64, 64)).to_host()
            for device in torch.devices():
                busy(device)
            y = f(x)
            array[:] = 7
            assert torch.equal(y.to_host(), expected), name


def test_an_array_of_a_tensor_that_tasks_still_read_may_be_written():
    device = torch.devices()[0]
    w, x = torch.ones(300, 300, device=device), torch.ones(300, 300)
    busy(device)
    y = x @ w
    x.numpy()[:] = 7
    assert torch.equal(y.to_host(), torch.full((300, 300), 300.0))


def test_training_with_one_array_for_all_batches():
    def weights(fresh):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        model = nn.DataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
        random = np.random.RandomState(0)
        buffer = np.zeros((32, 64), np.float32)
        shared = torch.from_numpy(buffer)
        for _ in range(8):
            buffer[:] = random.rand(32, 64)
            x = torch.from_numpy(buffer.copy()) if fresh else shared
            model(x).square().mean().backward()
            optimizer.step()
        return [p.tolist() for p in net.parameters()]

    assert weights(True) == weights(False)
