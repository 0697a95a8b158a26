import copy
import pickle

import numpy as np
import pytest

import lockstep as torch


def test_shape_prints_as_pytorch_prints_it():
    assert repr(torch.randn(2, 3).shape) == "torch.Size([2, 3])"


def test_numbers_meet_tensors_as_in_pytorch():
    i = torch.arange(5)
    assert (i * 2).dtype == torch.int64 and (i * 2.5).dtype == torch.float32
    assert (2**i).tolist() == [1, 2, 4, 8, 16] and (1 - i).tolist() == [1, 0, -1, -2, -3]
    assert (7 // (i + 1)).tolist() == [7, 3, 2, 1, 1] and (i % 3).tolist() == [0, 1, 2, 0, 1]
    assert ((i > 2) * 2).dtype == torch.int64
    assert (i + 2**60).tolist()[4] == 2**60 + 4
    assert (i > 2.5).tolist() == [0, 0, 0, 1, 1]
    assert (np.float64(2) * i).dtype == torch.float32


def test_write_in_place():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    also_y = y
    y += x
    assert also_y is y
    y.sum().backward()
    assert x.grad.tolist() == [3, 3]
    with pytest.raises(torch.Error, match="leaf"):
        x += 1
    i = torch.arange(3)
    with pytest.raises(torch.Error, match="expected i64"):
        i += 0.5


def test_array_shares_memory():
    a = np.zeros((2, 3), np.float32)
    t = torch.from_numpy(a)
    t += 1
    assert a.sum() == t.numpy().sum() == 6
    t.numpy()[0, 0] = 5
    assert a[0, 0] == 5
    with pytest.raises(torch.Error, match="must not be written|copy of an array"):
        t = torch.from_numpy(np.zeros(3, np.int32))
        t += 1


def test_no_grad_is_a_scope_and_a_decorator():
    @torch.no_grad()
    def mode():
        return torch.is_grad_enabled()

    with torch.no_grad():
        with torch.enable_grad():
            assert torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
    assert not mode() and torch.is_grad_enabled()


def _pair():
    a = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    return a, torch.tensor(a)


@pytest.mark.parametrize("key", [0, -1, (0, 1), slice(1), (slice(None), 0), (Ellipsis, 0), (Ellipsis, slice(1, 3)),
                                 None, (0, None, 1), [0, 1], ([0, 1], [1, 2]), (slice(None), [0, 2]), np.array([0, 1]),
                                 (slice(None), np.array([True, False, True])), (1, Ellipsis, -1),
                                 (slice(None), slice(1, None), slice(0, 4, 3))], ids=repr)
def test_index_reads_and_writes_as_numpy(key):
    a, x = _pair()
    assert np.array_equal(x[key].numpy(), a[key])
    x[key] += 1
    a[key] += 1
    assert np.array_equal(x.numpy(), a)
    x[key] = -2
    a[key] = -2
    assert np.array_equal(x.numpy(), a)


def test_mask_and_position_outside():
    a, x = _pair()
    x[x > 10] = 0
    a[a > 10] = 0
    assert np.array_equal(x.numpy(), a)
    with pytest.raises(IndexError):
        x[2]
    with pytest.raises(ValueError, match="step"):
        x[::-1]


def test_write_to_a_view_reaches_the_tensor():
    for write in [lambda x: x[:, 0], lambda x: x.transpose(0, 1)[1], lambda x: x.permute(2, 0, 1), lambda x: x[:, 1].T,
                  lambda x: x.view(-1)[3:9], lambda x: x.split(1, 1)[2], lambda x: list(x)[1], lambda x: x.detach()]:
        a, x = _pair()
        view = write(x)
        view += 100
        assert (x >= 100).sum().item() == view.numel()
    a, x = _pair()
    copy = x.transpose(0, 1).contiguous()
    copy += 1
    assert np.array_equal(x.numpy(), a)


def test_index_write_has_a_gradient():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y[0] = x[1] * 5
    y.sum().backward()
    assert x.grad.tolist() == [0, 7, 2]
    z = x * 2
    row = z.view(3, 1)
    with pytest.raises(torch.Error, match="views"):
        z += 1
    assert row.shape == (3, 1)


def test_prints_as_pytorch():
    assert str(torch.tensor([1.0, 2.5])) == "tensor([1.0000, 2.5000])"
    assert str(torch.tensor([[1.0], [float("inf")]])) == "tensor([[1.],\n        [inf]])"
    assert str(torch.tensor([1e-5, 1.0])) == "tensor([1.0000e-05, 1.0000e+00])"
    assert str(torch.arange(2000)) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
    assert str(torch.zeros(2, 0)) == "tensor([], size=(2, 0))"
    assert str(torch.ones(1, requires_grad=True)) == "tensor([1.], requires_grad=True)"
    assert repr(torch.ones(1, 2).max(1)).startswith("torch.return_types.max(\nvalues=tensor([1.]),\n")


def test_copies_and_pickles():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y is not x and y.requires_grad and y.tolist() == [1, 2]
    p = pickle.loads(pickle.dumps(torch.nn.Parameter(x.detach())))
    assert isinstance(p, torch.nn.Parameter) and p.tolist() == [1, 2]
    assert x in [x] and {x: 1}[x] == 1


def test_view_of_what_is_not_contiguous_is_an_error():
    x = torch.arange(6).reshape(2, 3)
    assert x.is_contiguous() and x.view(3, -1).is_contiguous() and not x.t().is_contiguous()
    with pytest.raises(torch.Error, match=r"use reshape\(\)"):
        x.t().view(-1)
    assert x.t().view(3, 2, 1).shape == (3, 2, 1) and x.t().contiguous().view(-1).tolist() == [0, 3, 1, 4, 2, 5]


def test_messages_have_words_of_python():
    p = torch.nn.Parameter(torch.ones(2))
    p.sum().backward()
    with pytest.raises(torch.Error, match=r"use p.grad = t, p.register_hook\(f\)"):
        p.grad.mul_(2)
    assert issubclass(torch.TaskError, torch.Error) and issubclass(torch.Error, RuntimeError)


def test_words_of_numpy():
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert x.sum(axis=0).tolist() == [3, 5, 7] and x.mean(1, keepdims=True).shape == (2, 1)
    assert x.argmax(axis=1).tolist() == [2, 2] and torch.cat([x, x], axis=1).shape == (2, 6)
    assert torch.normal(0, 0.01, (2, 3), requires_grad=True).abs().max().item() < 1


def test_constructor():
    assert torch.Tensor([1, 2]).tolist() == [1, 2] and torch.Tensor(2, 3).shape == (2, 3)
    assert torch.Tensor([1, 2]).dtype == torch.float32 and torch.LongTensor([1]).dtype == torch.int64


def test_in_place_methods():
    x = torch.zeros(3)
    assert x.add_(torch.ones(3), alpha=-0.5) is x and x.tolist() == [-0.5] * 3
    x.fill_(4).sqrt_().clamp_(max=1)
    assert x.tolist() == [1] * 3
    assert x.zero_().tolist() == [0] * 3 and x.copy_(torch.arange(3)).tolist() == [0, 1, 2]
    with pytest.raises(TypeError):
        x.add_(1, beta=2)


def test_dlpack_both_ways():
    theirs = pytest.importorskip("torch")
    x = torch.arange(3).float()
    y = theirs.from_dlpack(x)
    y += 1
    assert x.tolist() == [1, 2, 3]
    a = theirs.ones(2, 2)
    b = torch.from_dlpack(a)
    b += 1
    assert a.sum().item() == 8 and torch.tensor(a).tolist() == [[2, 2], [2, 2]]
    assert torch.from_dlpack(np.ones(3, np.float32)).sum().item() == 3


def test_a_write_that_a_gradient_needs_keeps_views():
    x = torch.ones(2, 2, requires_grad=True)
    y = (x * 3).t()
    y[0] = 0  # nobody else sees the product
    y.sum().backward()
    assert x.grad.tolist() == [[0, 3], [0, 3]]
    with torch.no_grad():
        x[:, 0] = 7
    assert x.tolist() == [[7, 1], [7, 1]] and x.requires_grad


def test_names_of_the_package_are_pytorchs_and_its_own():
    classes = {name for name in dir(torch) if isinstance(getattr(torch, name), type) and not name.startswith("_")}
    classes -= {name for name in classes if name.endswith("Tensor") and name != "Tensor"}
    assert classes == set(
        "Accuracy AuditFailure AuditResult CancelledError DataSource EpochReport Error Generator Metric Predictor "
        "RankLost Run Size StepGraph StepReport TaskError Tensor TensorBoardWriter Timeline Trainer TrainingResult "
        "autocast device dtype enable_grad finfo iinfo inference_mode no_grad progress set_grad_enabled".split())
    assert not hasattr(torch, "internal") and not hasattr(torch, "default_shards")


@pytest.mark.parametrize("name, args", [
    ("relu", ()), ("relu6", ()), ("selu", ()), ("silu", ()), ("mish", ()), ("hardsigmoid", ()), ("hardswish", ()),
    ("leaky_relu", ()), ("elu", ()), ("celu", ()), ("hardtanh", ()), ("threshold", (0.5, 0.0)), ("dropout", (0.5,)),
    ("dropout1d", (0.5,)), ("dropout2d", (0.5,))])
def test_functions_in_place(name, args):
    f = getattr(torch.nn.functional, name)
    w = torch.randn(2, 3, 4, 5)[..., 0] if name == "dropout1d" else torch.randn(2, 3, 4, 5)
    w = w.clone().requires_grad_()
    with pytest.raises(torch.Error, match="leaf"):
        f(w, *args, inplace=True)
    torch.manual_seed(1)
    expected = f(w.detach(), *args)
    x = torch.zeros_like(w)
    view = x[1:]
    x.copy_(w.detach())
    torch.manual_seed(1)
    assert f(x, *args, inplace=True) is x  # and what shares its memory sees it
    assert x.tolist() == expected.tolist() and view.tolist() == expected[1:].tolist()
    y = w * 1
    torch.manual_seed(1)
    f(y, *args, inplace=True)
    assert y.requires_grad and y.tolist() == expected.tolist()


# What a program prints with either library.
VIEWS = {
    "base": "x[:, 0]; x += 1; v = x[:, 0]; w = x[:, 1:]; x *= 2; show(v, w)",
    "chain": "v = x[:, 0].t()[0]; w = x[1].t()[::2]; u = x.permute(2, 0, 1)[1][:, 1]; x.add_(1); show(v, w, u)",
    "sibling": "v = x[:, 0]; w = x[..., 0]; v += 10; show(w, x); w.mul_(2); show(v, x)",
    "view of a view": "v = x[:, 1]; w = v.t(); u = w[0]; x[0] = 5; show(u); u.zero_(); show(x, v, w); v += 1; "
                      "show(u, w, x)",
    "rows of a view": "v = x[:, 1]; row = v[0]; x.mul_(3); show(row); row -= 1; show(x, v); v[1] = 0; show(x, row)",
    "x[...] = y": "v = x[:, ::2]; x[...] = 7; show(v); x[:, 0] = 1; show(v); v[0, 0] = 2; show(x)",
    "squeeze": "v = x[:, 0].unsqueeze(1); v += 1; show(x); w = v.squeeze(1); x[0] = 0; show(v, w); w.fill_(3); "
               "show(x, v)",
    "reshape": "v = x[:, 0].reshape(-1, 1, 4); w = x[:, :, 1].reshape(-1); x += 1; show(v, w); v *= 2; w[0] = 9; "
               "show(x)",
    "reshape that copies": "v = x.transpose(0, 1).reshape(-1); w = x[:, :2].flatten(); x += 1; v += 5; show(v, w, x)",
    "contiguous": "t = x.permute(2, 0, 1); v = t.contiguous(); t += 1; show(v, t, x); v.zero_(); show(t, x); "
                  "x += 1; show(v, t)",
    "contiguous of a view": "t = x.transpose(0, 1); r = t[1]; v = r.contiguous(); w = v[0]; r += 1; w += 5; "
                            "show(t, r, v, w, x)",
    "twice transposed": "v = x.transpose(0, 2).transpose(0, 2).contiguous(); v += 1; show(x)",
    "expand": "v = x[:, :1].expand(2, 3, 4); x += 1; show(v, v.reshape(-1)); u = x[0, 0].expand(2, 4); x *= 2; show(u)",
    "detach and data": "v = x[:, 1].detach(); w = v.data; x += 1; show(v, w); w *= 2; show(x, v)",
    "parts": "a, b, c = x.unbind(1); d, e = x.split(2, 2); f = x.chunk(3, 1)[2]; x += 1; show(a, b, c, d, e, f); "
             "e.zero_(); show(a, f)",
    "as an index, in a list": "i = (x[:, 0, 0] * 0).long(); v = x[:, 1]; x += 1; show(torch.cat([v, v]), x[i], v[i])",
    "narrow and movedim": "v = x.movedim(2, 0); w = v.narrow(1, 0, 1); u = x.select(1, 2); x -= 1; show(v, w, u); "
                          "u += 9; show(w, v, x)",
    "the base is gone": "v = (x * 2).permute(2, 1, 0); w = v[1]; v += 1; show(w, v, v.reshape(-1)); w += 1; show(v)",
    "a loop": "v = x\nfor _ in range(6): v = v.transpose(0, 1)\nx += 1; show(v); v += 1; show(x)",
    "a swap": "x[:, 0], x[:, 1] = x[:, 1].clone(), x[:, 0].clone(); v = x[0]; w = x[:, 2]; x[:, 2] = v[:2]; "
              "show(x, v, w)",
    "numbers": "v = x[:, 0, 0]; x += 1; show(v.tolist(), v[1].item(), float(v[0]), v.numpy().copy(), len(v), list(v))",
    "parameters": "p = torch.nn.Parameter(x); v = p.data[:, 0]; sgd = torch.optim.SGD([p], lr=1.0); "
                  "p.sum().backward()\n"
                  "sgd.step(); show(v)\nwith torch.no_grad(): p.copy_(torch.ones(2, 3, 4))\nshow(v)",
    "no_grad": "p = torch.nn.Parameter(x); v = p[:, 0]\nwith torch.no_grad(): p.mul_(2); w = p[:, 1]; p.add_(1); "
               "w += 1\n"
               "show(v, w, p.data); v.square().sum().backward(); show(p.grad)",
    "a gradient": "p = x.clone().requires_grad_(); y = p * 1; "
                  "v = y.transpose(0, 1)[1]\nwith torch.no_grad(): y.mul_(3)\n"
                  "(v * v).sum().backward(); show(v, p.grad)",
    "a leaf": "v = x[:, 0].requires_grad_(); (v * 2).sum().backward(); x[0] = 3; v.square().sum().backward(); "
              "show(v, v.grad)",
}


@pytest.mark.parametrize("program", VIEWS.values(), ids=VIEWS)
def test_views_follow_as_pytorchs(program):
    def shown(library):
        found = []

        def number(x):
            return np.array(x.detach().tolist()) if hasattr(x, "detach") else x

        def show(*values):
            found.extend(np.array([number(item) for item in x] if isinstance(x, list) else number(x)) for x in values)

        exec(program, {"torch": library, "show": show, "x": library.arange(24).float().reshape(2, 3, 4)})
        return found

    ours, theirs = shown(torch), shown(pytest.importorskip("torch"))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert np.array_equal(a, b)


def test_views_do_not_keep_memory():
    def size():
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * 4

    x = torch.ones(64, 64)
    for i in range(10_000):
        if i == 1_000:
            before = size()
        x = x.t()
        column = x[:, 1]
        x.mul_(1)
        column += 0
    assert size() < before + 8_000  # KiB


def test_a_recorded_write_that_a_copied_view_would_not_see():
    y = torch.ones(2, 2, requires_grad=True) * 2
    column = y[:, 0]
    with pytest.raises(torch.Error, match="views"):
        y += 1
    del column
    y += 1
    x = torch.ones(2, 2)
    with pytest.raises(ValueError, match="read-only"):
        x.t().numpy()[0, 0] = 0
    torch.ones(2, 2).t().numpy()[0, 0] = 0  # nobody else has it


def test_grad_as_pytorch():
    def found(library):
        a = library.arange(6).float().reshape(2, 3).requires_grad_()
        b = (library.ones(3) * 2).requires_grad_()
        h = (a * b).sin()
        k = h * a
        loss = (k * h).sum() + b.sum()
        yield from library.autograd.grad(loss, [h, b, a, k])
        yield from library.autograd.grad([a * b, b], (b, a), [library.ones(2, 3), library.arange(3).float()])
        y = a * 3
        yield from library.autograd.grad(y, [y, a], library.ones(2, 3))
        yield from library.autograd.grad(y.exp().sum(), y)
        z = library.nn.Parameter(library.ones(2, 3))
        yield from library.autograd.grad((z * a).sum(), [z, a, b], allow_unused=True)
        assert a.grad is None and b.grad is None and z.grad is None
        (a * z + y.detach()).sum().backward()  # what leaves get afterwards is as before
        yield from (a.grad.clone(), z.grad.clone())
        library.autograd.backward([a.sum(), (b * 2).sum()])
        yield from (a.grad, b.grad)

    ours, theirs = list(found(torch)), list(found(pytest.importorskip("torch")))
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs):
        assert (x is None) == (y is None) and (x is None or np.allclose(x.tolist(), y.tolist(), atol=1e-6))
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(torch.Error, match="allow_unused"):
        torch.autograd.grad((x * 2).sum(), [x, torch.ones(2, requires_grad=True)])
    y = (x * 2).sum()
    with pytest.raises(torch.Error, match="scalar"):
        torch.autograd.grad([y, x * 3], x)
    y.backward()  # the leaf gets its gradient in spite of the error
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(torch.Error, match="create_graph"):
        torch.autograd.grad(x.sum(), x, create_graph=True)


