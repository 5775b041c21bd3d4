"""Three small networks for the embedded digits: a ConvNet, a vision transformer and an MLP-Mixer.

They are the families that the paper contrasts: the ConvNet's features come from a ReLU and are never
negative; those of the other two come from a LayerNorm and have both signs. Each ends in `head`, an nn.Linear.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

import torch
from torch import Tensor, nn
from torch.nn import functional


class SmallNet(nn.Module):
    """A network in two parts: images [N, 1, 16, 16] -> features [N, width] -> logits [N, classes]."""

    def __init__(self, width: int, classes: int) -> None:
        """The head; a subclass adds what comes before it."""
        super().__init__()
        self.head = nn.Linear(width, classes)

    def features(self, images: Tensor) -> Tensor:
        """[N, 1, 16, 16] images -> [N, width] features, the input of the head."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """[N, 1, 16, 16] images -> [N, classes] logits."""
        logits: Tensor = self.head(self.features(images))
        return logits


class SmallConvNet(SmallNet):
    """Five convolutions, each with batch norm and ReLU, then the mean over places: features >= 0."""

    def __init__(self, width: int = 96, classes: int = 8) -> None:
        """Channels 32, 32, 64, 64 and width."""
        super().__init__(width, classes)
        self.stem = nn.Sequential(_conv(1, 32), _conv(32, 32, stride=2))
        self.body = nn.Sequential(_conv(32, 64), _conv(64, 64, stride=2), _conv(64, width))

    def features(self, images: Tensor) -> Tensor:
        """[N, 1, 16, 16] images -> [N, width] features, none negative."""
        maps: Tensor = self.body(self.stem(images))
        return maps.mean((2, 3))


class SmallViT(SmallNet):
    """A vision transformer on 16 patches of 4 x 4; features: the class token after the last LayerNorm."""

    def __init__(self, width: int = 64, classes: int = 8, depth: int = 3, heads: int = 4) -> None:
        """Blocks of self-attention and MLP, with LayerNorm before each."""
        super().__init__(width, classes)
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 17, width))
        self.blocks = nn.ModuleList(
            nn.ModuleList([_Attention(width, heads), _mlp(width, 2 * width)]) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)

    def features(self, images: Tensor) -> Tensor:
        """[N, 1, 16, 16] images -> [N, width] features of both signs."""
        tokens: Tensor = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(tokens.shape[0], -1, -1), tokens], 1) + self.positions
        for block in self.blocks:
            for part in block:  # type: ignore[attr-defined]
                tokens = tokens + part(tokens)
        features: Tensor = self.norm(tokens[:, 0])
        return features


class SmallMixer(SmallNet):
    """An MLP-Mixer on 16 patches of 4 x 4; features: the mean over tokens after the last LayerNorm."""

    def __init__(self, width: int = 64, classes: int = 8, depth: int = 4) -> None:
        """Blocks of an MLP over tokens and an MLP over channels, with LayerNorm before each."""
        super().__init__(width, classes)
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.blocks = nn.ModuleList(
            nn.ModuleList([_MixTokens(16, width), _mlp(width, 2 * width)]) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)

    def features(self, images: Tensor) -> Tensor:
        """[N, 1, 16, 16] images -> [N, width] features of both signs."""
        tokens: Tensor = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            for part in block:  # type: ignore[attr-defined]
                tokens = tokens + part(tokens)
        features: Tensor = self.norm(tokens).mean(1)
        return features


SMALL_NETS: dict[str, Callable[..., SmallNet]] = {"convnet": SmallConvNet, "vit": SmallViT, "mixer": SmallMixer}


def load_small_net(name: str, *, pretrained: bool = True) -> SmallNet:
    """The network called `convnet`, `vit` or `mixer`, trained on digits 0-7 and in eval mode, or untrained.

    >>> load_small_net("vit")(torch.zeros(2, 1, 16, 16)).shape
    torch.Size([2, 8])
    """
    net = SMALL_NETS[name]()
    if not pretrained:
        return net
    from safetensors.torch import load

    weights = files(__package__).joinpath("weights", f"digits_{name}.safetensors").read_bytes()
    net.load_state_dict(load(weights))  # stored as float16, copied into float32
    return net.eval()


def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def _mlp(width: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(tokens)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)  # [N, heads, tokens, width / heads]
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class _MixTokens(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        mixed: Tensor = self.mlp(self.norm(tokens).transpose(1, 2))
        return mixed.transpose(1, 2)
