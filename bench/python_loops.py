#!/usr/bin/env python3
"""A training loop in Python on one core: Lockstep's, or PyTorch's with --torch; the lines are the same.

    LOCKSTEP_DEVICES=1 OMP_NUM_THREADS=1 taskset -c 0 /usr/bin/python3 bench/python_loops.py mlp [--torch]

Prints images/s, the median of rounds. Models: mlp (784-256-10, batch 128), resnet18 (the tutorials', batch 64).
"""
import argparse
import gzip
import statistics
import time

import numpy

p = argparse.ArgumentParser()
p.add_argument("model", choices=["mlp", "resnet18"])
p.add_argument("--torch", action="store_true", help="PyTorch's loop")
p.add_argument("--steps", type=int, help="in a round, which ends with reading the loss")
p.add_argument("--rounds", type=int, default=6, help="the first one warms up")
p.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
a = p.parse_args()
if a.torch:
    import torch
    torch.set_num_threads(1)
    nn = torch.nn
else:
    import lockstep as torch
    from lockstep import nn


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.conv3 = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else None
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.conv3(x) if self.conv3 is not None else x))


def read(name, offset, count):
    with gzip.open(f"{a.data}/{name}.gz") as file:
        return torch.from_numpy(numpy.frombuffer(file.read(offset + count), numpy.uint8)[offset:].copy())


count = 4096
x = read("train-images-idx3-ubyte", 16, 784 * count).float().div(255).reshape(count, 1, 28, 28)
y = read("train-labels-idx1-ubyte", 8, count).long()
if a.model == "mlp":
    net, batch, steps = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), 128, 400
else:
    blocks = [Residual(i, o, s) for i, o, s in [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
                                                (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]]
    net = nn.Sequential(nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(), *blocks,
                        nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(512, 10))
    batch, steps = 64, 12  # reading the loss drains the queue of tasks
steps = a.steps or steps
optimizer = torch.optim.SGD(net.parameters(), lr=0.1 if a.model == "mlp" else 0.01)
rates = []
for _ in range(a.rounds):
    begin = time.perf_counter()
    for step in range(steps):
        i = step * batch % (count - batch)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[i:i + batch]), y[i:i + batch])
        loss.backward()
        optimizer.step()
    loss.item()
    rates.append(steps * batch / (time.perf_counter() - begin))
print(f"{statistics.median(rates[1:]):.1f}")
