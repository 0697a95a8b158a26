"""Dive into Deep Learning, "Automatic Parallelism", the version for MXNet.

    LOCKSTEP_DEVICES=2 python3 automatic_parallelism_gluon.py [size [count]]
"""

import sys

from lockstep.gluon import np, npx
import d2l_mxnet as d2l

npx.set_np()

size = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
count = int(sys.argv[2]) if len(sys.argv) > 2 else 50

devices = d2l.try_all_gpus()


def run(x):
    return [x.dot(x) for _ in range(count)]


x_gpu1 = np.random.uniform(size=(size, size), ctx=devices[0])
x_gpu2 = np.random.uniform(size=(size, size), ctx=devices[1])

run(x_gpu1)  # Warm-up both devices
run(x_gpu2)
npx.waitall()

with d2l.Benchmark('GPU1 time'):
    run(x_gpu1)
    npx.waitall()

with d2l.Benchmark('GPU2 time'):
    run(x_gpu2)
    npx.waitall()

with d2l.Benchmark('GPU1 & GPU2'):
    run(x_gpu1)
    run(x_gpu2)
    npx.waitall()


def copy_to_cpu(x):
    return [y.copyto(npx.cpu()) for y in x]


with d2l.Benchmark('Run on GPU1'):
    y = run(x_gpu1)
    npx.waitall()

with d2l.Benchmark('Copy to CPU'):
    y_cpu = copy_to_cpu(y)
    npx.waitall()

with d2l.Benchmark('Run on GPU1 and copy to CPU'):
    y = run(x_gpu1)
    y_cpu = copy_to_cpu(y)
    npx.waitall()
