"""Networks whose head is linear and no nn.Linear, and the module in which it is found."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from small_nets import C, M, Net, body


class Functional(Net):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.body(x), self.fc.weight, self.fc.bias)


class Product(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) @ self.fc.weight.T + self.fc.bias


class Equalised(nn.Linear):
    """A layer whose weights are scaled when it runs."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * 0.3, self.bias)


class WeightNormed(nn.Module):
    """A layer that brings its rows to lengths that it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.v, self.g = nn.Parameter(torch.randn(C, M)), nn.Parameter(torch.linspace(1, 2, C))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, F.normalize(self.v) * self.g[:, None])


class Tempered(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.5]))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x)) * self.scale


class Tokens(nn.Module):
    """Every row of an image is classified, and the logits are their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, C)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(1, 2)).mean(1)


def hooked() -> Net:
    """A network with a hook that changes the features before its head."""
    net = Net()
    net.fc.register_forward_pre_hook(lambda _, args: (args[0] * 0.5,))
    return net


def convolved(*after: nn.Module, bias: bool = True) -> nn.Sequential:
    """A small network that ends in a map of 6 x 6 places, a 1 x 1 convolution, and what follows it."""
    return nn.Sequential(nn.Conv2d(3, M, 3), nn.ReLU(), nn.Conv2d(M, C, 1, bias=bias), *after)


POOLED = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
FOUND: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "convolution after pooling": (
        lambda: nn.Sequential(body(), nn.Unflatten(1, (M, 1, 1)), nn.Conv2d(M, C, 1), nn.Flatten()),
        "2",
    ),
    "convolution before pooling": (lambda: convolved(*POOLED), "2"),
    "convolution without bias": (lambda: convolved(*POOLED, bias=False), "2"),
    "function": (Functional, ""),
    "product": (Product, ""),
    "scaled weights": (lambda: nn.Sequential(body(), Equalised(M, C)), "1"),
    "scaled output": (Tempered, ""),
    "divided output": (lambda: Net(finish=lambda y: y / 1.7), ""),
    "weight normalised by hand": (lambda: nn.Sequential(body(), WeightNormed()), "1"),
    "hook on the features": (hooked, "fc"),
    "mean of tokens": (Tokens, "fc"),
}
