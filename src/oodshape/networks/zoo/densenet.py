"""DenseNet-BC for CIFAR images: the network that OOD papers call DenseNet-101.

Depth 100, growth 12, bottlenecks, reduction 0.5 (Huang et al., CVPR 2017). The names of the parameters are
those of the checkpoints that the authors of DICE publish.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from oodshape.core.errors import InputError


class DenseNet(nn.Module):
    """Three dense blocks, then the mean over places: images [N, 3, 32, 32] -> logits [N, classes].

    >>> net = DenseNet(depth=10, growth=4).eval()
    >>> net(torch.zeros(2, 3, 32, 32)).shape, net.features(torch.zeros(2, 3, 32, 32)).shape
    (torch.Size([2, 10]), torch.Size([2, 9]))
    """

    def __init__(self, classes: int = 10, *, depth: int = 100, growth: int = 12, reduction: float = 0.5) -> None:
        """`depth` counts the convolutions and the head: three blocks of (depth - 4) / 6 bottleneck layers."""
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise InputError(f"depth must be 4 + 6 times the layers per block (10, 16, ... 100), got {depth}")
        layers, width = (depth - 4) // 6, 2 * growth
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.block1 = _Block(layers, width, growth)
        width += layers * growth
        self.trans1 = _Transition(width, int(reduction * width))
        width = int(reduction * width)
        self.block2 = _Block(layers, width, growth)
        width += layers * growth
        self.trans2 = _Transition(width, int(reduction * width))
        width = int(reduction * width)
        self.block3 = _Block(layers, width, growth)
        width += layers * growth
        self.bn1 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, classes)

    def features(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] images -> [N, width] features, none negative; the width is 342 at depth 100."""
        maps = self.trans1(self.block1(self.conv1(images)))
        maps = self.block3(self.trans2(self.block2(maps)))
        return functional.relu(self.bn1(maps)).mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] images -> [N, classes] logits."""
        logits: Tensor = self.fc(self.features(images))
        return logits


class _Block(nn.Module):
    """Bottleneck layers, each of which reads the maps of all before it and adds `growth` new ones."""

    def __init__(self, layers: int, width: int, growth: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(*(_Bottleneck(width + i * growth, growth) for i in range(layers)))

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.layer(maps)
        return out


class _Bottleneck(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        new = self.conv1(functional.relu(self.bn1(maps)))
        new = self.conv2(functional.relu(self.bn2(new)))
        return torch.cat([maps, new], 1)


class _Transition(nn.Module):
    """Fewer maps of half the side."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, out, 1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        return functional.avg_pool2d(self.conv1(functional.relu(self.bn1(maps))), 2)