def test_generators():
    def draws(seed):
        g = torch.Generator().manual_seed(seed)
        x = torch.zeros(4)
        return [d.tolist() for d in (
            torch.randn(2, 2, generator=g), torch.rand((3,), generator=g), torch.rand(3, generator=g),
            torch.randint(10, (5,), generator=g), torch.randint(5, 10, (5,), generator=g),
            torch.randperm(9, generator=g), torch.normal(1, 2, (3,), generator=g),
            torch.bernoulli(torch.full((9,), 0.5), generator=g), x.normal_(generator=g),
            x.clone().uniform_(-1, 1, generator=g), x.clone().bernoulli_(0.5, generator=g))]

    torch.manual_seed(3)
    before = torch.rand(1).item()
    torch.manual_seed(3)
    first = draws(1)
    assert torch.rand(1).item() == before  # the program's stream goes on as if nothing had been drawn
    assert first == draws(1) != draws(2) and first[1] != first[2] and sorted(first[5]) == list(range(9))
    with pytest.raises(TypeError, match="Generator"):
        torch.rand(1, generator=5)


def test_whole_products_are_exact():
    rng = np.random.default_rng(0)
    for a, b in [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
                 ((5, 2, 3), (5, 3, 4)), ((1, 6, 2, 3), (5, 1, 3, 4)), ((2, 0), (0, 2)), ((300, 200), (200, 100))]:
        a, b = (rng.integers(-2**40, 2**20, shape) for shape in (a, b))
        found = torch.tensor(a) @ torch.tensor(b)
        assert found.dtype == torch.int64 and np.array_equal(found.numpy(), a @ b)
    with pytest.raises(torch.Error, match="columns"):
        torch.ones(2, 3).long() @ torch.ones(2, 3).long()
    assert torch.mm(torch.eye(2).long(), torch.eye(2).long()).tolist() == [[1, 0], [0, 1]]
    assert (~torch.tensor([0, 5, -3])).tolist() == [-1, -6, 2]


