"""ResNet-18 for images of 32 x 32 pixels: a 3 x 3 stem, no pooling before the mean over places.

The names of the parameters are those of the checkpoints that OpenOOD publishes for CIFAR (`ResNet18_32x32`).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (64, 128, 256, 512)


class SmallResNet18(nn.Module):
    """Four stages of two blocks: images [N, 3, H, W] -> logits [N, classes].

    >>> import torch
    >>> net = SmallResNet18(3).eval()
    >>> net(torch.zeros(2, 3, 32, 32)).shape, net.features(torch.zeros(2, 3, 32, 32)).shape
    (torch.Size([2, 3]), torch.Size([2, 512]))
    """

    def __init__(self, classes: int = 10) -> None:
        """An untrained network."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], 1)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], 2)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], 2)
        self.layer4 = _stage(WIDTHS[2], WIDTHS[3], 2)
        self.fc = nn.Linear(WIDTHS[3], classes)

    def features(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] images -> [N, 512] features, none negative."""
        maps = functional.relu(self.bn1(self.conv1(images)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            maps = stage(maps)
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] images -> [N, classes] logits."""
        logits: Tensor = self.fc(self.features(images))
        return logits


class _Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where the size changes."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        changed = stride > 1 or before != width
        layers = [nn.Conv2d(before, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)] if changed else []
        self.shortcut = nn.Sequential(*layers)

    def forward(self, maps: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(maps)))
        return functional.relu(self.bn2(self.conv2(inner)) + self.shortcut(maps))


def _stage(before: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(_Block(before, width, stride), _Block(width, width, 1))
