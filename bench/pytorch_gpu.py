"""Training steps of the tutorials' ResNet-18 by PyTorch on a GPU: images/s, the median of some rounds.

pytorch_gpu.py BATCH: on random images of Fashion-MNIST's shape, which are on the GPU from the start.
"""
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, inputs, outputs, project=False, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, stride=stride)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.conv3 = nn.Conv2d(inputs, outputs, 1, stride=stride) if project else None
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.conv3(x) if self.conv3 else x))


def resnet18():
    def stage(inputs, outputs, first=False):
        return [Residual(inputs, outputs, project=not first, stride=1 if first else 2), Residual(outputs, outputs)]

    return nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), *stage(64, 64, True),
                         *stage(64, 128), *stage(128, 256), *stage(256, 512), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(512, 10)).cuda()


def measure(name, batch, tf32=False, bf16=False, compiled=False, steps=20, rounds=3):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    net = resnet18()
    x = torch.rand(batch, 1, 28, 28, device="cuda")
    if bf16:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    forward = torch.compile(net, mode="max-autotune") if compiled else net

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(forward(x), labels)
        loss.backward()
        optimizer.step()

    for _ in range(5):
        step()
    speeds = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        speeds.append(batch * steps / (time.perf_counter() - begin))
    print(f"pytorch {name}, batch {batch}: {statistics.median(speeds):.0f} images/s", flush=True)


batch = int(sys.argv[1])
measure("eager f32", batch)
measure("eager TF32", batch, tf32=True)
measure("autocast bf16 channels-last", batch, bf16=True)
measure("torch.compile max-autotune, bf16", batch, bf16=True, compiled=True)
