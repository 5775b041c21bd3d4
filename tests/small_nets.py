"""Small networks with a linear head, and the law that a classifier keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oodshape.networks.head import Outputs

C, M = 5, 7


def body() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, M), nn.GELU())


def images(n: int = 6) -> Tensor:
    return torch.randn(n, 3, 8, 8)


class Net(nn.Module):
    """A body and a head, and between and after them whatever a test asks for."""

    def __init__(self, before: nn.Module | None = None, finish: Callable[[Tensor], Any] = lambda logits: logits):
        super().__init__()
        self.body, self.before, self.fc, self.finish = (body(), before or nn.Identity(), nn.Linear(M, C), finish)

    def forward(self, x: Tensor) -> Any:
        return self.finish(self.fc(self.before(self.body(x))))


class ByKeyword(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(input=self.body(x))


@dataclass
class ModelOutput:
    logits: Tensor
    hidden_states: Any = None


def explains(outputs: Outputs, tolerance: float = 1e-5) -> None:
    """The law: head(features) = logits, in float32, [N, M] and [N, C], cut off from the graph."""
    assert outputs.features.dtype == outputs.logits.dtype == torch.float32
    assert outputs.features.shape == (len(outputs.logits), outputs.head.width)
    assert not outputs.features.requires_grad
    assert outputs.logits.std() > 0.01  # a constant would make the law empty
    torch.testing.assert_close(outputs.head.logits(outputs.features), outputs.logits, rtol=tolerance, atol=tolerance)


def values(net: nn.Module) -> dict[str, Tensor]:
    """Copies of all weights and buffers."""
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Whether these are the same weights, bit for bit."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