def test_a_whole_number_in_a_tensor_is_a_position():
    a = torch.zeros(3, 2)
    for i in torch.tensor([0, 2]):
        a[i][0] = 7
    a[:, np.int64(1)].add_(1)
    a[np.array(2), torch.tensor(1)] = 5
    assert a.tolist() == [[7, 1], [0, 1], [7, 5]]
    row = a[torch.tensor(-1)]
    a.zero_()
    assert row.tolist() == [0, 0]
    with pytest.raises(IndexError):
        a[torch.tensor(3)]


def test_arrays_are_operands():
    p, a = torch.ones(3, requires_grad=True), np.arange(3.0, dtype=np.float32)
    ((p * a).sum() + (a - p).sum()).backward()
    assert p.grad.tolist() == [-1, 0, 1]
    with pytest.raises(torch.Error, match="use detach"):
        np.asarray(p)
    x = torch.ones(3)
    x += a
    assert x.tolist() == [1, 2, 3] and (a / x).dtype == torch.float32 and (x > a).tolist() == [1, 1, 1]
    assert torch.tensor([a, a]).shape == (2, 3) and torch.tensor([torch.ones(1), 2.0]).tolist() == [1, 2]


def test_the_array_of_a_device_is_a_copy():
    net = torch.nn.Linear(2, 2)
    net(torch.ones(1, 2)).sum().backward()
    before = net.weight.detach().numpy()
    kept = before.copy()
    torch.optim.SGD(net.parameters(), lr=1.0).step()
    assert not before.flags.writeable and (before == kept).all()
    assert (net.weight.detach().numpy() != kept).all()


