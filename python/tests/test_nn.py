import copy
import gc
import math
import weakref
from collections import OrderedDict

import pytest

import lockstep as torch
import lockstep.nn as nn
import lockstep.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.out = nn.Linear(8, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("shift", torch.zeros(2))

    def forward(self, x):
        return self.out(F.relu(self.hidden(x))) * self.scale + self.shift


def test_attributes_register_themselves_in_order():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["scale", "hidden.weight", "hidden.bias", "out.weight", "out.bias"]
    assert [n for n, _ in net.named_buffers()] == ["shift"]
    assert [n for n, _ in net.named_modules()] == ["", "hidden", "out"]
    assert [type(m) for m in net.children()] == [nn.Linear, nn.Linear]
    assert list(net.state_dict()) == ["scale", "shift", "hidden.weight", "hidden.bias", "out.weight", "out.bias"]
    assert sum(p.numel() for p in net.parameters()) == 4 * 8 + 8 + 8 * 2 + 2 + 2


def test_parameters_are_the_same_objects_each_time():
    net = Net()
    assert net.hidden.weight is next(iter(net.hidden.parameters()))
    ids = {id(p) for p in net.parameters()}
    gc.collect()
    assert {id(p) for p in net.parameters()} == ids
    assert isinstance(net.hidden.weight, torch.Tensor) and isinstance(net.hidden.weight, nn.Parameter)
    assert not isinstance(net.shift, nn.Parameter)


def test_training_an_mlp_lowers_the_loss_and_no_zero_grad_is_needed():
    torch.manual_seed(1)
    net = Net()
    x, y = torch.randn(64, 4), torch.arange(64) % 2
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss_fn = nn.CrossEntropyLoss()
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.01


def test_gradients_add_up_over_two_backwards():
    net = nn.Linear(3, 1)
    x = torch.randn(5, 3)
    net(x).sum().backward()
    once = net.weight.grad.tolist()
    net(x).sum().backward()
    assert net.weight.grad.tolist()[0] == pytest.approx([2 * g for g in once[0]])
    net.zero_grad()
    assert net.weight.grad is None


def test_forward_may_take_and_return_anything():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)

        def forward(self, a, b=None, *, scale=1.0):
            return {"sum": self.fc(a), "b": b, "pair": (a, scale)}

    out = Two()(torch.ones(1, 2), scale=2.0)
    assert out["b"] is None and out["pair"][1] == 2.0 and tuple(out["sum"].shape) == (1, 3)


def test_what_convolutions_return_has_views():
    net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.MaxPool2d(2))
    x = torch.randn(2, 1, 8, 8)
    y = net(x)
    assert y.view(-1, 64).tolist() == y.flatten(1).tolist() and y.view(-1).shape == (128,)
    y.view(2, -1).sum().backward()
    assert net[0].weight.grad.abs().sum() > 0
    with torch.no_grad():
        y = net(x)
        y.view(2, 64)[1] = 7
    assert y[1].tolist() == torch.full((16, 2, 2), 7.0).tolist() and y[0].max() != 7


def test_library_containers_call_modules_of_python():
    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

    net = nn.Sequential(nn.Linear(2, 2), Twice(), nn.ReLU())
    x = torch.ones(1, 2)
    expected = F.relu(net[0](x) * 2)
    assert net(x).tolist() == expected.tolist()
    assert repr(net) == ("Sequential(\n  (0): Linear(in_features=2, out_features=2, bias=True)\n  (1): Twice()\n"
                         "  (2): ReLU()\n)")
    # The library calls it, too: it runs this container's children.
    assert nn.Module.forward(net, net[0].weight.data).shape == (2, 2)


def test_a_layer_of_another_class_replaces_one():
    net = Net()
    net.out = nn.Linear(8, 5)
    net.scale, net.shift = nn.Parameter(torch.ones(5)), torch.zeros(5)
    assert net(torch.ones(3, 4)).shape == (3, 5)
    assert [n for n, _ in net.named_modules()] == ["", "hidden", "out"]
    del net.out
    assert not hasattr(net, "out") and [n for n, _ in net.named_children()] == ["hidden"]


def test_tied_weights_are_one_parameter():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Embedding(7, 4)
            self.decoder = nn.Linear(4, 7, bias=False)
            self.decoder.weight = self.encoder.weight

        def forward(self, x):
            return self.decoder(self.encoder(x))

    net = Tied()
    assert len(list(net.parameters())) == 1 and net.decoder.weight is net.encoder.weight
    net.encoder.weight.data = torch.ones(7, 4)
    assert net(torch.arange(2)).tolist() == [[4.0] * 7] * 2
    assert list(net.state_dict()) == ["encoder.weight", "decoder.weight"]


def test_state_dict_round_trip_and_errors():
    a, b = Net(), Net()
    b.load_state_dict(a.state_dict())
    x = torch.randn(3, 4)
    assert a(x).tolist() == b(x).tolist()
    state = a.state_dict()
    state["other"] = state.pop("out.bias")
    with pytest.raises(torch.Error, match='Missing key.*"out.bias"'):
        b.load_state_dict(state)
    result = b.load_state_dict(state, strict=False)
    assert result.missing_keys == ["out.bias"] and result.unexpected_keys == ["other"]
    state["scale"] = torch.ones(3)
    with pytest.raises(torch.Error, match="size mismatch for scale"):
        b.load_state_dict(state, strict=False)
    assert str(a.load_state_dict(b.state_dict())) == "<All keys matched successfully>"


def test_parameter_behaves_as_a_tensor():
    w = nn.Parameter(torch.tensor([1.0, 2.0]))
    x = torch.tensor([3.0, 4.0])
    (w * x).sum().backward()
    assert w.grad.tolist() == [3.0, 4.0]
    with torch.no_grad():
        w -= 0.5 * w.grad
    assert w.tolist() == [-0.5, 0.0]
    w.data = torch.tensor([-0.5, 5.0])
    assert w.tolist() == [-0.5, 5.0] and w.requires_grad and w.is_leaf and w.shape == (2,)
    w.grad = None
    assert w.grad is None
    handle = w.register_hook(lambda g: g * 10)
    w.sum().backward()
    assert w.grad.tolist() == [10.0, 10.0]
    handle.remove()
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    assert not frozen.requires_grad


def test_buffers_follow_assignments():
    net = Net()
    net.shift = torch.ones(2)
    assert net.state_dict()["shift"].tolist() == [1.0, 1.0]
    net.shift += 1
    assert net.state_dict()["shift"].tolist() == [2.0, 2.0]
    with pytest.raises(TypeError, match="cannot assign 'int' as buffer"):
        net.shift = 1


def test_train_eval_and_overridden_train():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm1d(2)
            self.fc = nn.Linear(2, 2)

        def train(self, mode=True):
            super().train(mode)
            self.bn.eval()
            return self

    net = nn.Sequential(Frozen())
    assert net.train() is net and net[0].fc.training and not net[0].bn.training
    net.eval()
    assert not net[0].fc.training


def test_hooks_see_and_replace_outputs():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    seen = []
    handle = net[0].register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
    net(torch.ones(3, 2))
    assert seen == [(3, 2)]
    handle.remove()
    net(torch.ones(3, 2))
    assert len(seen) == 1
    net[1].register_forward_hook(lambda m, args, out: out + 1)
    assert min(min(row) for row in net(torch.ones(3, 2)).tolist()) >= 1


