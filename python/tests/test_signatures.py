"""What functions and layers say of themselves: signatures, docstrings, and the errors of wrong calls."""

import inspect

import lockstep as torch
import lockstep.nn.functional as F
import pytest
from lockstep import nn, optim


def public(module):
    for name, value in vars(module).items():
        of_package = str(getattr(value, "__module__", "")).startswith("lockstep")
        if of_package and callable(value) and not name.startswith("_"):
            yield f"{module.__name__}.{name}", value


@pytest.mark.parametrize("module", [torch, nn, F, optim, optim.lr_scheduler, torch.autograd, torch.distributed])
def test_every_public_name_has_a_docstring(module):
    assert [name for name, value in public(module) if not (value.__doc__ or "").strip()] == []


@pytest.mark.parametrize("module", [nn, F, optim])
def test_every_layer_and_function_has_a_signature_and_a_text(module):
    without_signature, without_text = [], []
    for name, value in public(module):
        try:
            inspect.signature(value)
        except ValueError:
            if "Overloaded function." not in value.__doc__:
                without_signature.append(name)
        text = value.__doc__ or ""
        if text.startswith(value.__name__ + "("):  # as pybind11 begins
            text = text.partition("\n\n")[2]
        if not text.strip():
            without_text.append(name)
    assert without_signature == [] and without_text == []


def test_signatures_have_names_and_defaults():
    assert str(inspect.signature(nn.Linear)) == "(in_features, out_features, bias=True, device=None, dtype=None)"
    parameters = inspect.signature(nn.Conv2d).parameters
    assert list(parameters)[:4] == ["in_channels", "out_channels", "kernel_size", "stride"]
    assert parameters["padding_mode"].default == "zeros"
    assert parameters["in_channels"].default is inspect.Parameter.empty
    assert list(inspect.signature(F.conv2d).parameters)[:3] == ["input", "weight", "bias"]

    class Net(nn.Module):
        def __init__(self, width, depth=2):
            super().__init__()

    assert str(inspect.signature(Net)) == "(width, depth=2)"
    assert "Images [N, C, H, W]" in nn.Conv2d.__doc__ and "[N, O, H', W']" in F.conv2d.__doc__


@pytest.mark.parametrize("call, message", [
    (lambda: nn.Conv2d(1, 2, 3, pading=1),
     "Conv2d() got an unexpected keyword argument 'pading'. Did you mean 'padding'?"),
    (lambda: nn.Linear(1), "Linear() missing 1 required positional argument: 'out_features'"),
    (lambda: nn.Linear(), "Linear() missing 2 required positional arguments: 'in_features' and 'out_features'"),
    (lambda: nn.Linear(1, 2, True, None, None, 5),
     "Linear() takes from 2 to 5 positional arguments but 6 were given"),
    (lambda: nn.Linear(1, 2, in_features=1), "Linear() got multiple values for argument 'in_features'"),
    (lambda: nn.Linear("1", 2), "Linear(): argument 'in_features' (position 1) must be int, not str"),
    (lambda: F.conv2d(torch.ones(1000, 1), "a"), "conv2d(): argument 'weight' (position 2) must be Tensor, not str"),
    (lambda: torch.ones(1000).sum(foo=1), "sum() got an unexpected keyword argument 'foo'"),
    (lambda: torch.ones(1000).relu(1), "relu() takes 1 positional argument but 2 were given"),
    (lambda: optim.SGD([nn.Parameter(torch.ones(1))], momentun=0.9), "unexpected keyword argument 'momentun'"),
])
def test_wrong_calls_are_errors_in_words_of_python(call, message):
    with pytest.raises(TypeError) as error:
        call()
    assert message in str(error.value)


def test_no_error_prints_a_tensor():
    x = torch.full((7,), 12345.0)
    for call in (lambda: torch.add(x, x, out=x), lambda: torch.cat(x, x), lambda: x.sum(dim="a"), lambda: x.view("a"),
                 lambda: F.linear(x, [1, 2]), lambda: nn.Linear(x, x), lambda: torch.zeros(x, "a"),
                 lambda: x.reshape(x, x), lambda: torch.full(x, x, x, x)):
        with pytest.raises(Exception) as error:
            call()
        assert "12345" not in str(error.value), str(error.value)


def test_errors_name_the_layer():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.ReLU(), nn.Linear(5, 6))

        def forward(self, x):
            return self.inner(x)

    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 7))

        def forward(self, x):
            return F.linear(x, self.weight)

    x = torch.ones(3, 4)
    for net, message in (
            (nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(9, 2)), "2: linear: input has 4 features"),
            (nn.Sequential(nn.ReLU(), Block()), "1.inner.1: linear: input has 4 features, weight expects 5"),
            (nn.Sequential(nn.ReLU(), Functional()), "1: linear: input has 4 features, weight expects 7"),
            (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(3), nn.ReLU()), "1: batch_norm: input has 4 channels"),
            (nn.Linear(9, 2), "linear: input has 4 features")):
        with pytest.raises(torch.Error) as error:
            net.to("cpu:0")(x)
        assert str(error.value).startswith(message)
        assert type(error.value) is torch.Error and torch.Error.__module__ == "lockstep"