def test_joining_promotes():
    x = torch.ones(2, 3)
    assert torch.cat([torch.tensor([]), x]).shape == (2, 3)
    assert torch.cat([torch.ones(1), torch.arange(2)]).dtype == torch.float32
    assert torch.stack([torch.ones(1), torch.ones(1).double()]).dtype == torch.float64
    assert isinstance(x, torch.FloatTensor) and not isinstance(x, torch.LongTensor) and x.type() == "torch.FloatTensor"
    assert x.shape[:-1].numel() == 2 and torch.FloatTensor(2, 3).shape == x.shape
    with pytest.raises(IndexError):
        x.sum(2**40)
    with torch.inference_mode(False):
        assert (torch.ones(1, requires_grad=True) * 2).requires_grad


def test_affine_grid_is_pytorchs():
    theirs = pytest.importorskip("torch")
    theta = [[[1.0, 0.2, 0.1], [0.0, 0.9, -0.3]]]
    for corners in (True, False):
        expected = theirs.nn.functional.affine_grid(theirs.tensor(theta), (1, 1, 2, 3), align_corners=corners)
        grid = torch.nn.functional.affine_grid(torch.tensor(theta), (1, 1, 2, 3), align_corners=corners)
        assert grid.flatten().tolist() == pytest.approx(expected.flatten().tolist(), abs=1e-6)