def test_sequential_and_lists():
    net = nn.Sequential(OrderedDict([("a", nn.Linear(2, 3)), ("b", nn.ReLU())]))
    assert net.a is net[0] and len(net) == 2 and [type(m) for m in net] == [nn.Linear, nn.ReLU]
    assert len(net[:1]) == 1
    net.append(nn.Linear(3, 1))
    assert net(torch.ones(4, 2)).shape == (4, 1)
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    assert len(layers) == 3 and layers[-1] is layers[2] and len(list(layers.parameters())) == 6
    table = nn.ModuleDict({"x": nn.ReLU()})
    assert "x" in table and list(table.keys()) == ["x"]
    numbers = nn.ParameterDict({"a": torch.ones(2), "b": nn.Parameter(torch.zeros(1))})
    assert numbers.pop("a").tolist() == [1, 1] and [name for name, _ in numbers.items()] == ["b"]
    numbers.clear()
    assert len(numbers) == 0 and "b" not in numbers and not list(numbers.parameters())
    rows = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(2)])
    assert len(rows) == 2 and [n for n, _ in rows.named_parameters()] == ["0", "1"]


def test_deepcopy_has_the_values_and_its_own_memory():
    net = nn.Sequential(Net(), nn.BatchNorm1d(2))
    net(torch.randn(8, 4))
    other = copy.deepcopy(net).eval()
    net.eval()
    x = torch.randn(3, 4)
    assert other(x).tolist() == net(x).tolist()
    other[0].scale.data = torch.zeros(2)
    assert net[0].scale.tolist() == [1.0, 1.0]
    for unused in (nn.Linear(2, 2), Net(), nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))):
        other = copy.deepcopy(unused)
        assert [p.tolist() for p in other.parameters()] == [p.tolist() for p in unused.parameters()]
    assert copy.deepcopy(nn.LazyLinear(2))(torch.ones(1, 3)).shape == (1, 2)


def test_data_of_a_parameter_that_another_tensor_shares():
    net = nn.Linear(1, 1, bias=False)
    backup = net.weight.data
    with pytest.raises(torch.Error, match=r"use p.data.clone\(\)"):
        net.weight.data = torch.ones(1, 1)
    before = backup.tolist()
    net.weight.data = backup
    backup = net.weight.data.clone()
    net.weight.data = torch.ones(1, 1)
    assert backup.tolist() == before and net.weight.tolist() == [[1]]
    net.weight.data = net.weight.data * 2
    x = torch.zeros(2)
    y = x.detach()
    with pytest.raises(torch.Error, match="shares its memory"):
        x.data = torch.ones(2)
    del y
    x.data = torch.ones(2)
    assert net.weight.tolist() == [[2]] and x.tolist() == [1, 1]


def test_initial_values_follow_from_seed_and_name():
    def values():
        torch.manual_seed(7)
        net = Net()
        nn.init.xavier_uniform_(net.hidden.weight)
        return net.state_dict()["hidden.weight"].tolist()

    nn.init.zeros_(Net().out.bias)
    layer = nn.Linear(3, 4)
    nn.init.normal_(layer.weight.data, 5.0, 0.0)
    assert layer.weight.tolist() == [[5.0] * 3] * 4
    nn.init.kaiming_uniform_(layer.weight.data, nonlinearity="relu")
    assert layer.weight.abs().max().item() <= 2**0.5
    with pytest.raises(TypeError, match="expected an nn.Parameter"):
        nn.init.orthogonal_(torch.ones(2, 2))
    assert len(values()) == 8


def test_lazy_layers_and_device_and_dtype():
    lazy = nn.LazyLinear(3)
    assert repr(lazy).startswith("LazyLinear(in_features=0")
    lazy(torch.ones(2, 5))
    assert repr(lazy) == "Linear(in_features=5, out_features=3, bias=True)"
    assert nn.Linear(2, 2, device="cpu", dtype=torch.float64).weight.dtype == torch.float64
    with pytest.raises(RuntimeError):
        nn.Linear(2, 2, device="cuda:7")


def test_recurrent_layers_and_attention_have_pytorchs_results():
    y, (h, c) = nn.LSTM(3, 4, num_layers=2, batch_first=True)(torch.randn(2, 5, 3))
    assert y.shape == (2, 5, 4) and h.shape == c.shape == (2, 2, 4)
    y, w = nn.MultiheadAttention(8, 2)(*[torch.randn(5, 2, 8)] * 3)
    assert y.shape == (5, 2, 8) and w.shape == (2, 5, 5)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2)
    assert model(torch.randn(5, 2, 8)).shape == (5, 2, 8)
    assert "layers.1.self_attn.in_proj_weight" in model.state_dict()


def test_errors_say_what_to_do():
    class NoForward(nn.Module):
        pass

    with pytest.raises(RuntimeError, match="NoForward has no forward"):
        NoForward()(torch.ones(1))

    class Early(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match="before Module.__init__"):
        Early()
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'missing'"):
        Net().missing


def test_a_cycle_of_attributes_is_collected():
    net = Net()
    net.everything = [net]
    gone = weakref.ref(net), weakref.ref(net.hidden)
    del net
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


def test_ten_steps_keep_no_objects():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    x = torch.randn(4, 4)

    def step():
        net(x).sum().backward()
        optimizer.step()

    step()
    gc.collect()
    gc.disable()
    before = len(gc.get_objects())
    for _ in range(10):
        step()
    after = len(gc.get_objects())
    gc.enable()
    assert after - before < 20


def test_layers_in_place_change_their_input():
    layers = [nn.ReLU(inplace=True), nn.ReLU6(True), nn.LeakyReLU(0.1, True), nn.Threshold(0, 2, True),
              nn.Hardtanh(inplace=True), nn.ELU(inplace=True), nn.Hardswish(True), nn.Dropout(1.0, True)]
    for layer in layers:
        x = torch.tensor([[-1.0, 0.5], [2.0, -3.0]])
        row = x[0]
        expected = type(layer)(*([1.0] if isinstance(layer, nn.Dropout) else
                                 [0.1] if isinstance(layer, nn.LeakyReLU) else
                                 [0, 2] if isinstance(layer, nn.Threshold) else []))(x)
        assert x.tolist() == [[-1, 0.5], [2, -3]]
        assert layer(x) is x and x.tolist() == expected.tolist() and row.tolist() == expected[0].tolist()
    # With a history, in a Sequential, without any effect, with hooks.
    w = torch.tensor([-1.0, 2.0], requires_grad=True)
    y = w * 3
    nn.ReLU(inplace=True)(y).sum().backward()
    assert y.tolist() == [0, 6] and w.grad.tolist() == [0, 3]
    with pytest.raises(torch.Error, match="leaf"):
        nn.ReLU(inplace=True)(w)
    x = torch.tensor([[-1.0, 2.0]])
    assert nn.Sequential(nn.ReLU(True))(x).tolist() == [[0, 2]]  # out of place, as its documentation says
    nn.Dropout(0.5, True).eval()(x)
    assert x.tolist() == [[-1, 2]]
    relu = nn.ReLU(True)
    relu.register_forward_hook(lambda module, inputs, output: seen.append(output))
    seen = []
    relu(x)
    assert seen[0] is x and x.tolist() == [[0, 2]]


