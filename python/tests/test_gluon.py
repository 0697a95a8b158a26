import math

import pytest

import lockstep as torch
from lockstep import gluon
from lockstep.gluon import autograd, gluon as same, init, mx, nd, nn, np, npx


def test_arrays_have_numpys_meaning():
    numpy = pytest.importorskip("numpy")
    data = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    x = np.array(data)
    assert type(x) is gluon.ndarray and isinstance(x, torch.Tensor) and x.size == 12 and x[0].size == 4
    for name in ("max", "min", "mean", "std", "var", "sum"):
        for axis in (None, 0, 1):
            numpy.testing.assert_allclose(getattr(x, name)(axis=axis).asnumpy(), getattr(data, name)(axis=axis), 1e-6)
    numpy.testing.assert_allclose(x.var(ddof=1).asnumpy(), data.var(ddof=1), 1e-6)
    numpy.testing.assert_array_equal(x.T.asnumpy(), data.T)
    numpy.testing.assert_array_equal(x.repeat(2).asnumpy(), data.repeat(2))
    numpy.testing.assert_array_equal(x.repeat(2, axis=1).asnumpy(), data.repeat(2, axis=1))
    numpy.testing.assert_array_equal((-x).sort(axis=0).asnumpy(), numpy.sort(-data, axis=0))
    numpy.testing.assert_array_equal(x.transpose(1, 0).asnumpy(), data.transpose(1, 0))
    assert (x > 3).mean().asscalar() == pytest.approx(8 / 12)
    with pytest.raises(AttributeError, match="no topk"):
        x.topk(1)


def test_products():
    a, b = np.array([[1, 2], [3, 4]]), np.array([5, 6])
    for dot in (np.dot, nd.dot, lambda x, y: x.dot(y)):
        assert dot(a, a).tolist() == [[7, 10], [15, 22]]
        assert dot(a, b).tolist() == [17, 39] and dot(b, b).item() == 61
    with pytest.raises(ValueError, match=r"dot: \[1, 2, 2\] and \[2\], expected one or two axes"):
        a.expand_dims(0).dot(b)


def test_copies_and_devices():
    x = nd.ones((2, 2), ctx=mx.gpu(0))
    y = x.copyto(mx.cpu())
    y[:] += 1
    assert x.sum().asscalar() == 4 and y.sum().asscalar() == 8
    z = nd.zeros((2, 2))
    assert y.copyto(z) is z and z.sum().asscalar() == 8
    assert x.as_in_ctx(mx.gpu(0)) is x and x.as_in_context(mx.gpu(0)).ctx == mx.gpu(0) == torch.devices()[0]
    a = x.asnumpy()
    a[0, 0] = 7
    assert x.sum().asscalar() == 4
    n = npx.num_gpus()
    assert n == len(torch.devices())
    with pytest.raises(ValueError, match=rf"gpu\({n}\): the program has {n} device"):
        mx.gpu(n)
    nd.waitall()
    npx.waitall()


# A tensor of the program stays one, also if a function of Gluon returns it.
def test_tensors_stay_tensors():
    x = torch.ones(4, 2)
    shards = gluon.utils.split_and_load(x, [mx.cpu()])
    assert type(shards[0]) is gluon.ndarray and type(x) is torch.Tensor and callable(x.size)
    net = nn.Sequential()
    assert type(net(x)) is gluon.ndarray and type(x) is torch.Tensor
    assert type(nd.array(x)) is gluon.ndarray and type(x) is torch.Tensor
    assert type(nd.dot(x, torch.ones(2))) is gluon.ndarray and type(x) is torch.Tensor


def test_a_loss_sums_its_gradients():
    net = nn.Dense(1, in_units=2)
    net.initialize(init.Normal(0.01))
    with autograd.record():
        assert autograd.is_recording()
        loss = gluon.loss.L2Loss()(net(np.ones((3, 2))), np.zeros((3, 1)))
    assert loss.size == 3
    loss.backward()
    y = net(np.ones((1, 2))).asscalar()
    assert net.weight.grad().tolist() == [[pytest.approx(3 * y)] * 2]


