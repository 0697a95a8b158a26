"""MXNet's names, as its tutorials use them: `from lockstep.gluon import autograd, gluon, init, mx, nd, nn, np, npx`.

>>> net.initialize(init=init.Normal(sigma=0.01), ctx=devices)
>>> x_shards = gluon.utils.split_and_load(x, devices)
>>> with autograd.record():
...     losses = [loss(net(x), y) for x, y in zip(x_shards, y_shards)]
>>> for l in losses: l.backward()
>>> trainer.step(batch_size)

Shards are a list of arrays, one for each device, as in Gluon. A batch of split_and_load() of lockstep itself is one
tensor, cut over the devices.
"""

import sys
import types

from .. import _core
from . import arrays, autograd, data, init, loss, nn, utils  # noqa: F401
from .arrays import nd, ndarray, np  # noqa: F401
from .devices import cpu, gpu, num_gpus, try_all_gpus, try_gpu  # noqa: F401
from .nn import Block, HybridBlock  # noqa: F401
from .trainer import Trainer  # noqa: F401
from .utils import split_and_load, split_data  # noqa: F401

npx = types.SimpleNamespace(waitall=arrays.waitall, set_np=lambda *args, **kwargs: None, cpu=cpu, gpu=gpu,
                            num_gpus=num_gpus, relu=arrays.relu, sigmoid=arrays.sigmoid, softmax=arrays.softmax,
                            log_softmax=arrays.log_softmax, one_hot=arrays.one_hot, convolution=arrays.convolution,
                            pooling=arrays.pooling)

gluon = sys.modules[__name__]

mx = types.SimpleNamespace(cpu=cpu, gpu=gpu, num_gpus=num_gpus, nd=nd, np=np, npx=npx, init=init, autograd=autograd,
                           gluon=gluon, random=types.SimpleNamespace(seed=_core.manual_seed))