def test_options_of_layers_change_or_refuse():
    x = torch.arange(20.0).reshape(10, 2)
    dropout, norm = nn.Dropout(0.5), nn.BatchNorm1d(2)
    dropout.p, norm.momentum = 0.0, 1.0
    assert dropout(x).tolist() == x.tolist() and repr(dropout) == "Dropout(p=0.0, inplace=False)"
    norm(x)
    assert norm.running_mean.tolist() == x.mean(0).tolist()
    norm.eps = 1e6
    assert norm(x).abs().max() < 0.1
    copied = copy.deepcopy(norm)
    assert (copied.eps, copied.momentum) == (1e6, 1.0)
    conv = nn.Conv2d(1, 1, 3)
    conv.stride = conv.stride
    with pytest.raises(torch.Error, match=r"Conv2d: stride = \(2, 2\), but the layer has"):
        conv.stride = (2, 2)
    for layer, name in ((nn.LeakyReLU(), "negative_slope"), (nn.LSTM(2, 2), "num_layers"), (nn.Softmax(0), "dim")):
        with pytest.raises(torch.Error, match="expected a new layer"):
            setattr(layer, name, 3)

    class Padded(nn.Conv2d):
        def forward(self, x, library=False):
            return super().forward(x) if library else F.conv2d(x, self.weight, None, self.stride, self.padding)

    padded = Padded(1, 1, 3, bias=False)
    padded.padding = 1
    assert padded(torch.ones(1, 1, 4, 4)).shape == (1, 1, 4, 4)
    with pytest.raises(torch.Error, match="after a change of padding"):
        padded(torch.ones(1, 1, 4, 4), library=True)


def test_parts_become_none():
    net = Net()
    net.register_buffer("mean", torch.ones(2))
    net.register_parameter("scale", nn.Parameter(torch.ones(2)))
    net.register_parameter("scale", None)
    net.register_buffer("mean", None)
    net.add_module("out", None)
    assert (net.scale, net.mean, net.out) == (None, None, None)
    assert list(net.state_dict()) == ["shift", "hidden.weight", "hidden.bias"]
    with pytest.raises(torch.Error, match="'bias', which stays"):
        net.hidden.register_parameter("bias", None)
    assert nn.Linear(2, 2, bias=False).bias is None and nn.LSTM(2, 2, bias=False).bias is False
    assert nn.BatchNorm1d(2, affine=False).weight is None
    assert not hasattr(nn.ReLU(), "weight") and not hasattr(nn.Sequential(), "bias")


def test_copies_have_the_types():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    for model in (net, nn.Linear(2, 2).double()):
        model(torch.ones(3, 2).double())
        model = copy.deepcopy(model)
        assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert copy.deepcopy(net).state_dict()["0.weight"].tolist() == net[0].weight.tolist()


def test_reset_parameters():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.LSTMCell(3, 2))
    x = torch.randn(4, 2)
    begin = {k: v.clone() for k, v in net.state_dict().items()}
    net[1](net[0](x))
    with torch.no_grad():
        for p in net.parameters():
            p.add_(1)
    for layer in net:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    assert {k: v.tolist() for k, v in net.state_dict().items()} == {k: v.tolist() for k, v in begin.items()}
    assert not hasattr(net, "reset_parameters") and not hasattr(net[2], "reset_parameters")
    net[1](net[0](x))
    net[1].reset_running_stats()
    assert net[1].running_mean.tolist() == [0, 0, 0] and net[1].num_batches_tracked == 0

    class Ones(nn.Linear):
        def __init__(self, value):
            self.__dict__["value"] = value
            super().__init__(2, 1)

        def reset_parameters(self):
            super().reset_parameters()
            nn.init.constant_(self.weight, self.value)

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.empty(2))
            self.reset_parameters()

        def reset_parameters(self):
            nn.init.ones_(self.w)

    assert copy.deepcopy(Ones(3.0)).weight.tolist() == [[3.0, 3.0]] and Own().w.tolist() == [1.0, 1.0]


def test_children_of_residual_nets_are_torchvisions():
    net, x = torch.models.resnet18(num_classes=5).eval(), torch.rand(1, 3, 32, 32)
    assert [n for n, _ in net.named_children()] == ["conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3",
                                                    "layer4", "avgpool", "fc"]
    with torch.no_grad():
        y = net(x)
        features = nn.Sequential(*list(net.children())[:-1])(x)
        assert features.shape == (1, 512, 1, 1)
        assert net.fc(features.flatten(1))[0].tolist() == pytest.approx(y[0].tolist(), rel=1e-3, abs=1e-4)
        net.maxpool = nn.Identity()
        assert net(x).tolist() != y.tolist()
        net.maxpool, net.relu = nn.MaxPool2d(3, 2, 1), nn.Tanh()
        assert net(x).tolist() != y.tolist()


def test_parameters_of_no_module_have_own_values():
    def made():
        torch.manual_seed(5)
        a, b = nn.Parameter(torch.empty(4, 4)), nn.Parameter(torch.empty(4, 4))
        for p in (a, b):
            nn.init.kaiming_normal_(p, nonlinearity="relu")
        return a.tolist(), b.tolist()

    a, b = made()
    assert a != b and made() == (a, b)
    torch.manual_seed(6)
    c = nn.Parameter(torch.empty(4, 4))
    assert nn.init.kaiming_normal_(c, nonlinearity="relu").tolist() not in (a, b)


def test_a_dropped_layer_leaves_initial_values():
    assert nn.Linear(20, 10).weight.std() > 0.05 and nn.Embedding(4, 4).weight.std() > 0.1
    layer = nn.Module()
    layer.w = nn.Parameter(nn.Linear(4, 4).weight)
    assert layer.w.std() > 0.05


def test_forward_of_one_object():
    net = nn.Sequential(nn.ReLU(), nn.Linear(2, 2))
    net[0].forward = lambda x: x * 0
    x = torch.ones(1, 2)
    assert net[0](x).tolist() == [[0, 0]] and net(x).tolist() == [net[1].bias.tolist()]
    assert copy.deepcopy(net)(x).tolist() == net(x).tolist()
    net[0].register_forward_hook(lambda module, args, out: out + 1).remove()
    assert net(x).tolist() == [net[1].bias.tolist()]
    del net[0].forward
    assert net[0](x).tolist() == [[1, 1]]


def test_hooks_of_all_modules_of_a_library_model_run():
    net, ran = torch.models.make_model("resnet18").eval(), set()
    for name, module in net.named_modules():
        module.register_forward_hook(lambda module, args, out, name=name: ran.add(name))
    with torch.no_grad():
        net(torch.rand(1, 1, 28, 28))
    assert ran == {name for name, _ in net.named_modules()}


