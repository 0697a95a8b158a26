"""LeNet on Fashion-MNIST: the recipe of `lockstep train --model lenet`, so that both end with the same weights, to the
last bit, on any number of devices and ranks.

    LOCKSTEP_DEVICES=3 python3 lenet.py
    python3 lenet.py spawn
    lockstep launch -n 2 -- python3 lenet.py
    lockstep train --model lenet --epochs 3 --limit-train 1024 --batch-size 128 --log log.jsonl
"""

import sys

import lockstep as torch
import lockstep.distributed as dist
import lockstep.multiprocessing as mp
from lockstep import datasets, nn
from lockstep.utils.data import DataLoader, Subset


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, kernel_size=5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10))


def init_weights(module):
    if type(module) in (nn.Linear, nn.Conv2d):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


def train(epochs=3, examples=1024, batch_size=128, lr=0.1):
    torch.manual_seed(0)
    net = lenet()
    net.apply(init_weights)
    ddp = nn.parallel.DistributedDataParallel(net, shards=8) if dist.is_initialized() else None
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    data = Subset(datasets.FashionMNIST(), range(examples))
    loader = DataLoader(data, batch_size=batch_size, shuffle=True)
    for epoch in range(epochs):
        for x, y in loader.on(ddp) if ddp else loader.on(net, shards=8):
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return torch.weights_sha256(net)


def run_rank(rank, *sizes):
    dist.init_process_group()
    print(train(*sizes))
    dist.destroy_process_group()


if __name__ == "__main__":
    sizes = [int(a) for a in sys.argv[1:] if a != "spawn"]
    if "spawn" in sys.argv:
        mp.spawn(run_rank, args=sizes, nprocs=2)
    elif dist.is_torchelastic_launched():
        run_rank(None, *sizes)
    else:
        print(train(*sizes))
