import math

import pytest

import lockstep as torch
from lockstep import nn
from lockstep.cuda.amp import GradScaler
from lockstep.nn import functional as F
from lockstep.utils.data import DataLoader, TensorDataset


def pictures():
    torch.manual_seed(5)
    return TensorDataset(torch.rand(48, 1, 8, 8), torch.randint(0, 4, (48,)))


def model(**options):
    torch.manual_seed(5)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Linear(36, 4))
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, **options)


def weights(net):
    return {name: value.tolist() for name, value in net.state_dict().items()}


@pytest.mark.parametrize("dtype, clips", [("bfloat16", 0), ("float16", 0), ("float16", 0.5)])
def test_a_loop_has_the_bits_of_trainer(dtype, clips):
    net, sgd = model()
    options = {"loss_scaling": {"initial_scale": 1024.0}} if dtype == "float16" else {}
    torch.Trainer(net, sgd, pictures(), batch_size=16, epochs=1, shards=2, dtype=getattr(torch, dtype),
                  clip_norm=clips, **options).train()
    other, own = model()
    scaler = torch.amp.GradScaler(init_scale=1024.0, enabled=dtype == "float16")
    for x, y in DataLoader(pictures(), batch_size=16, shuffle=True).on(other, shards=2):
        with torch.autocast("cpu", dtype=getattr(torch, dtype)):
            outputs = other(x)
            loss = F.cross_entropy(outputs, y)
        assert outputs.dtype == getattr(torch, dtype) and loss.dtype == torch.float32
        scaler.scale(loss).backward()
        if clips:
            scaler.unscale_(own)
            own.clip_grad_norm(clips)
        scaler.step(own)
        scaler.update()
    assert weights(net) == weights(other)


def test_autocast_is_a_mode():
    x = torch.rand(2, 2)
    with torch.autocast("cuda"):
        assert (x @ x).dtype == torch.float16 and torch.is_autocast_enabled()
        with torch.amp.autocast("cpu", enabled=False):
            assert (x @ x).dtype == torch.float32
        assert F.mse_loss(x @ x, x).dtype == torch.float32

    @torch.cuda.amp.autocast(dtype=torch.bfloat16)
    def product(a, b):
        return a @ b

    assert product(x, x).dtype == torch.bfloat16 and not torch.is_autocast_enabled()
    with pytest.raises(torch.Error, match="float64"):
        torch.autocast("cpu", dtype=torch.float64)
    lstm = nn.LSTM(2, 3)
    with torch.autocast("cpu"):
        assert lstm(torch.rand(4, 1, 2))[0].dtype == torch.bfloat16


def test_a_gradient_that_is_not_finite_halves_the_scale():
    p = nn.Parameter(torch.ones(2))
    adam, scaler = torch.optim.Adam([p], lr=0.1), GradScaler(init_scale=64.0, growth_interval=2)
    for factor, scale in [(1.0, 64.0), (math.inf, 32.0), (1.0, 32.0), (1.0, 64.0)]:
        before = p.tolist()
        scaler.scale((p * factor).sum()).backward()
        old = scaler.get_scale()
        scaler.step(adam)
        assert scaler.get_scale() == old  # until update()
        scaler.update()
        assert scaler.get_scale() == scale
        assert (p.tolist() == before) == (factor == math.inf)
    other = GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == {"scale": 64.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2,
                                  "_growth_tracker": 0}


def test_gradients_are_read_and_clipped_unscaled():
    p = nn.Parameter(torch.ones(2))
    sgd, scaler = torch.optim.SGD([p], lr=1.0), GradScaler(1024.0)
    scaler.scale((p * torch.tensor([3.0, 4.0])).sum()).backward()
    assert p.grad.tolist() == [3072, 4096]
    scaler.unscale_(sgd)
    assert p.grad.tolist() == [3, 4]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(sgd)
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 5
    scaler.step(sgd)
    scaler.update()
    assert p.tolist() == pytest.approx([0.4, 0.2], abs=1e-5)
    # A step that the program leaves out.
    scaler.scale(p.sum()).backward()
    scaler.unscale_(sgd)
    sgd.zero_grad()
    scaler.update()
    scaler.scale(p.sum()).backward()
    scaler.step(sgd)
    scaler.update()
    assert p.tolist() == pytest.approx([-0.6, -0.8], abs=1e-5)
    with pytest.raises(RuntimeError, match="without a step"):
        scaler.update()


def test_the_scale_between_two_optimizers_is_the_one_that_was_used():
    p, q = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    first, second = torch.optim.SGD([p], lr=1.0), torch.optim.SGD([q], lr=1.0)
    scaler = GradScaler(1024.0, growth_interval=1)
    scaler.scale(p.sum()).backward()
    scaler.step(first)
    assert scaler.get_scale() == 1024.0
    loss = scaler.scale(q.sum())
    assert loss.item() == scaler.get_scale() == 2048.0
    loss.backward()
    scaler.step(second)
    assert scaler.get_scale() == 2048.0
    scaler.update()
    assert p.item() == q.item() == 0.0 and scaler.get_scale() == 4096.0


@pytest.mark.parametrize("factor,good", [(1.0, 1), (math.inf, 0)])
def test_a_step_before_a_new_scale_does_not_count(factor, good):
    p = nn.Parameter(torch.ones(1))
    sgd, scaler = torch.optim.SGD([p], lr=1.0), GradScaler(64.0, growth_interval=2)
    for f, new_scale in ((1.0, None), (factor, 512.0)):
        scaler.scale((p * f).sum()).backward()
        scaler.step(sgd)
        scaler.update(new_scale)
    assert scaler.state_dict()["scale"] == 512.0 and scaler.state_dict()["_growth_tracker"] == good


@pytest.mark.parametrize("factor", [1.0, math.inf])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_that_is_left_out_leaves_nothing_behind(factor, scaled):
    net = nn.Linear(1, 1, bias=False)
    nn.init.ones_(net.weight)
    sgd, scaler = torch.optim.SGD(net.parameters(), lr=0.25), GradScaler(init_scale=4.0)
    scaler.scale(net(torch.full((1, 1), factor)).sum()).backward()
    scaler.unscale_(sgd)
    net.zero_grad()
    scaler.update()
    loss = net(torch.ones(1, 1)).sum()
    if scaled:
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
    else:
        loss.backward()
        sgd.step()
    assert net.weight.item() == 0.75


def test_sums_with_products_are_of_the_types_of_autocast():
    a, b = torch.rand(2, 2), torch.rand(3, 2, 2)
    with torch.autocast("cpu"):
        assert torch.addmm(a[0], a, a).dtype == a.addmm(a, a, beta=2).dtype == torch.bfloat16
        assert torch.baddbmm(b, b, b).dtype == torch.bfloat16
        assert a.double().addmm(a.double(), a.double()).dtype == torch.float64
    assert torch.addmm(a[0], a, a).dtype == torch.float32
