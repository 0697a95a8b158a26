import importlib

import pytest

import lockstep as torch


def test_submodules_are_reachable_by_attribute():
    for name, also in [
            ("utils.data.distributed.DistributedSampler", "utils.data.DistributedSampler"),
            ("utils.data.dataloader.DataLoader", "utils.data.DataLoader"),
            ("utils.data.dataset.Dataset", "utils.data.Dataset"), ("utils.data.sampler.Sampler", "utils.data.Sampler"),
            ("nn.parameter.Parameter", "nn.Parameter"), ("nn.modules.Linear", "nn.Linear"),
            ("nn.modules.conv.Conv2d", "nn.Conv2d"), ("nn.modules.module.Module", "nn.Module"),
            ("nn.parallel.distributed.DistributedDataParallel", "nn.parallel.DistributedDataParallel"),
            ("nn.utils.clip_grad.clip_grad_norm_", "nn.utils.clip_grad_norm_"),
            ("cuda.amp.grad_scaler.GradScaler", "cuda.amp.GradScaler")]:
        value = expected = torch
        for part in name.split("."):
            value = getattr(value, part)
        for part in also.split("."):
            expected = getattr(expected, part)
        assert value is expected
        module, _, key = name.rpartition(".")
        assert getattr(importlib.import_module("lockstep." + module), key) is expected  # also by import
    assert isinstance(torch.nn.BatchNorm1d(2), torch.nn.modules.batchnorm._BatchNorm)
    assert torch.nn.modules.utils._pair(3) == (3, 3)


def test_every_layer_is_in_pytorchs_submodule():
    peer = pytest.importorskip("torch")
    for name in dir(torch.nn):
        other = getattr(peer.nn, name, None)
        module = getattr(other, "__module__", "")
        if isinstance(other, type) and module.startswith("torch.nn.modules."):
            assert getattr(getattr(torch.nn.modules, module.split(".")[3]), name) is getattr(torch.nn, name)


def test_names_that_need_complex_numbers_say_so():
    for name in ("fft", "stft", "complex64"):
        assert not hasattr(torch, name)
        with pytest.raises(AttributeError, match=f"no attribute '{name}': the library has no complex numbers"):
            getattr(torch, name)
    with pytest.raises(AttributeError, match="module 'lockstep' has no attribute 'no_such_name'"):
        torch.no_such_name


def test_a_state_whose_names_begin_with_module():
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = {"module." + key: value + 1 for key, value in net.state_dict().items()}
    with pytest.raises(torch.Error, match='begin with "module.".*consume_prefix_in_state_dict_if_present'):
        net.load_state_dict(state)
    torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    net.load_state_dict(state)
    assert net[1].weight.tolist() == [2, 2, 2]
    with pytest.raises(torch.Error) as error:
        net.load_state_dict({"0.weigth": 1})
    assert "module." not in str(error.value)