def test_what_transformer_layers_do_not_call_is_refused():
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    with pytest.raises(torch.Error, match="does not call it as a module"):
        layer.self_attn.register_forward_hook(print)
    nn.MultiheadAttention(4, 2).register_forward_hook(print)
    with pytest.raises(torch.Error, match="norm_first = True"):
        layer.norm_first = True
    with pytest.raises(TypeError, match="_sa_block"):
        type("Own", (nn.TransformerEncoderLayer,), {"_sa_block": print})
    decoder = nn.TransformerDecoderLayer(4, 2, 8)
    for attention in (layer.self_attn, decoder.self_attn, decoder.multihead_attn):
        with pytest.raises(torch.Error, match="does not call it as a module"):
            attention.forward = print
        with pytest.raises(torch.Error, match="does not call it as a module"):
            attention._forward_hooks[0] = print
        attention._forward_hooks = OrderedDict()  # removes none
    for name in ("_sa_block", "_ff_block"):
        with pytest.raises(torch.Error, match=name):
            setattr(layer, name, print)
    with pytest.raises(torch.Error, match="expected a new layer"):
        layer.activation = nn.GELU()
    assert "activation" not in layer._modules
    nn.MultiheadAttention(4, 2).forward = print
    layer.linear1.forward = lambda x: torch.zeros(1, 1, 8)
    layer(torch.ones(1, 1, 4))


def test_an_activation_with_the_name_of_another():
    def gelu(x):
        return x * 3

    x = torch.rand(2, 3, 4)
    state = nn.TransformerEncoderLayer(4, 2, 8, dropout=0).state_dict()
    results = []
    for activation in (gelu, lambda x: x * 3, F.gelu, "gelu", torch.relu, F.relu, "relu"):
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0, activation=activation)
        layer.load_state_dict(state)
        results.append(layer(x).tolist())
        assert layer.activation is (getattr(F, activation) if isinstance(activation, str) else activation)
    own, same, *rest = results
    assert own == same and rest[0] == rest[1] and rest[2] == rest[3] == rest[4] and own != rest[0] != rest[2]


def test_a_module_as_activation_is_a_child():
    for make in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
        layer = make(4, 2, 8, dropout=0, activation=nn.PReLU())
        assert list(dict(layer.named_parameters()))[-1] == "activation.weight"
        twin = copy.deepcopy(layer)
        assert isinstance(twin.activation, nn.PReLU) and twin.activation is not layer.activation
        x = torch.rand(2, 3, 4)
        args = (x,) if make is nn.TransformerEncoderLayer else (x, x)
        before = twin(*args).tolist()
        with torch.no_grad():
            layer.activation.weight.fill_(-2.0)
        assert twin(*args).tolist() == before and twin.activation.weight.item() == 0.25  # computes with its own
        twin(*args).square().sum().backward()
        assert twin.activation.weight.grad is not None and layer.activation.weight.grad is None
        twin.load_state_dict(layer.state_dict())
        assert twin(*args).tolist() == layer(*args).tolist() != before
        with pytest.raises(torch.Error, match="keeps by its class"):
            layer.activation = nn.GELU()
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, activation=nn.PReLU()), 2)
    names = [name for name, _ in stack.named_parameters() if "activation" in name]
    assert names == ["layers.0.activation.weight", "layers.1.activation.weight"]
    both = nn.Transformer(4, 2, 2, 1, 8, activation=nn.PReLU())
    assert len({id(p) for n, p in both.named_parameters() if "activation" in n}) == 3


def test_copies_call_the_functions_that_are_their_attributes():
    class Times:
        factor = 2

        def __call__(self, x):
            return x * self.factor

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(1))
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0, activation=self.times)

        def times(self, x):
            return x * self.factor

        def forward(self, x):
            return self.layer(x)

    x = torch.rand(2, 3, 4)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0, activation=Times())
    twin = copy.deepcopy(layer)
    assert twin(x).tolist() == layer(x).tolist() and twin.activation is not layer.activation
    twin.activation.factor = 5
    assert twin(x).tolist() != layer(x).tolist()
    net = Net()
    twin = copy.deepcopy(net)
    twin(x).sum().backward()
    assert twin.factor.grad is not None and net.factor.grad is None
    alone = copy.deepcopy(net.layer)
    assert alone.activation.__self__ is net
    alone(x).sum().backward()
    assert net.factor.grad is not None


def test_attributes_of_options_are_pytorchs():
    assert nn.Embedding(5, 2, padding_idx=-1).padding_idx == 4 and nn.Embedding(5, 2).padding_idx is None
    assert nn.EmbeddingBag(5, 2, padding_idx=-2).padding_idx == 3
    assert [nn.Conv1d(2, 2, 3, padding=p).padding for p in ("same", "valid", 1)] == ["same", "valid", (1,)]
    assert copy.deepcopy(nn.Conv2d(2, 2, 3, padding="same")).padding == "same"
    assert copy.deepcopy(nn.Conv2d(2, 2, 3, padding="same"))(torch.ones(1, 2, 5, 5)).shape == (1, 2, 5, 5)
    for pool in (nn.MaxPool2d, nn.AvgPool2d):
        assert pool((2, 3)).stride == (2, 3) and pool(2, 1).stride == (1, 1)
        assert copy.deepcopy(pool((2, 3)))(torch.ones(1, 1, 6, 6)).shape == (1, 1, 3, 2)
    attention = nn.MultiheadAttention(4, 2)
    assert attention.kdim == attention.vdim == 4 and nn.MultiheadAttention(4, 2, kdim=3).kdim == 3
    assert nn.AdaptiveAvgPool2d((None, 3)).output_size == (None, 3)


def test_dicts_of_hooks():
    net, x, seen = nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), torch.ones(1, 2), []
    handle = net[0].register_forward_hook(lambda module, args, y: seen.append("hook"))
    net[0].register_forward_pre_hook(lambda module, args: seen.append("pre"))
    net[0].register_forward_hook(lambda module, args, kwargs, y: seen.append(kwargs), with_kwargs=True, prepend=True)
    assert list(net[0]._forward_hooks)[1] == handle.id and len(net[0]._forward_pre_hooks) == 1
    net(x)
    assert seen == ["pre", {}, "hook"]
    saved = net[0]._forward_hooks
    for module in net.modules():  # the usual way to remove all
        module._forward_hooks = OrderedDict()
        module._forward_pre_hooks = OrderedDict()
    seen.clear()
    net(x), copy.deepcopy(net)(x)
    assert not seen
    net[0]._forward_hooks = saved
    handle.remove()
    net(x), copy.deepcopy(net)(x)
    assert seen == [{}, {}]
    net[0]._forward_hooks.clear()
    net[0]._forward_hooks[7] = lambda module, args, y: y + 1
    assert net[0](x).tolist() == [[2, 2]] and copy.deepcopy(net)[0](x).tolist() == [[2, 2]]
    net[0]._forward_hooks = {}
    net[0]._forward_hooks[7] = lambda module, args, y: y + 1
    assert net[0](x).tolist() == [[2, 2]]
    with pytest.raises(TypeError, match="_forward_hooks = list, expected a dict of hooks"):
        net[1]._forward_hooks = []
    net[1].register_full_backward_hook(lambda module, grad_input, grad_output: seen.append("backward"))
    net[1]._backward_hooks.clear()
    seen.clear()
    net(x).sum().backward()
    assert not seen


