"""Models: torchvision's residual nets under its names, and those of the library.

>>> net = models.resnet18()
>>> net.load_state_dict(torch.load("resnet18.safetensors"))
>>> net.fc = nn.Linear(512, 5)
"""

from . import nn
from ._core._models import GPT, lenet, make_model, mlp, model_names  # noqa: F401


def _conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def _is_plain(module, kind):
    return type(module) is kind and not {"_call_hooked", "forward"} & module.__dict__.keys()


def _normalized(norm, relu, x, residual=None):
    """relu(norm(x) + residual), in one pass if the layers are the library's."""
    if _is_plain(norm, nn.BatchNorm2d) and _is_plain(relu, nn.ReLU):
        return norm.forward_fused(x, residual, True)
    y = norm(x)
    return relu(y if residual is None else y + residual)


class _Block(nn.Module):
    def __init__(self, convs, inputs, outputs, stride):
        super().__init__()
        for i, conv in enumerate(convs, 1):
            setattr(self, f"conv{i}", conv)
            setattr(self, f"bn{i}", nn.BatchNorm2d(conv.weight.shape[0]))
        self.relu = nn.ReLU(inplace=True)
        self._count = len(convs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        for i in range(1, self._count + 1):
            last = shortcut if i == self._count else None
            x = _normalized(getattr(self, f"bn{i}"), self.relu, getattr(self, f"conv{i}")(x), last)
        return x


class BasicBlock(_Block):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inplanes, planes, stride=1):
        super().__init__([_conv(inplanes, planes, 3, stride), _conv(planes, planes, 3)], inplanes, planes, stride)


class Bottleneck(_Block):
    """1x1, 3x3, and 1x1 convolutions and a shortcut."""

    expansion = 4

    def __init__(self, inplanes, planes, stride=1):
        super().__init__([_conv(inplanes, planes, 1), _conv(planes, planes, 3, stride), _conv(planes, 4 * planes, 1)],
                         inplanes, 4 * planes, stride)


class ResNet(nn.Module):
    """A residual net for large pictures (He et al. 2015), [N, 3, H, W] -> [N, num_classes]."""

    def __init__(self, block, layers, num_classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        inputs = 64
        for i, blocks in enumerate(layers):
            planes, group = 64 << i, []
            for k in range(blocks):
                group.append(block(inputs, planes, stride=2 if i > 0 and k == 0 else 1))
                inputs = planes * block.expansion
            setattr(self, f"layer{i + 1}", nn.Sequential(*group))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(inputs, num_classes)

    def forward(self, x):
        x = self.maxpool(_normalized(self.bn1, self.relu, self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _resnet(name, block, layers, weights, num_classes):
    if weights is not None:
        raise ValueError(f"{name}: weights={weights!r}, expected None: nothing is downloaded; use load_state_dict()")
    return ResNet(block, layers, num_classes)


def resnet18(weights=None, num_classes=1000):
    """Return torchvision's resnet18."""
    return _resnet("resnet18", BasicBlock, [2, 2, 2, 2], weights, num_classes)


def resnet34(weights=None, num_classes=1000):
    """Return torchvision's resnet34."""
    return _resnet("resnet34", BasicBlock, [3, 4, 6, 3], weights, num_classes)


def resnet50(weights=None, num_classes=1000):
    """Return torchvision's resnet50."""
    return _resnet("resnet50", Bottleneck, [3, 4, 6, 3], weights, num_classes)
