"""What the programs of the Chinese edition of "Dive into Deep Learning" take from the package of that edition."""

from lockstep.gluon import mx, nd
from d2l_mxnet import Benchmark, Residual, load_data_fashion_mnist, try_all_gpus, try_gpu  # noqa: F401


def evaluate_accuracy(data_iter, net, ctx):
    """Evaluate accuracy of a model on the given data set."""
    acc_sum, n = nd.array([0]), 0
    for X, y in data_iter:
        y = y.as_in_context(ctx).astype('float32')
        acc_sum += (net(X.as_in_context(ctx)).argmax(axis=1) == y).sum().copyto(mx.cpu())
        n += y.size
    return acc_sum.asscalar() / n