def test_attributes_of_the_program_are_not_the_librarys():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)
            self._arguments, self._kept = ("a",), ["b"]
            self._hooks, self._pre_hooks = [print], [print]
            self._state_hooks = self._load_pre_hooks = [print]
            self._hooks.append(self.register_forward_hook(lambda module, args, y: y * 0 + 3))

        def forward(self, x):
            return self.fc(x)

    net = Net()
    twin = copy.deepcopy(net)
    for one in (net, twin):
        assert one(torch.ones(1, 2)).tolist() == [[3, 3]] and one._hooks[0] is print and len(one._hooks) == 2
        assert one._arguments == ("a",) and one._kept == ["b"]
        one.load_state_dict(one.state_dict())
    twin._hooks[1].remove()
    assert twin(torch.ones(1, 2)).tolist() != [[3, 3]] and net(torch.ones(1, 2)).tolist() == [[3, 3]]


def test_names_that_are_taken():
    for container in (nn.Sequential, lambda *modules: nn.ModuleList(modules)):
        with pytest.raises(TypeError, match="module 1 is None"):
            container(nn.ReLU(), None)
    for add in (nn.Sequential().add_module, nn.Linear(2, 2).register_parameter):
        with pytest.raises(KeyError, match="already exists"):
            add("train", None)

    class Net(nn.Module):
        fc = None

        def __init__(self):
            super().__init__()
            self.fc, self.device = nn.Linear(2, 2), torch.device("cpu")

    assert list(Net()._modules) == ["fc"] and copy.deepcopy(Net()).device == torch.device("cpu")


def test_methods_before_init_are_errors():
    class Early(nn.Module):
        def __init__(self):
            self.train()

    for early in (Early, lambda: list(nn.Linear.__new__(nn.Linear).parameters()),
                  lambda: torch.Tensor.__new__(torch.Tensor).shape,
                  lambda: torch.relu(torch.Tensor.__new__(torch.Tensor))):
        with pytest.raises((TypeError, AttributeError), match=r"has not run|before Module.__init__\(\)"):
            early()


# ---- PyTorch's protocol of modules: what a class defines is called, or the class is refused


class Counter(nn.Module):
    def __init__(self, count=0):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.count = count

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def test_extra_state_is_saved_and_loaded(tmp_path):
    net, other = nn.Sequential(Counter(5)), nn.Sequential(Counter())
    assert list(net.state_dict()) == ["0._extra_state", "0.layer.weight", "0.layer.bias"]
    torch.save(net.state_dict(), tmp_path / "net")
    other.load_state_dict(torch.load(tmp_path / "net"))
    assert other[0].count == 5
    state = net.state_dict()
    del state["0._extra_state"]
    with pytest.raises(torch.Error, match="Missing.*0._extra_state"):
        other.load_state_dict(state)
    with pytest.raises(torch.Error, match="Unexpected.*_extra_state"):
        nn.Linear(1, 1).load_state_dict({"weight": torch.ones(1, 1), "bias": torch.ones(1), "_extra_state": 1})


def test_a_class_saves_and_loads_its_part_of_the_state():
    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)
            self.plain = torch.zeros(2)

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "plain"] = self.plain

        def _load_from_state_dict(self, state, prefix, *args):
            self.plain = state.pop(prefix + "plain")
            if prefix + "old" in state:
                state[prefix + "layer.weight"] = state.pop(prefix + "old")
            super()._load_from_state_dict(state, prefix, *args)

    class More(nn.Linear):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            state[kwargs.get("prefix", "") + "more"] = torch.ones(1)
            return state

        def _load_from_state_dict(self, state, prefix, *args):
            state.pop(prefix + "more", None)
            super()._load_from_state_dict(state, prefix, *args)
            self.seen = self.weight.item()

    net = nn.Sequential(Renamed(), More(1, 1))
    state = net.state_dict()
    assert list(state) == ["0.plain", "0.layer.weight", "0.layer.bias", "1.weight", "1.bias", "1.more"]
    state = {"0.plain": torch.ones(2), "0.old": torch.ones(1, 1), "0.layer.bias": torch.zeros(1),
             "1.weight": torch.full((1, 1), 3.), "1.bias": torch.zeros(1)}
    net.load_state_dict(state)
    assert net[0].plain.tolist() == [1, 1] and net[0].layer.weight.item() == 1 and "0.old" in state
    assert net[1].seen == 3


def test_hooks_of_the_state():
    net, calls = nn.Sequential(nn.Linear(1, 1)), []
    net[0]._register_state_dict_hook(lambda module, state, prefix, metadata: calls.append(("save", prefix, metadata)))
    net[0].register_state_dict_pre_hook(lambda module, prefix, keep_vars: calls.append(("before", prefix)))
    assert list(net.state_dict()) == ["0.weight", "0.bias"]
    assert calls == [("before", "0."), ("save", "0.", {"version": 1})]

    def rename(state, prefix, metadata, strict, missing, unexpected, errors):
        state[prefix + "bias"] = state.pop(prefix + "b")

    handle = net[0]._register_load_state_dict_pre_hook(rename)
    with net.register_load_state_dict_post_hook(lambda module, keys: calls.append(module[0].bias.item())):
        net.load_state_dict({"0.weight": torch.ones(1, 1), "0.b": torch.full((1,), 4.)})
    assert calls[-1] == 4
    handle.remove()
    net.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    assert net.load_state_dict({"0.weight": torch.ones(1, 1)}) == ([], [])


def test_a_refused_state_changes_nothing():
    net = nn.Sequential(Counter(3), nn.Linear(2, 2))
    before = [p.tolist() for p in net.parameters()]
    state = net.state_dict()
    state = {**{k: torch.zeros_like(v) for k, v in state.items() if "extra" not in k},
             "0._extra_state": {"count": 9}, "1.bias": torch.zeros(3)}
    with pytest.raises(torch.Error, match="size mismatch for 1.bias"):
        net.load_state_dict(state)
    assert [p.tolist() for p in net.parameters()] == before and net[0].count == 3


def test_states_of_wrappers_and_old_states():
    net = nn.DataParallel(nn.Sequential(Counter(4), nn.BatchNorm1d(1)))
    state = net.state_dict()
    assert list(state)[0] == "0._extra_state" and set(state) == set(net.module.state_dict())
    net.module[0].count = 0
    net.load_state_dict(state)
    assert net.module[0].count == 4 and net.double() is net and net.module[0].layer.weight.dtype == torch.float64
    with pytest.raises(torch.Error, match="Missing[^\n]*\n\tUnexpected.*other"):
        net.load_state_dict({"other": torch.ones(1)})
    with pytest.raises(torch.Error, match="Unexpected.*other"):
        net.load_state_dict({**state, "other": torch.ones(1)})
    old = {k: v for k, v in state.items() if "num_batches" not in k}
    net.load_state_dict(old)  # a dict of a file has no version, as files of before 2018
    state.pop("1.num_batches_tracked")
    with pytest.raises(torch.Error, match="Missing.*num_batches_tracked"):
        net.load_state_dict(state)


def test_apply_moves_tensors_of_a_class():
    class Anchors(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)
            self.plain = torch.ones(2)

        def _apply(self, fn):
            super()._apply(fn)
            self.plain = fn(self.plain)
            return self

    net = nn.Sequential(Anchors()).double()
    assert net[0].plain.dtype == net[0].layer.weight.dtype == torch.float64
    net._apply(lambda t: t * 0 + 2)
    assert net[0].plain.tolist() == [2, 2] and net[0].layer.bias.tolist() == [2]
    with pytest.raises(torch.Error, match=r"_apply\(\) makes weight of Linear.*expected to\(\)"):
        net[0].layer._apply(lambda t: t.float())


