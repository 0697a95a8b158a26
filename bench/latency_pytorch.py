#!/usr/bin/env python3
"""The time of a prediction for one image in PyTorch: the peer of `lockstep bench latency`.

    python3 bench/latency_pytorch.py [--model mlp|resnet18] [--rounds N] [--calls N] [--threads N]

Prints "MODEL CALLING_THREADS MEDIAN_MS P99_MS" for one and for four calling threads. --threads: PyTorch's own, for one
operation.
"""
import argparse
import statistics
import threading
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, ins, outs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False), nn.BatchNorm2d(outs)
        self.conv2, self.bn2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False), nn.BatchNorm2d(outs)
        self.shortcut = nn.Identity()
        if stride != 1 or ins != outs:
            self.shortcut = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18():
    layers, ins = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for outs in (64, 128, 256, 512):
        layers += [Block(ins, outs, 1 if outs == 64 else 2), Block(outs, outs, 1)]
        ins = outs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


MODELS = {"mlp": (mlp, (1, 1, 28, 28), 2000), "resnet18": (resnet18, (1, 3, 224, 224), 15)}


def call_times(net, shape, threads, calls):
    times = []

    def caller():
        pixels, mine = [0.5] * int(torch.Size(shape).numel()), []
        x = torch.tensor(pixels).reshape(shape)
        with torch.inference_mode():
            for _ in range(calls):
                begin = time.perf_counter()
                net(x).numpy()
                mine.append(1e3 * (time.perf_counter() - begin))
        times.extend(mine)

    callers = [threading.Thread(target=caller) for _ in range(threads)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    return sorted(times)


parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=MODELS, default="mlp")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--calls", type=int, default=0)
parser.add_argument("--threads", type=int, default=0)
args = parser.parse_args()
if args.threads:
    torch.set_num_threads(args.threads)
make, shape, calls = MODELS[args.model]
calls = args.calls or calls
net = make().eval()
for threads in (1, 4):
    call_times(net, shape, threads, 3)
for threads in (1, 4):
    rounds = [call_times(net, shape, threads, max(1, calls // threads)) for _ in range(args.rounds)]
    median = statistics.median(t[len(t) // 2] for t in rounds)
    late = statistics.median(t[len(t) * 99 // 100] for t in rounds)
    print(f"{args.model} {threads} {median:.3f} {late:.3f}")
