"""Training steps of the tutorials' ResNet-18 by PyTorch on a GPU: images/s, the median of some rounds, and GPU memory.

pytorch_gpu.py BATCH: on random images of Fashion-MNIST's shape, which are on the GPU from the start.
pytorch_gpu.py limit: images/s at which the GPU would do nothing but its matrix products, at the rate that it has been
measured at: `limit: N images/s`, and where that comes from.
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


EPOCH = 60000


def captured(step):
    """Returns the step as one CUDA graph, captured as in PyTorch's documentation."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(name, batch, tf32=False, dtype=None, compiled=False, graph=False, steps=20, rounds=3):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    net = resnet18()
    x = torch.rand(batch, 1, 28, 28, device="cuda")
    if dtype:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    forward = torch.compile(net, mode="max-autotune") if compiled else net
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        # The cast cache must not outlive a capture.
        with torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None, cache_enabled=not graph):
            loss = F.cross_entropy(forward(x), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    run = captured(step) if graph else step
    for _ in range(5):
        run()
    speeds = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            run()
        torch.cuda.synchronize()
        speeds.append(batch * steps / (time.perf_counter() - begin))
    speed = statistics.median(speeds)
    print(f"pytorch {name}, batch {batch}: {speed:.0f} images/s, {EPOCH / speed:.2f} s/epoch, "
          f"{torch.cuda.max_memory_reserved() / 2**20:.0f} MiB", flush=True)


def best_seconds(run, rounds=10):
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return min(times)


def limit():
    n = 8192
    a, b = (torch.rand(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * n**3 / best_seconds(lambda: a @ b)
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    copies = 2 * source.numel() / best_seconds(lambda: target.copy_(source))
    # Counts multiplications of the forward pass while it runs; the backward pass has twice as many.
    products = 0

    def count(module, inputs, output):
        nonlocal products
        outputs = output.numel()
        products += outputs * (module.in_features if isinstance(module, nn.Linear) else module.weight[0].numel())

    net = resnet18()
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(count)
    net(torch.rand(1, 1, 28, 28, device="cuda"))
    flops = 3 * 2 * products
    print(f"limit: {rate / flops:.0f} images/s ({rate / 1e12:.0f} TFLOP/s in bf16, {flops / 1e9:.2f} GFLOP an image; "
          f"memory is copied at {copies / 1e9:.0f} GB/s)")


if sys.argv[1] == "limit":
    limit()
    sys.exit()
batch = int(sys.argv[1])
measure("eager f32", batch)
measure("eager TF32", batch, tf32=True)
measure("autocast bf16 channels-last", batch, dtype=torch.bfloat16)
measure("autocast bf16 channels-last, CUDA graph", batch, dtype=torch.bfloat16, graph=True)
measure("autocast f16 channels-last", batch, dtype=torch.float16)
measure("torch.compile max-autotune, bf16", batch, dtype=torch.bfloat16, compiled=True)
