#!/usr/bin/python3
"""Trains the ResNet-18 of the tutorials with PyTorch from Lockstep's start weights, in the files' order, in f32, and
compares or writes down what came out; the first update in f64, too. Run by hand, with Debian's python3-torch:

  lockstep train --epochs 0 --limit-test 1 --export start.safetensors
  tests/parity/pytorch_reference.py start.safetensors --write tests/parity/expected.json
  lockstep train --no-shuffle --batch-size 64 --max-steps 1 --lr 0.1 --init-from start.safetensors --export one.safetensors
  tests/parity/pytorch_reference.py start.safetensors --one-step one.safetensors

The expected numbers are small: the losses of 12 steps (at two learning rates, in one piece and in two, and once more
on two threads, which tells how far PyTorch is from itself), and of each parameter's first update in f64 the norm, a few
projections on pseudo-random signs, from which a test estimates the error of the whole tensor, and how far PyTorch's own
update in f32 is from it. That is 0.6 % of the norm for most: in f32 two of the 28 million inputs of ReLU have another sign.
"""
import argparse, gzip, json, struct, sys
import numpy as np
import torch
from torch import nn

BATCH, ONE_STEP_LR, STEPS, PROJECTIONS = 64, 0.1, 12, 16
FOLDER = '/usr/share/datasets/fashion-mnist/'


class Residual(nn.Module):
    def __init__(self, channels_in, channels, project=False, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1)
        self.conv3 = nn.Conv2d(channels_in, channels, 1, stride) if project else None
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.conv3(x) if self.conv3 else x))


def group(channels_in, channels, first=False):
    return nn.Sequential(Residual(channels_in, channels, not first, 1 if first else 2), Residual(channels, channels))


def resnet18():
    net = nn.Sequential(nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU())
    net.add_module('resnet_block1', group(64, 64, first=True))
    net.add_module('resnet_block2', group(64, 128))
    net.add_module('resnet_block3', group(128, 256))
    net.add_module('resnet_block4', group(256, 512))
    net.add_module('global_avg_pool', nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module('fc', nn.Sequential(nn.Flatten(), nn.Linear(512, 10)))
    return net


def load_safetensors(path):
    data = open(path, 'rb').read()
    size = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + size])
    types = {'F32': np.float32, 'I64': np.int64}
    state = {}
    for name, entry in header.items():
        if name == '__metadata__':
            continue
        begin, end = entry['data_offsets']
        raw = np.frombuffer(data[8 + size + begin:8 + size + end], types[entry['dtype']])
        state[name] = torch.tensor(raw.reshape(entry['shape']))
    return state


def images_and_labels(count, dtype):
    x = np.frombuffer(gzip.open(FOLDER + 'train-images-idx3-ubyte.gz').read(), np.uint8, count * 784, 16)
    y = np.frombuffer(gzip.open(FOLDER + 'train-labels-idx1-ubyte.gz').read(), np.uint8, count, 8)
    pixels = torch.tensor(x.reshape(-1, 1, 28, 28).astype(np.float32) / np.float32(255))
    return pixels.to(dtype), torch.tensor(y.astype(np.int64))


def train(start, lr, steps, chunks, dtype=torch.float32):
    """Each batch in `chunks` pieces: statistics of a piece are its own, gradients are averaged, and the running
    statistics are those of the pieces merged."""
    net = resnet18()
    net.load_state_dict(start, strict=True)
    net.to(dtype)
    sgd = torch.optim.SGD(net.parameters(), lr=lr)
    x, y = images_and_labels(BATCH * steps, dtype)
    losses = []
    for i in range(steps):
        sgd.zero_grad()
        total = 0.0
        before = {n: b.clone() for n, b in net.named_buffers()}
        pieces = []
        for c in range(chunks):
            first = i * BATCH + c * BATCH // chunks
            piece = slice(first, first + BATCH // chunks)
            for n, b in net.named_buffers():
                b.copy_(before[n])
            loss = nn.functional.cross_entropy(net(x[piece]), y[piece]) / chunks
            loss.backward()
            total += loss.item()
            pieces.append({n: b.clone() for n, b in net.named_buffers()})
        if chunks == 1:
            losses.append(total)
            sgd.step()
            continue
        for n, b in net.named_buffers():  # momentum 0.1 on both sides: merge what the pieces would have moved to
            if n.endswith('running_mean'):
                b.copy_(sum(p[n] for p in pieces) / chunks)
        losses.append(total)
        sgd.step()
    return net, losses


def signs(name, count):
    """+-1 from a 32-bit linear congruential generator started with FNV-1a of the name: easy to repeat anywhere."""
    h = 2166136261
    for byte in name.encode():
        h = (h ^ byte) * 16777619 & 0xffffffff
    index = np.arange(1, PROJECTIONS * count + 1, dtype=np.uint64)
    state = (np.uint64(h) + index * np.uint64(2654435761)) & np.uint64(0xffffffff)
    state ^= state >> np.uint64(15)
    state = state * np.uint64(2246822519) & np.uint64(0xffffffff)
    state ^= state >> np.uint64(13)
    return ((state >> np.uint64(7)) & np.uint64(1)).astype(np.float64).reshape(PROJECTIONS, count) * 2 - 1


def before_batch_norm(name):
    return name.endswith('bias') and ('conv' in name or name == '0.bias')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('start')
    parser.add_argument('--write', help='write the expected numbers')
    parser.add_argument('--one-step', help='weights after one step of Lockstep at rate 0.1, to compare with')
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = load_safetensors(arguments.start)
    net, one_loss = train(start, ONE_STEP_LR, 1, 1, torch.float64)
    after = net.state_dict()

    if arguments.one_step:
        mine, worst = load_safetensors(arguments.one_step), 0.0
        for name, value in after.items():
            if not value.is_floating_point():
                assert torch.equal(value, mine[name]), name
                continue
            if before_batch_norm(name):
                continue
            update = value - start[name].double()
            error = (mine[name].double() - start[name].double() - update).norm() / update.norm()
            worst = max(worst, error.item())
            if error > 1e-2:
                print(f'{name}: the update differs by {error:.2e} of its norm')
        print(f'one step: largest difference {worst:.2e} of an update\'s norm')
        sys.exit(worst > 1e-2)

    losses = []
    for lr in (0.001, 0.0001):
        row = {'lr': lr, '1': train(start, lr, STEPS, 1)[1], '2': train(start, lr, STEPS, 2)[1]}
        torch.set_num_threads(2)
        row['1 again, 2 threads'] = train(start, lr, STEPS, 1)[1]
        torch.set_num_threads(1)
        losses.append(row)
    updates, f32 = {}, train(start, ONE_STEP_LR, 1, 1)[0].state_dict()
    for name, value in after.items():
        if value.is_floating_point() and not before_batch_norm(name):
            update = (value - start[name].double()).flatten().numpy()
            error = (f32[name].double() - value).norm().item()
            updates[name] = {'norm': float(np.linalg.norm(update)), 'f32_error': error,
                             'projections': (signs(name, update.size) @ update).tolist()}
    result = {'torch': torch.__version__, 'batch': BATCH, 'one_step': {'lr': ONE_STEP_LR, 'loss': one_loss[0],
              'updates': updates}, 'losses': losses}
    if arguments.write:
        json.dump(result, open(arguments.write, 'w'), indent=1)


main()