def test_a_class_of_methods_that_nothing_calls_is_refused():
    with pytest.raises(TypeError, match=r"Odd defines _call_impl\(\), which nothing calls: expected forward"):
        class Odd(nn.Linear):
            def _call_impl(self, *args):
                return args

    class Pickled(nn.Linear):
        def __setstate__(self, state):
            pass

    with pytest.raises(torch.Error, match=r"deepcopy: Pickled defines __setstate__\(\)"):
        copy.deepcopy(Pickled(1, 1))


def test_every_method_of_pytorchs_module_is_called_refused_or_missing():
    peer = pytest.importorskip("torch").nn.Module
    from lockstep.nn.module import _UNCALLED
    missing = {n for n, m in vars(peer).items() if callable(m) and n not in vars(nn.Module) and n not in _UNCALLED}
    # A program alone calls these: without them, its call is an AttributeError.
    users = {"ipu", "xpu", "type", "share_memory", "to_empty", "_named_members"}
    assert missing <= users | {"__setstate__"}, missing - users


def test_dicts_of_parts_change_the_module():
    net = nn.Module()
    net._modules["0"] = nn.Linear(2, 2)
    net._parameters["scale"] = nn.Parameter(torch.ones(1))
    net._buffers["shift"] = torch.zeros(1)
    assert [n for n, _ in net.named_parameters()] == ["scale", "0.weight", "0.bias"] and len(net._modules) == 1
    assert list(net.state_dict()) == ["scale", "shift", "0.weight", "0.bias"]
    del net._modules["0"]
    assert net._parameters.pop("scale").tolist() == [1] and list(net.parameters()) == []
    with pytest.raises(KeyError):
        net._buffers["scale"]


def test_forward_hooks_with_keyword_arguments():
    class Scaled(nn.Module):
        def forward(self, x, scale=1):
            return x * scale

    net, calls = Scaled(), []
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True)
    net.register_forward_pre_hook(lambda m, args: calls.append("first"), prepend=True)
    net.register_forward_hook(lambda m, args, kwargs, out: calls.append(kwargs), with_kwargs=True)
    assert net(torch.ones(1), scale=2).item() == 3 and calls == ["first", {"scale": 3}]
    with net.register_forward_hook(lambda m, args, out: out * 0):
        assert net(torch.ones(1), scale=2).item() == 0
    assert net(torch.ones(1), scale=2).item() == 3


def test_the_state_of_a_lazy_layer():
    lazy = nn.LazyLinear(2)
    assert list(lazy.state_dict()) == ["weight", "bias"]
    other = nn.LazyLinear(2)
    other.load_state_dict(lazy.state_dict())
    with pytest.raises(torch.Error, match="weight has no values in the state"):
        nn.Linear(3, 2).load_state_dict(lazy.state_dict())
    lazy(torch.ones(1, 3))
    other.load_state_dict(lazy.state_dict())
    assert other.weight.shape == (2, 3)


def test_a_lazy_layer_becomes_its_class():
    net = nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    held = net[3]
    held.note = "kept"
    copied = copy.deepcopy(net)
    x = torch.rand(4, 1, 5, 5)
    assert type(net[0]) is nn.LazyConv2d and isinstance(net[0], nn.Conv2d)
    for model in (net, copied):
        y = model(x)
        assert [type(m) for m in model] == [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear]
        assert model[3].note == "kept" and model[3].in_features == 18 and "_call_hooked" not in model[3].__dict__
        model.eval()
        assert torch.equal(model(x), model(x)) and y.shape == (4, 2)
    assert held is net[3] and repr(held) == "Linear(in_features=18, out_features=2, bias=True)"
    hooked, calls = nn.LazyLinear(2), []
    hooked.register_forward_hook(lambda module, args, output: calls.append(type(module)))
    hooked(torch.ones(1, 3)), hooked(torch.ones(1, 3))
    assert calls == [nn.Linear, nn.Linear] and type(copy.deepcopy(hooked)) is nn.Linear
    weak = weakref.ref(hooked)
    del hooked
    gc.collect()
    assert weak() is None


def test_a_second_training_begins_anew():
    def init(module):
        if type(module) in (nn.Linear, nn.Conv2d):
            nn.init.constant_(module.weight, 0.5)

    net = nn.Sequential(nn.LazyLinear(2))
    net.apply(init)
    net(torch.ones(1, 3))
    assert net[0].weight[0, 0].item() != 0.5
    net.apply(init)
    assert net[0].weight.tolist() == [[0.5] * 3] * 2


def test_initial_values_follow_from_the_seed_at_construction():
    torch.manual_seed(0)
    a = nn.Linear(2, 2)
    torch.manual_seed(0)
    b = nn.Linear(2, 2)
    c = nn.Linear(2, 2)
    torch.manual_seed(1)
    assert torch.equal(a.weight, b.weight) and torch.equal(a.bias, b.bias) and not torch.equal(b.weight, c.weight)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    torch.manual_seed(1)
    again = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    torch.manual_seed(0)
    same = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    assert torch.equal(net[2].weight, same[2].weight) and not torch.equal(net[2].weight, again[2].weight)


def test_new_values_follow_from_the_seed_of_now():
    def begin(seed, read):
        torch.manual_seed(0)
        net = nn.Linear(2, 2)
        if read:
            net.weight.tolist()
        torch.manual_seed(seed)
        nn.init.normal_(net.weight)
        first = net.weight.tolist()
        net.reset_parameters()
        return first, net.weight.tolist()

    for read in (False, True):
        assert begin(1, read) == begin(1, read)
        assert all(a != b for a, b in zip(begin(1, read), begin(2, read)))
    torch.manual_seed(0)
    net = nn.Linear(2, 2)
    before = net.weight.tolist()
    nn.init.zeros_(net.weight)
    net.reset_parameters()
    assert net.weight.tolist() == before


def test_models_of_threads_repeat_themselves():
    import threading

    def train(seed, found, key):
        if seed is not None:
            torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            net(torch.rand(4, 2)).sum().backward()
            optimizer.step()
        found[key] = net[2].weight.tolist()

    def run(seeds):
        torch.manual_seed(7)
        found = {}
        threads = [threading.Thread(target=train, args=(seed, found, i)) for i, seed in enumerate(seeds)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return found

    first = run([3, 4, 3])
    assert first[0] == first[2] != first[1]
    assert all(run([3, 4, 3]) == first for _ in range(3))
    here = {}
    train(3, here, 0)
    assert here[0] == first[0]

    assert run([None, None])[0] is not None
    without = run([None, 3])
    assert without[1] == first[0]


def test_train_and_eval_of_a_class_are_called_by_the_library():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.layer, self.calls = nn.BatchNorm1d(2), nn.Linear(2, 2), []

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            self.calls.append(mode)
            return self

        def forward(self, x):
            self.modes = self.training, self.norm.training
            return self.layer(self.norm(x))

    data = torch.utils.data.TensorDataset(torch.rand(8, 2), torch.zeros(8, dtype=torch.int64))
    net = nn.Sequential(Frozen())
    torch.Trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), data, batch_size=4, epochs=1).train()
    assert net[0].modes == (True, False) and net[0].norm.num_batches_tracked.item() == 0
    net[0].calls.clear()
    torch.evaluate(net, data)
    assert net[0].calls == [False, True] and net[0].modes == (False, False) and net[0].training
    sampling = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    sampling[1].train = lambda mode=True: sampling[1]  # stays in training mode
    sampling.eval()
    with torch.no_grad():
        assert len({str(sampling(torch.ones(1, 2)).tolist()) for _ in range(20)}) > 1


