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


def test_loaders_give_arrays():
    data = gluon.data.ArrayDataset(np.arange(10).reshape(5, 2), np.arange(5))
    batches = list(same.data.DataLoader(data, 2))
    assert [y.size for _, y in batches] == [2, 2, 1] and batches[0][0].tolist() == [[0, 1], [2, 3]]
    assert len(list(gluon.data.DataLoader(data, 2, last_batch="discard"))) == 2
    doubled = data.transform_first(lambda x: x * 2).take(3)
    assert [x.tolist() for x, _ in gluon.data.DataLoader(doubled, 3)] == [[[0, 2], [4, 6], [8, 10]]]
