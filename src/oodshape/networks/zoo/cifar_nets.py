"""Networks for images of 32 x 32 pixels, with the names of the parameters of published checkpoints.

DenseNet-BC of depth 100, growth 12, bottlenecks and reduction 0.5 (Huang et al., CVPR 2017), which OOD papers call
DenseNet-101: the checkpoints of the authors of DICE. ResNet-18 with a 3 x 3 stem and no pooling before the mean over
places: those of OpenOOD (`ResNet18_32x32`). MLP-Mixer-Nano (Tolstikhin et al., NeurIPS 2021, at width 128, 1.1 million
parameters): those of github.com/omihub777/MLP-Mixer-CIFAR.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional


class DenseNet(nn.Module):
    """Three dense blocks, then the mean over places: images [N, 3, 32, 32] -> logits [N, classes].

    >>> DenseNet(layers=1, growth=4).eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, classes: int = 10, *, layers: int = 16, growth: int = 12) -> None:
        """`layers` are those of each block: (depth - 4) / 6."""
        super().__init__()
        width = 2 * growth
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.block1 = _dense_block(layers, width, growth)
        width += layers * growth
        self.trans1 = _transition(width)
        width //= 2
        self.block2 = _dense_block(layers, width, growth)
        width += layers * growth
        self.trans2 = _transition(width)
        width //= 2
        self.block3 = _dense_block(layers, width, growth)
        width += layers * growth
        self.bn1 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] images -> [N, classes] logits; the features are never negative."""
        maps = self.trans1(self.block1(self.conv1(images)))
        maps = self.block3(self.trans2(self.block2(maps)))
        logits: Tensor = self.fc(functional.relu(self.bn1(maps)).mean((2, 3)))
        return logits


def _dense_block(layers: int, width: int, growth: int) -> nn.Sequential:
    """Bottleneck layers, each of which reads the maps of all before it and adds `growth` new ones."""
    parts = (_Bottleneck(width + i * growth, growth) for i in range(layers))
    return nn.Sequential(OrderedDict(layer=nn.Sequential(*parts)))


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


def _transition(width: int) -> nn.Sequential:
    """Half as many maps of half the side."""
    conv1 = nn.Conv2d(width, width // 2, 1, bias=False)
    return nn.Sequential(OrderedDict(bn1=nn.BatchNorm2d(width), relu=nn.ReLU(), conv1=conv1, pool=nn.AvgPool2d(2)))


WIDTHS = (64, 128, 256, 512)


class SmallResNet18(nn.Module):
    """Four stages of two blocks: images [N, 3, H, W] -> logits [N, classes].

    >>> SmallResNet18(3).eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 3])
    """

    def __init__(self, classes: int = 10) -> None:
        """An untrained network."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = _residual_stage(WIDTHS[0], WIDTHS[0], 1)
        self.layer2 = _residual_stage(WIDTHS[0], WIDTHS[1], 2)
        self.layer3 = _residual_stage(WIDTHS[1], WIDTHS[2], 2)
        self.layer4 = _residual_stage(WIDTHS[2], WIDTHS[3], 2)
        self.fc = nn.Linear(WIDTHS[3], classes)

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] images -> [N, classes] logits; the features are never negative."""
        maps = functional.relu(self.bn1(self.conv1(images)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            maps = stage(maps)
        logits: Tensor = self.fc(maps.mean((2, 3)))
        return logits


class _ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions next to a shortcut, which is a 1 x 1 convolution where the size changes."""

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


def _residual_stage(before: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(_ResidualBlock(before, width, stride), _ResidualBlock(width, width, 1))


class MixerNano(nn.Module):
    """Patches, mixer layers, LayerNorm, the mean over tokens: images [N, 3, 32, 32] -> logits [N, classes].

    >>> MixerNano().eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, classes: int = 10) -> None:
        """An untrained network: 64 patches of 4 x 4 pixels, 8 layers of width 128."""
        super().__init__()
        width = 128
        self.patch_emb = nn.Sequential(nn.Conv2d(3, width, 4, 4))
        self.mixer_layers = nn.Sequential(*(_mixer_layer(64, width, 64, 512) for _ in range(8)))
        self.ln = nn.LayerNorm(width)
        self.clf = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, 32, 32] images -> [N, classes] logits; the features have both signs."""
        tokens = self.patch_emb(images).flatten(2).transpose(1, 2)
        logits: Tensor = self.clf(self.ln(self.mixer_layers(tokens)).mean(1))
        return logits


def _mixer_layer(tokens: int, width: int, token_mlp: int, channel_mlp: int) -> nn.Sequential:
    """An MLP over tokens, then an MLP over channels: [N, tokens, width] -> the same shape."""
    # A convolution of size 1 takes tokens as channels: the transposed linear layer without a copy.
    mlp1 = _Mlp(width, nn.Conv1d(tokens, token_mlp, 1), nn.Conv1d(token_mlp, tokens, 1))
    mlp2 = _Mlp(width, nn.Linear(width, channel_mlp), nn.Linear(channel_mlp, width))
    return nn.Sequential(OrderedDict(mlp1=mlp1, mlp2=mlp2))


class _Mlp(nn.Module):
    """x + fc2(gelu(fc1(LayerNorm(x))))."""

    def __init__(self, width: int, fc1: nn.Module, fc2: nn.Module) -> None:
        super().__init__()
        self.ln, self.fc1, self.fc2 = nn.LayerNorm(width), fc1, fc2

    def forward(self, tokens: Tensor) -> Tensor:
        added: Tensor = self.fc2(functional.gelu(self.fc1(self.ln(tokens))))
        return tokens + added
