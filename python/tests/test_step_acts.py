"""What a program may do between backward() and step(): the step is PyTorch's, or the act is an error.

The rows of docs/python.md about gradients are left out: hooks see the sum, freezing drops the gradient, and a step
clears it.
"""

import copy
import io
import warnings

import pytest

import lockstep

theirs = pytest.importorskip("torch", reason="PyTorch is not installed: nothing to compare with")


def save_and_load(torch, net, optimizer):
    memory = io.BytesIO()
    torch.save(net.state_dict(), memory)
    memory.seek(0)
    net.load_state_dict(torch.load(memory))


def add_to_weight(torch, net, optimizer):
    with torch.no_grad():
        net.weight.add_(1)


def without_gradient(torch, net, optimizer):
    with torch.no_grad():
        net(torch.ones(1, 2))


def double_all(torch, net, optimizer):
    values = torch.nn.utils.parameters_to_vector(net.parameters()) * 2
    torch.nn.utils.vector_to_parameters(values, net.parameters())


ACTS = {
    "to": lambda torch, net, optimizer: net.to("cpu"),
    "cpu": lambda torch, net, optimizer: net.cpu(),
    "to_dtype": lambda torch, net, optimizer: net.to(torch.float32),
    "double": lambda torch, net, optimizer: net.double(),
    "double_float": lambda torch, net, optimizer: net.double().float(),
    "load": lambda torch, net, optimizer: net.load_state_dict({k: 2 * v for k, v in net.state_dict().items()}),
    "save_load": save_and_load,
    "init": lambda torch, net, optimizer: torch.nn.init.constant_(net.weight, 3.0),
    "data": lambda torch, net, optimizer: setattr(net.weight, "data", torch.tensor([[5.0, 6.0]])),
    "data_copy": lambda torch, net, optimizer: net.weight.data.copy_(torch.tensor([[5.0, 6.0]])),
    "add": add_to_weight,
    "vector": double_all,
    "modes": lambda torch, net, optimizer: net.eval().train(),
    "copy": lambda torch, net, optimizer: copy.deepcopy(net),
    "state": lambda torch, net, optimizer: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),
    "optimizer": lambda torch, net, optimizer: torch.optim.SGD(net.parameters(), lr=0.5),
    "group": lambda torch, net, optimizer: optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]}),
    "rate": lambda torch, net, optimizer: optimizer.param_groups[0].update(lr=0.2),
    "schedule": lambda torch, net, optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1),
    "forward": without_gradient,
    "gradient": lambda torch, net, optimizer: setattr(net.weight, "grad", net.weight.grad * 0.5),
    "no_gradient": lambda torch, net, optimizer: setattr(net.weight, "grad", None),
    "clip": lambda torch, net, optimizer: torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0),
    "sequential": lambda torch, net, optimizer: torch.nn.Sequential(net),
    "average": lambda torch, net, optimizer: torch.optim.swa_utils.AveragedModel(net).update_parameters(net),
}


def program(torch, act, name, steps):
    net = torch.nn.Linear(2, 1)
    net.load_state_dict({"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.tensor([0.5])})
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.1)
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).pow(2).sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    net(x).pow(2).sum().backward()
    act(torch, net, optimizer)
    gradient = net.weight.grad
    values = [[] if gradient is None else gradient.flatten().tolist()]
    optimizer.step()
    return [*values, net.weight.flatten().tolist(), net.bias.tolist(), str(net.weight.dtype)]


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("act", ACTS)
def test_a_step_finds_its_gradient(act, name, steps):
    if steps and "double" in act:
        # PyTorch keeps Adam's state in float32, and fails in the step.
        with pytest.raises(lockstep.Error, match="an optimizer has parameter weight, .*: move the module first"):
            program(lockstep, ACTS[act], name, steps)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        *expected, dtype = program(theirs, ACTS[act], name, steps)
    *found, found_dtype = program(lockstep, ACTS[act], name, steps)
    assert found_dtype.split(".")[1] == dtype.split(".")[1]
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-5, abs=1e-6)