def test_call_of_a_class_is_called_in_a_sequential():
    class Twice(nn.Linear):
        def __call__(self, x):
            return 2 * super().__call__(x)

    layer = Twice(2, 2)
    assert torch.equal(nn.Sequential(layer)(torch.ones(1, 2)), layer(torch.ones(1, 2)))
    assert torch.equal(layer(torch.ones(1, 2)), 2 * F.linear(torch.ones(1, 2), layer.weight, layer.bias))


def test_files_of_weights_refuse_a_state_of_a_class(tmp_path):
    net = nn.Sequential(Counter())
    with pytest.raises(torch.Error, match=r"Counter has a part of the state that only its get_extra_state\(\) knows"):
        torch.save_weights(str(tmp_path / "w.safetensors"), net)
    data = torch.utils.data.TensorDataset(torch.rand(8, 1), torch.zeros(8, dtype=torch.int64))
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(torch.Error, match="trainer: save_folder: Counter has a part"):
        torch.Trainer(net, sgd, data, save_folder=tmp_path / "run")


def test_ctc_loss_checks_its_lengths():
    log_probs, targets = torch.log_softmax(torch.randn(4, 1, 3), 2), torch.tensor([[1, 2]])
    one = torch.tensor([1])
    for frames in (9, 5):
        with pytest.raises(torch.Error, match=f"ctc_loss: input_lengths: a length is {frames}, expected 0 to 4"):
            F.ctc_loss(log_probs, targets, torch.tensor([frames]), one)
    with pytest.raises(torch.Error, match="input_lengths: a length is -3"):
        F.ctc_loss(log_probs, targets, torch.tensor([-3]), one)
    for length in (3, -1):
        with pytest.raises(torch.Error, match=f"ctc_loss: target_lengths: a length is {length}, expected 0 to 2"):
            F.ctc_loss(log_probs, targets, torch.tensor([4]), torch.tensor([length]))
    # No frames say nothing.
    none = torch.tensor([0])
    assert F.ctc_loss(log_probs, targets, none, one).item() == float("inf")
    assert F.ctc_loss(log_probs, targets, none, one, zero_infinity=True).item() == 0
    assert 0 < F.ctc_loss(log_probs, targets, torch.tensor([4]), one).item() < 100


def test_targets_that_are_numbers_may_be_whole():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    signs, bits, counts = torch.tensor([1, -1, 1]), torch.tensor([[1, 0, 1, 0]] * 3), torch.tensor([[2, 0, 1, 5]] * 3)
    for f, arguments, target in ((F.cosine_embedding_loss, (x, y), signs), (F.soft_margin_loss, (x[:, 0],), signs),
                                 (F.margin_ranking_loss, (x[:, 0], y[:, 0]), signs),
                                 (F.hinge_embedding_loss, (x[:, 0],), signs),
                                 (F.multilabel_soft_margin_loss, (x,), bits), (F.poisson_nll_loss, (x,), counts),
                                 (F.l1_loss, (x,), counts), (F.smooth_l1_loss, (x,), counts),
                                 (F.huber_loss, (x,), counts)):
        assert f(*arguments, target).item() == f(*arguments, target.float()).item(), f
    with pytest.raises(torch.Error, match=r"target is \[2\] f32 on .*, expected \[3\] f32, one for each vector"):
        F.cosine_embedding_loss(x, y, signs[:2])


# A part that is None keeps its kind: a tensor that is assigned to a buffer's name becomes a buffer.
def test_parts_that_are_none():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", None)
            self.register_buffer("scratch", None, persistent=False)
            self.register_buffer("mean", torch.ones(2))
            self.register_parameter("scale", None)
            self.add_module("head", None)
            self.layer = nn.Linear(1, 1)

    net = Net()
    assert list(net._buffers) == ["mean", "cache", "scratch"] and net._buffers["cache"] is None
    assert net._parameters["scale"] is None and net._modules["head"] is None
    net.cache, net.scratch, net.mean, net.layer = torch.arange(3), torch.ones(1), None, None
    assert list(net.state_dict()) == ["cache"] and [name for name, _ in net.named_buffers()] == ["cache", "scratch"]
    net.mean = torch.zeros(2)
    copied = copy.deepcopy(net).double()
    assert list(copied.state_dict()) == ["cache", "mean"] and copied.mean.dtype == torch.float64
    for name, value, kind in (("scale", torch.ones(1), "parameter"), ("head", 5, "child"), ("layer", 5, "child")):
        with pytest.raises(TypeError, match=f"as {kind} '{name}'"):
            setattr(net, name, value)
    net.register_buffer("scratch", None)
    net.scale, net.head, net.layer = nn.Parameter(torch.ones(1)), nn.ReLU(), nn.Linear(2, 1)
    net.scratch = torch.ones(1)
    assert {"scale", "layer.weight", "scratch"} < set(net.state_dict())
    del net.mean
    net.mean = 5  # no buffer's name any more
    assert net.mean == 5


# The library computes without a part that the constructor did not make: setting one would change nothing.
@pytest.mark.parametrize("layer, name", [
    (nn.Linear(2, 2, bias=False), "bias"), (nn.Conv2d(2, 2, 1, bias=False), "bias"),
    (nn.ConvTranspose2d(2, 2, 1, bias=False), "bias"), (nn.BatchNorm1d(2, affine=False), "weight"),
    (nn.BatchNorm1d(2, affine=False), "bias"), (nn.BatchNorm1d(2, track_running_stats=False), "running_mean"),
    (nn.LayerNorm(2, elementwise_affine=False), "weight"), (nn.GroupNorm(1, 2, affine=False), "bias"),
    (nn.InstanceNorm1d(2), "weight"), (nn.LSTM(2, 2, bias=False), "bias_ih_l0"),
    (nn.GRUCell(2, 2, bias=False), "bias_hh"), (nn.MultiheadAttention(2, 1, bias=False), "in_proj_bias")])
def test_parts_that_a_layer_computes_without(layer, name):
    with pytest.raises(torch.Error, match=f"{name} for a layer that was made without it, and would not use it"):
        if name.startswith("running"):
            layer.register_buffer(name, torch.ones(2))
        else:
            layer.register_parameter(name, nn.Parameter(torch.ones(2)))
    with pytest.raises((torch.Error, TypeError)):
        setattr(layer, name, torch.ones(2))
    assert name not in layer.state_dict()


