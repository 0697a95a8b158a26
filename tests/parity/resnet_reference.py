#!/usr/bin/python3
"""Writes the names and shapes of torchvision's ResNet-18, -34, and -50, from their definition in plain PyTorch, and
what ResNet-18 computes for one small image in f64: logits and some gradients. Weights and image follow a fixed rule.
Run by hand, with Debian's python3-torch: tests/parity/resnet_reference.py > tests/parity/resnet.json
With --compare, it compares that file with what this PyTorch computes. tests/models/resnet_parity_test.cc reads it.
"""
import pathlib
import sys
import torch
from torch import nn
import torch.nn.functional as F

from comparison import compare_file, rounded, seeds, write


def conv(channels, out, kernel, stride=1):
    return nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(channels, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(conv(channels, width, 1, stride), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = conv(channels, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, out, 1), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(conv(channels, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, block, layers, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, 2), nn.BatchNorm2d(64)
        channels = 64
        for i, count in enumerate(layers):
            blocks = []
            for b in range(count):
                blocks.append(block(channels, 64 << i, 2 if b == 0 and i > 0 else 1))
                channels = (64 << i) * block.expansion
            setattr(self, f'layer{i + 1}', nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def fnv1a(name):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xffffffff
    return h


def numbers(name, shape):
    """In [-1, 1), multiples of 2^-15: they follow from the name."""
    s = fnv1a(name) + torch.arange(1, torch.Size(shape).numel() + 1) * 2654435761 & 0xffffffff
    s ^= s >> 15
    s = s * (2246822519 & 0xffff) + ((s * (2246822519 >> 16) & 0xffff) << 16) & 0xffffffff  # s * 2246822519 mod 2^32
    s ^= s >> 13
    return ((s >> 7 & 0xffff).double() / 32768 - 1).reshape(shape)


def value(name, t):
    u = numbers(name, t.shape)
    if t.dim() > 1:
        fan_in, scale = t[0].numel(), 1.0
        while scale * scale * fan_in > 6:
            scale /= 2
        return u * scale
    return u / 8 if name.endswith(('bias', 'running_mean')) else 1 + u / 2


def some(t):
    """The norm, and about 128 of the numbers."""
    step = t.numel() // 128 + 1
    return {'norm': float(f'{t.norm().item():.10g}'), 'step': step, 'values': rounded(t.flatten()[::step])}


NETS = {'resnet18': lambda: ResNet(BasicBlock, [2, 2, 2, 2]), 'resnet34': lambda: ResNet(BasicBlock, [3, 4, 6, 3]),
        'resnet50': lambda: ResNet(Bottleneck, [3, 4, 6, 3])}
GRADIENTS = ['conv1.weight', 'bn1.weight', 'layer1.0.conv1.weight', 'layer2.0.downsample.0.weight',
             'layer2.0.downsample.1.bias', 'layer3.1.conv2.weight', 'layer4.1.bn2.weight', 'fc.weight', 'fc.bias']


def computed(net):
    net = net.double().eval()
    net.load_state_dict({name: t if name.endswith('num_batches_tracked') else value(name, t)
                         for name, t in net.state_dict().items()})
    image = numbers('image', (1, 3, 40, 40)).requires_grad_()
    logits = net(image)
    logits.backward(seeds(logits.shape))
    parameters = dict(net.named_parameters())
    return {'logits': rounded(logits), 'image': some(image.grad),
            'gradients': {name: some(parameters[name].grad) for name in GRADIENTS}}


def main():
    nets = {name: net() for name, net in NETS.items()}
    parts = {
        'state': {name: {key: list(t.shape) for key, t in net.state_dict().items()} for name, net in nets.items()},
        'parameters': {name: sum(p.numel() for p in net.parameters()) for name, net in nets.items()},
        'results': {'resnet18': computed(nets['resnet18'])},
    }
    if sys.argv[1:] == ['--compare']:
        compare_file(pathlib.Path(__file__).with_name('resnet.json'), parts)
    else:
        write(parts)


main()
