"""MLP-Mixer-Nano: the small MLP-Mixer for CIFAR images, 1.1 million parameters.

The architecture is that of Tolstikhin et al. (NeurIPS 2021) at width 128; the names of the parameters are
those of the public CIFAR version (github.com/omihub777/MLP-Mixer-CIFAR), so that its checkpoints load.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from oodshape.core.errors import InputError


class MixerNano(nn.Module):
    """Patches, mixer layers, LayerNorm, the mean over tokens: images [N, 3, 32, 32] -> logits [N, classes].

    >>> import torch
    >>> net = MixerNano().eval()
    >>> net(torch.zeros(2, 3, 32, 32)).shape, net.features(torch.zeros(2, 3, 32, 32)).shape
    (torch.Size([2, 10]), torch.Size([2, 128]))
    """

    def __init__(
        self,
        classes: int = 10,
        *,
        side: int = 32,
        patch: int = 4,
        width: int = 128,
        token_mlp: int = 64,
        channel_mlp: int = 512,
        depth: int = 8,
    ) -> None:
        """Square images of `side` pixels, cut into patches of `patch` pixels."""
        super().__init__()
        if side % patch:
            raise InputError(f"side must be a multiple of patch, got side={side} and patch={patch}")
        tokens = (side // patch) ** 2
        self.patch_emb = nn.Sequential(nn.Conv2d(3, width, patch, patch))
        self.mixer_layers = nn.Sequential(*(_Layer(tokens, width, token_mlp, channel_mlp) for _ in range(depth)))
        self.ln = nn.LayerNorm(width)
        self.clf = nn.Linear(width, classes)

    def features(self, images: Tensor) -> Tensor:
        """[N, 3, side, side] images -> [N, width] features of both signs."""
        tokens = self.patch_emb(images).flatten(2).transpose(1, 2)
        mean: Tensor = self.ln(self.mixer_layers(tokens)).mean(1)
        return mean

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, side, side] images -> [N, classes] logits."""
        logits: Tensor = self.clf(self.features(images))
        return logits


class _Layer(nn.Module):
    """An MLP over tokens, then an MLP over channels: [N, tokens, width] -> the same shape."""

    def __init__(self, tokens: int, width: int, token_mlp: int, channel_mlp: int) -> None:
        super().__init__()
        # A convolution of size 1 takes tokens as channels: the transposed linear layer without a copy.
        self.mlp1 = _Mlp(width, nn.Conv1d(tokens, token_mlp, 1), nn.Conv1d(token_mlp, tokens, 1))
        self.mlp2 = _Mlp(width, nn.Linear(width, channel_mlp), nn.Linear(channel_mlp, width))

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.mlp2(self.mlp1(tokens))
        return out


class _Mlp(nn.Module):
    """x + fc2(gelu(fc1(LayerNorm(x))))."""

    def __init__(self, width: int, fc1: nn.Module, fc2: nn.Module) -> None:
        super().__init__()
        self.ln, self.fc1, self.fc2 = nn.LayerNorm(width), fc1, fc2

    def forward(self, tokens: Tensor) -> Tensor:
        added: Tensor = self.fc2(functional.gelu(self.fc1(self.ln(tokens))))
        return tokens + added