def test_own_forward_may_use_what_the_layer_computes_without():
    class Mine(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(x, self.weight, self.bias) if self.mine else super().forward(x)

    layer = Mine(2, 2, bias=False)
    layer.bias, layer.mine = nn.Parameter(torch.full((2,), 100.0)), True
    assert layer(torch.zeros(1, 2)).tolist() == [[100, 100]]
    layer.mine = False
    with pytest.raises(torch.Error, match="forward.. of Mine after a change of bias"):
        layer(torch.zeros(1, 2))


def test_a_handle_removes_its_hook_once():
    layer, calls = nn.Linear(1, 1), []

    def count(*args):
        calls.append(1)

    first, second = layer.register_forward_hook(count), layer.register_forward_hook(count)
    first.remove()
    first.remove()
    layer(torch.ones(1, 1))
    assert len(calls) == 1
    second.remove()
    layer(torch.ones(1, 1))
    assert len(calls) == 1


def test_a_handle_keeps_neither_module_nor_hook():
    class Hook:
        def __init__(self, *held):
            self.held = held

        def __call__(self, *args, **kwargs):
            return None

    def registered():
        net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        y = net(torch.ones(1, 2))
        plain = nn.ReLU()
        plain._forward_hooks = {}
        hook, of_result = Hook(net, plain), Hook()
        handles = [plain.register_forward_hook(hook), net[0].weight.register_hook(hook), y.register_hook(of_result)]
        for kind in ("forward", "forward_pre", "full_backward", "full_backward_pre", "state_dict_pre",
                     "state_dict_post", "load_state_dict_pre", "load_state_dict_post"):
            handles.append(getattr(net, f"register_{kind}_hook")(hook))
        return handles, [weakref.ref(value) for value in (net, plain, hook, of_result)]

    handles, objects = registered()
    gc.collect()
    assert [value() for value in objects] == [None] * 4
    for handle in handles + copy.deepcopy(handles[3:]):
        handle.remove()


def test_a_handle_in_a_copy_is_of_the_copy():
    net, calls = nn.Linear(1, 1), []
    handle = net.register_forward_hook(lambda *args: calls.append(1))
    copied, twin = copy.deepcopy([handle, net])
    copied.remove()
    net(torch.ones(1, 1)), twin(torch.ones(1, 1))
    assert len(calls) == 1
    copy.copy(handle).remove()
    net(torch.ones(1, 1))
    assert len(calls) == 1


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
@pytest.mark.parametrize("given", [None, dict, OrderedDict])
def test_the_dict_of_hooks_stays_when_the_last_is_removed(kind, given):
    net, x, calls = nn.Sequential(nn.Linear(1, 1)), torch.ones(1, 1, requires_grad=True), []

    def hook(*args):
        calls.append(1)

    name = f"_{kind.replace('full_', '')}_hooks"
    if given is not None:
        setattr(net[0], name, given())
    kept = getattr(net[0], name)
    handle = getattr(net[0], f"register_{kind}_hook")(hook)
    assert list(kept.values()) == [hook] and repr(kept) == repr((given or OrderedDict)(kept))
    handle.remove()
    assert getattr(net[0], name) is kept and not kept
    net(x).sum().backward()
    assert not calls
    kept[7] = hook  # without register_*_hook()
    net(x).sum().backward()
    copy.deepcopy(net)(x).sum().backward()
    assert len(calls) == 2
    copied = copy.deepcopy(net)
    getattr(copied[0], name).clear()
    copied(x).sum().backward()
    assert len(calls) == 2
    getattr(copied[0], name)[8] = hook
    copied(x).sum().backward()
    assert len(calls) == 3 and list(kept) == [7]


def test_the_library_calls_a_layer_without_hooks():
    layer = nn.Linear(1, 1)
    kept = layer._forward_hooks
    assert "_call_hooked" not in layer.__dict__
    handle = layer.register_forward_hook(lambda *args: None)
    assert "_call_hooked" in layer.__dict__
    handle.remove()
    assert "_call_hooked" not in layer.__dict__ and layer._forward_hooks is kept
    lazy = nn.LazyLinear(1)
    lazy(torch.ones(1, 1))
    assert "_call_hooked" not in lazy.__dict__


def test_a_weight_may_be_of_two_modules():
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    b.weight = a.weight
    x = torch.ones(2, 4)
    (a(x) + b(x)).sum().backward()
    assert a.weight.grad.tolist() == [[4.0] * 4] * 4


def test_attention_of_groups_repeats_the_heads_of_keys():
    torch.manual_seed(0)
    for heads in (1, 2, 4):
        q, k, v = (torch.randn(2, n, 5, 8).requires_grad_() for n in (4, heads, heads))
        all_k, all_v = (x.detach().repeat_interleave(4 // heads, 1) for x in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        assert torch.allclose(y, F.scaled_dot_product_attention(q, all_k, all_v, is_causal=True), atol=1e-6)
        y.sum().backward()
        assert k.grad.shape == k.shape and v.grad.shape == v.shape
    with pytest.raises(torch.Error, match="where Hkv divides Hq"):
        F.scaled_dot_product_attention(torch.ones(1, 4, 2, 2), torch.ones(1, 3, 2, 2), torch.ones(1, 3, 2, 2),
                                       enable_gqa=True)


def rotated(x, interleaved, base=10000.0):
    """The formula for one vector at positions 0, 1, ...: rows of x."""
    rows = []
    for p, row in enumerate(x.tolist()):
        out, half = list(row), len(row) // 2
        for i in range(half):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
            angle = p * base ** (-2 * i / len(row))
            out[a] = row[a] * math.cos(angle) - row[b] * math.sin(angle)
            out[b] = row[a] * math.sin(angle) + row[b] * math.cos(angle)
        rows.append(out)
    return torch.tensor(rows)


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotary_embeddings_follow_the_formula(interleaved):
    torch.manual_seed(0)
    x = torch.randn(6, 8)
    expected = rotated(x, interleaved)
    cos, sin = F.rotary_tables(8, 6)
    assert torch.allclose(F.rotary_embedding(x, cos, sin, interleaved=interleaved), expected, atol=1e-5)
    rope = nn.RotaryPositionalEmbeddings(8, max_seq_len=6, interleaved=interleaved)
    assert rope.dim == 8 and rope.max_seq_len == 6 and rope.state_dict() == {}
    heads = x.reshape(1, 6, 1, 8)
    assert torch.allclose(rope(heads).reshape(6, 8), expected, atol=1e-5)
    # A cache has the keys before position 4.
    assert rope(heads[:, 4:], input_pos=4).tolist() == rope(heads)[:, 4:].tolist()
    assert rope(heads[:, 4:], input_pos=torch.tensor([4, 5])).tolist() == rope(heads)[:, 4:].tolist()
    with pytest.raises(torch.Error, match="2 positions from 5 on, expected them in the 6 of max_seq_len"):
        rope(heads[:, 4:], input_pos=5)


def test_feed_forward_is_swiglu():
    layer = nn.FeedForward(4, 6)
    assert list(layer.state_dict()) == ["gate_proj.weight", "up_proj.weight", "down_proj.weight"]
    x = torch.randn(3, 4)
    expected = layer.down_proj(F.silu(layer.gate_proj(x)) * layer.up_proj(x))
    assert layer(x).tolist() == expected.tolist()
    assert copy.deepcopy(layer)(x).tolist() == expected.tolist()
    assert layer.gate_proj.bias is None and nn.FeedForward(4, 6, bias=True).down_proj.bias.shape == (4,)
