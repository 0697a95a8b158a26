"""Names of PyTorch's programs around tensors and models: settings, versions, files, and what is missing."""

import collections
import copy
import io
import pickle
import types
import warnings
import zipfile

import lockstep as torch
import pytest
from lockstep import nn


def test_compile_returns_the_model_and_says_so_once(monkeypatch):
    monkeypatch.setattr("lockstep.settings._said", False)
    model = nn.Linear(2, 2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert torch.compile(model) is model
        assert torch.compile(mode="reduce-overhead")(model) is model
    assert [str(w.message) for w in found] == [
        "compile: returns the model as it is, because the library's operations are compiled already"]


def test_versions_threads_and_the_default_device():
    assert torch.version.__version__ == torch.__version__ and torch.version.cuda is None
    assert torch.get_num_threads() >= 1
    torch.set_num_threads(3)
    assert torch.get_num_threads() == 3
    with pytest.raises(torch.Error, match="set_num_threads: 0, expected"):
        torch.set_num_threads(0)
    torch.set_default_device("cpu")
    assert str(torch.get_default_device()) == "cpu"
    with pytest.raises(torch.Error, match="set_default_device: 'cuda'"):
        torch.set_default_device("cuda")


def test_print_options_have_an_effect():
    x = torch.tensor([[1.23456, 2.0], [3.5, 400.25]])
    try:
        torch.set_printoptions(precision=1)
        assert repr(x) == "tensor([[  1.2,   2.0],\n        [  3.5, 400.2]])"
        torch.set_printoptions(precision=2, sci_mode=True)
        assert repr(x[0]) == "tensor([1.23e+00, 2.00e+00])"
        torch.set_printoptions(threshold=3, edgeitems=1)
        assert repr(torch.arange(6)) == "tensor([0,  ..., 5])"
        torch.set_printoptions(profile="full")
        assert "..." not in repr(torch.zeros(2000))
    finally:
        torch.set_printoptions(profile="default")
    assert "..." in repr(torch.zeros(2000))
    with pytest.raises(ValueError, match="profile is 'long'"):
        torch.set_printoptions(profile="long")


def test_missing_names_say_what_to_use():
    for name, instead in (("jit", "export_onnx"), ("hub", "lockstep.models"), ("profiler", "Timeline"),
                          ("vmap", "batches"), ("sparse", "dense")):
        assert not hasattr(torch, name)
        with pytest.raises(AttributeError, match=f"module 'lockstep' has no attribute '{name}': .*{instead}"):
            getattr(torch, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing_at_all'$"):
        torch.nothing_at_all


def test_onnx_export_writes_what_export_onnx_writes(tmp_path):
    model, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.rand(4, 3)
    torch.onnx.export(model, x, tmp_path / "a.onnx", input_names=["x"], output_names=["y"],
                      dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
    torch.export_onnx(tmp_path / "b.onnx", model, x, input_names=["x"], output_names=["y"])
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    file = io.BytesIO()
    torch.onnx.export(model, x, file)
    torch.export_onnx(tmp_path / "c.onnx", model, x, dynamic_batch=False)
    assert file.getvalue() == (tmp_path / "c.onnx").read_bytes()
    for wrong in (dict(opset_version=11), dict(dynamic_axes={"x": {1: "features"}}), dict(export_params=False)):
        with pytest.raises(torch.Error, match=f"onnx.export: {next(iter(wrong))}"):
            torch.onnx.export(model, x, tmp_path / "d.onnx", **wrong)


def test_a_model_is_saved_by_its_state_dict(tmp_path):
    model = nn.Linear(1, 2)
    with pytest.raises(TypeError, match="save: the object is a Linear, expected its state_dict"):
        torch.save(model, tmp_path / "model")
    with pytest.raises(TypeError, match="save: net is a Linear, expected its state_dict"):
        torch.save({"net": model}, tmp_path / "model")
    for f in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="a Linear: expected state_dict"):
            f(model)
    assert copy.deepcopy(model).weight.shape == model.weight.shape


class _Tensor:
    """What PyTorch's save() writes for a float32 tensor."""

    def __init__(self, key, size, stride):
        self.key, self.size, self.stride = key, size, stride


def pytorch_file(entries, storages):
    """A file of torch.save(): `entries` is a dict of tensors (_Tensor), NumPy numbers, and containers."""
    data = io.BytesIO()

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            return value.persistent if isinstance(value, _Storage) else None

        def save_named(self, function):
            module, name = function.in_file
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
            self.memoize(function)

        dispatch = {**pickle._Pickler.dispatch, types.FunctionType: save_named}

    class _Storage:
        def __init__(self, key, count):
            self.persistent = ("storage", float_storage, key, "cpu", count)

    def rebuild():
        """Named torch._utils._rebuild_tensor_v2 in the file."""

    def float_storage():
        """Named torch.FloatStorage in the file."""

    rebuild.in_file, float_storage.in_file = ("torch._utils", "_rebuild_tensor_v2"), ("torch", "FloatStorage")
    _Tensor.__reduce__ = lambda t: (rebuild, (_Storage(t.key, len(storages[t.key]) // 4), 0, t.size, t.stride, False,
                                              collections.OrderedDict()))
    Pickler(data, 2).dump(entries)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data.getvalue())
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
    return file.getvalue()


def test_files_of_pytorch_with_empty_tensors_numpy_numbers_and_counters():
    numpy = pytest.importorskip("numpy")
    entries = {"empty": _Tensor("0", (3, 0), (1, 1)), "n": numpy.float64(2.5), "i": numpy.int32(-7),
               "b": numpy.bool_(True), "milestones": collections.Counter({3: 1, 5: 2})}
    found = torch.load(io.BytesIO(pytorch_file(entries, {"0": b""})))
    assert found.pop("empty").shape == (3, 0)
    assert found == {"n": 2.5, "i": -7, "b": True, "milestones": collections.Counter({3: 1, 5: 2})}
    assert type(found["milestones"]) is collections.Counter


def test_cut_and_damaged_files_of_pytorch_are_errors():
    whole = pytorch_file({"x": _Tensor("0", (2, 3), (3, 1)), "n": 1}, {"0": bytes(24)})
    assert torch.load(io.BytesIO(whole))["x"].shape == (2, 3)
    for length in range(4, len(whole)):
        with pytest.raises(torch.Error, match="load: the file is cut or damaged|load: the file"):
            torch.load(io.BytesIO(whole[:length]))
    for place in range(4, len(whole), 3):  # no other exception
        try:
            torch.load(io.BytesIO(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1:]))
        except torch.Error:
            pass


# As PyTorch: tensors in tuples, lists, and dicts are inputs and outputs, one after the other.
def test_onnx_export_of_nested_arguments(tmp_path):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.LSTM(2, 3)

        def forward(self, x, state, factor):
            y, (h, c) = self.rnn(x, state)
            return {"y": y * factor}, (h, c)

    net, state = Net(), (torch.zeros(1, 4, 3), torch.zeros(1, 4, 3, device=torch.devices()[0]))
    torch.onnx.export(net, (torch.ones(5, 4, 2), state, 2), tmp_path / "net.onnx", input_names=["x", "h", "c"],
                      output_names=["y", "hn", "cn"])
    data = (tmp_path / "net.onnx").read_bytes()
    assert all(name in data for name in (b"x", b"hn", b"cn"))
    with pytest.raises(torch.Error, match="export_onnx: no tensor in the example"):
        torch.onnx.export(net, ("x",), tmp_path / "net.onnx")


def test_safe_globals_are_accepted(tmp_path):
    torch.save({"x": torch.ones(2)}, tmp_path / "x.pt")
    torch.serialization.add_safe_globals([torch.nn.Linear])
    with torch.serialization.safe_globals([torch.nn.modules.linear.NonDynamicallyQuantizableLinear]):
        assert torch.load(tmp_path / "x.pt")["x"].tolist() == [1, 1]