def test_a_copy_on_a_device_is_no_alias():
    first = torch.devices()[0]
    x = torch.ones(2)
    assert x.to("cpu") is x and x.to(torch.device("cpu")) is x and x.cpu() is x
    for device in (first, "cpu:0"):
        y = x.to(device)
        assert y is not x and y.device == first and y.to(device) is y
        x.fill_(2)
        assert y.tolist() == [1, 1]
        y.requires_grad_()
        assert not x.requires_grad
        x.fill_(1)


# As PyTorch: the widest of the types of NumPy's numbers and of tensors without axes; fractions of Python are float32.
@pytest.mark.parametrize("data,dtype", [
    ([np.float64(1)], "float64"), ([1.0, np.float64(2)], "float64"), ([np.float32(1)], "float32"),
    ([np.float16(1), 2], "float16"), ([np.float16(1), 2.0], "float32"), ([[np.uint8(1)], [True]], "uint8"),
    ([np.uint8(1), 2], "int64"), ([np.uint8(1), np.float16(2)], "float16"), ([np.bool_(True)], "bool"),
    ([1, 2.0], "float32"), ([True, 2], "int64"), ([], "float32")])
def test_lists_have_the_types_of_their_numbers(data, dtype):
    assert torch.tensor(data).dtype == torch.as_tensor(data).dtype == getattr(torch, dtype)
    assert torch.tensor(data, dtype=torch.float32).dtype == torch.float32