# Labels as np.array() makes them, float32; classes along the last axis, also where another one is as long.
def test_cross_entropy_takes_mxnets_labels():
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    assert loss(np.zeros((2, 4)), np.array([0, 3])).tolist() == [pytest.approx(math.log(4))] * 2
    assert loss(np.zeros((2, 4)), np.array([[0], [3]])).tolist() == [pytest.approx(math.log(4))] * 2
    logits, labels = np.arange(18).reshape(2, 3, 3) * 0.1, np.array([[0, 2, 1], [1, 1, 0]])
    each = torch.nn.functional.cross_entropy(logits.reshape(6, 3), labels.long().reshape(6), reduction="none")
    rows = each.reshape(2, 3).mean(1).tolist()
    assert loss(logits, labels).tolist() == pytest.approx(rows)
    along = gluon.loss.SoftmaxCrossEntropyLoss(axis=1)
    assert along(logits.swapaxes(1, 2), labels).tolist() == pytest.approx(rows)
    dense = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)
    assert dense(logits, npx.one_hot(labels, 3)).tolist() == pytest.approx(rows)
    with pytest.raises(ValueError, match=r"labels \[2, 4\] of logits \[2, 4\], expected \[2\]"):
        loss(np.zeros((2, 4)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"logits \[2, 4\] and axis 0, expected the samples along the first axis"):
        gluon.loss.SoftmaxCrossEntropyLoss(axis=0)(np.zeros((2, 4)), np.zeros(2))
    assert gluon.loss.L2Loss()(np.ones(3), np.zeros(3)).tolist() == [0.5] * 3


# Without a device: that of the parameter, if it has only one.
def test_data_of_the_only_device():
    net = nn.Dense(1, in_units=2)
    net.initialize(init.Normal(0.01), ctx=[mx.gpu(0)])
    assert net.weight.data().tolist() == net.weight.data(mx.gpu(0)).tolist()


def test_loaders_give_arrays():
    data = gluon.data.ArrayDataset(np.arange(10).reshape(5, 2), np.arange(5))
    batches = list(same.data.DataLoader(data, 2))
    assert [y.size for _, y in batches] == [2, 2, 1] and batches[0][0].tolist() == [[0, 1], [2, 3]]
    assert len(list(gluon.data.DataLoader(data, 2, last_batch="discard"))) == 2
    doubled = data.transform_first(lambda x: x * 2).take(3)
    assert [x.tolist() for x, _ in gluon.data.DataLoader(doubled, 3)] == [[[0, 2], [4, 6], [8, 10]]]


def test_gradients_are_written():
    x = np.array([1, 2])
    assert x.grad is None
    x.attach_grad()
    assert type(x.grad) is gluon.ndarray and x.grad.tolist() == [0, 0]
    for factor in (2, 3):  # each backward() writes, where PyTorch's adds
        with autograd.record():
            y = x * x * factor
        y.backward()
        assert x.grad.tolist() == [2 * factor, 4 * factor]
    added, other = np.ones(2), np.ones(2)
    added.attach_grad("add")
    other.attach_grad()
    for _ in range(2):
        with autograd.record():
            y = added * 3
        y.backward()
    assert added.grad.tolist() == [6, 6] and other.grad.tolist() == [0, 0] and x.grad.tolist() == [6, 12]
    with pytest.raises(ValueError, match="grad_req is 'null', expected 'write' or 'add'"):
        x.attach_grad("null")
    with autograd.record():
        with pytest.raises(ValueError, match="the array has a history, expected x = x.detach"):
            (x * 2).attach_grad()


# As in the book's "Training on Multiple GPUs": parameters of the program's own on each device, sums by slices.
@pytest.mark.parametrize("n", [1, 2])
def test_a_loop_written_out(n):
    devices = [npx.gpu(i % npx.num_gpus()) for i in range(n)]
    weights = [np.ones((2, 1, 2, 2)).copyto(device) for device in devices]
    for w in weights:
        w.attach_grad()
    x = np.arange(2 * n * 9).reshape(2 * n, 1, 3, 3) / 10
    for _ in range(2):
        with autograd.record():
            losses = [(npx.pooling(npx.relu(npx.convolution(data=part, weight=w, kernel=(2, 2), num_filter=2)),
                                   pool_type="avg", kernel=(2, 2)) ** 2).sum()
                      for part, w in zip(gluon.utils.split_and_load(x, devices), weights)]
        for loss in losses:
            loss.backward()
        gradients = [w.grad for w in weights]
        for g in gradients[1:]:
            gradients[0][:] += g.copyto(gradients[0].ctx)
        for g in gradients[1:]:
            gradients[0].copyto(g)
        for w in weights:
            w[:] = w - 0.01 * w.grad / len(x)
    plain = torch.ones(2, 1, 2, 2, requires_grad=True)
    for _ in range(2):
        y = torch.nn.functional.conv2d(x, plain).relu().mean((2, 3)).square().sum()
        (gradient,) = torch.autograd.grad(y, plain)
        with torch.no_grad():
            plain -= 0.01 * gradient / len(x)
    for w in weights:
        assert torch.allclose(w.cpu().detach(), plain.detach(), rtol=1e-5)


def test_windows():
    x = np.arange(16).reshape(1, 1, 4, 4)
    assert npx.pooling(x, kernel=2, stride=2).flatten().tolist() == [5, 7, 13, 15]
    assert npx.pooling(x, kernel=2, stride=2, pool_type="sum").flatten().tolist() == [10, 18, 42, 50]
    assert npx.pooling(x, pool_type="avg", global_pool=True).item() == 7.5
    w = np.ones((1, 1, 2, 2))
    assert npx.convolution(x, w, np.ones(1), kernel=(2, 2), stride=(2, 2)).flatten().tolist() == [11, 19, 43, 51]
    assert npx.convolution(x, w, np.ones(1), no_bias=True, stride=2).flatten().tolist() == [10, 18, 42, 50]
    with pytest.raises(ValueError, match=r"kernel \(3, 3\), num_filter 1, expected those of the weight"):
        npx.convolution(x, w, kernel=(3, 3), num_filter=1)
    with pytest.raises(ValueError, match="pool_type is 'lp'"):
        npx.pooling(x, pool_type="lp")


# Pictures of Gluon have their channels last, also where Python calls the transform.
def test_transforms_of_pictures():
    transforms = gluon.data.vision.transforms
    picture = np.arange(4 * 6 * 3).reshape(4, 6, 3).astype("uint8")
    expected = picture.permute(2, 0, 1).astype("float32") / 255
    assert torch.equal(transforms.ToTensor()(picture), expected)
    cut = transforms.Compose([transforms.CenterCrop(4), transforms.ToTensor()])(picture)
    assert torch.equal(cut, expected[:, :, 1:5])
    mixed = transforms.Compose([lambda x: x, transforms.CenterCrop(4), transforms.ToTensor()])(picture)
    assert torch.equal(mixed, expected[:, :, 1:5])
    data = gluon.data.SimpleDataset([(picture, 1)] * 3).take(2).transform_first(transforms.ToTensor())
    assert len(data) == 2 and torch.equal(data[0][0], expected)


def test_methods_of_python_and_of_numpy():
    numpy = pytest.importorskip("numpy")
    x, data = np.array([[1, 2], [3, 0]]), numpy.array([[1, 2], [3, 0]], "float32")
    for name, options in (("any", {"axis": 0}), ("all", {"axis": 0}), ("prod", {"axis": 1}), ("cumsum", {}),
                          ("argsort", {"axis": 0}), ("squeeze", {"axis": None}), ("diagonal", {})):
        assert (getattr(x, name)(**options).asnumpy() == getattr(data, name)(**options)).all()
    assert [part.tolist() for part in x.nonzero()] == [part.tolist() for part in data.nonzero()]
    assert type(x.diff()) is np.ndarray and x.diff().tolist() == [[1], [-3]]
    assert math.isnan(np.array([1.0]).std(ddof=1).asscalar())
    assert np.maximum(x, 2.5).tolist() == [[2.5, 2.5], [3, 2.5]] and np.minimum(1, x).tolist() == [[1, 1], [1, 0]]


def test_uniform_excludes_its_end():
    """Half of the sums round to it, and numbers near it do in float16."""
    assert set(np.random.uniform(1, 1 + 2**-23, 1000).tolist()) == {1}
    assert max(np.random.uniform(0, 1, 20000, dtype="float16").tolist()) < 1