def test_lists_of_tensors_have_their_types():
    assert torch.tensor([torch.tensor(1.0).double(), 2.0]).dtype == torch.float64
    assert torch.tensor([torch.tensor(1.0).half(), torch.tensor(1.0).bfloat16()]).dtype == torch.float32
    x = torch.zeros(2)
    x[:] = [np.float64(0.5), 1]
    assert x.dtype == torch.float32 and x.tolist() == [0.5, 1]


def test_copies_of_a_leaf():
    x = torch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    deep = copy.deepcopy([x, x.grad, x])
    assert deep[0] is deep[2] and deep[0].requires_grad and deep[0].grad.tolist() == [3, 3]
    (deep[0] * 2).sum().backward()
    assert deep[0].grad.tolist() == [5, 5] and x.grad.tolist() == [3, 3]
    assert copy.deepcopy(torch.ones(1, requires_grad=True)).grad is None
    p = torch.nn.Parameter(torch.ones(1))
    (p * 2).sum().backward()
    assert copy.deepcopy(p).grad is None  # as in PyTorch
    y = torch.ones(2)
    shared = copy.copy(y)
    shared[0] = 5
    assert y.tolist() == [5, 1] and copy.copy(x).requires_grad
    with pytest.raises(torch.Error, match=r"expected copy\.deepcopy"):
        copy.copy(p)


def test_copies_have_the_attributes_of_a_program():
    x = torch.ones(2)
    x.names_of = ["a"]
    deep, shallow = copy.deepcopy(x), copy.copy(x)
    assert deep.names_of == ["a"] and deep.names_of is not x.names_of and shallow.names_of is x.names_of
