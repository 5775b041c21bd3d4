"""The linear head of a network, and its outputs for a batch: features and logits."""

from __future__ import annotations

import hashlib
from collections import UserString
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError

TINY = 1e-12  # a distance that is none


def _as_float32(values: Any, name: str) -> Tensor:
    """A numpy array, tensor or nested list as a detached, contiguous float32 tensor."""
    try:
        tensor = values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
        return tensor.to(torch.float32).contiguous()
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers, got {type(values).__name__}: {error}") from None


class Fingerprint(UserString):
    """16 hex digits of the SHA-256 of a head's canonical float32 bytes and shape, hashed when they are first read.

    A head is not hashed to be compared with itself: a fit on few images takes less time than that.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.of = weight, bias  # not the head, which holds its fingerprint: a cycle would keep its memory

    @cached_property
    def data(self) -> str:  # type: ignore[override]
        """The digits."""
        digest = hashlib.sha256("x".join(map(str, self.of[0].shape)).encode())
        for part in self.of:
            digest.update(np.ascontiguousarray(part.cpu().numpy() + np.float32(0.0), "<f4").data)  # no -0.0
        return digest.hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    __hash__ = UserString.__hash__

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle and copy the digits, without the head."""
        return str, (self.data,)


@dataclass(frozen=True, eq=False)
class Head:
    """The last linear layer of a classifier: logits = features @ weight.T + bias.

    >>> Head.of(([[1.0, 0.0], [0.0, 2.0]], [0.0, 1.0])).logits(torch.tensor([[3.0, 4.0]]))
    tensor([[3., 9.]])

    Attributes:
        weight: [C, M] float32.
        bias: [C] float32.
    """

    weight: Tensor  # [C, M]
    bias: Tensor  # [C]

    @classmethod
    def of(cls, head: Head | tuple[Any, Any]) -> Head:
        """Make a head from a copy of arrays.

        Args:
            head: A head, or the pair (weight, bias); a bias of None means zeros.

        Returns:
            The head.

        Raises:
            InputError: If the shapes do not fit.
        """
        found = cls.view(head)
        return found if found is head else cls(found.weight.clone(), found.bias.clone())

    @classmethod
    def view(cls, head: Head | tuple[Any, Any]) -> Head:
        """Make a head from arrays as `of` does, without a copy where their type allows it.

        Args:
            head: A head, or the pair (weight [C, M], bias [C] or None).

        Returns:
            The head.

        Raises:
            InputError: If the arrays are not those of a linear layer.
        """
        if isinstance(head, Head):
            return head
        if not (isinstance(head, (tuple, list)) and len(head) == 2):
            raise InputError(f"head must be a pair (weight [C, M], bias [C]), got {type(head).__name__}")
        weight = _as_float32(head[0], "the head's weight")
        if weight.ndim != 2 or 0 in weight.shape:
            raise InputError(f"the head's weight must have shape [classes, features], got {list(weight.shape)}")
        bias = weight.new_zeros(len(weight)) if head[1] is None else _as_float32(head[1], "the head's bias")
        if bias.shape != weight.shape[:1]:
            raise InputError(f"the head's bias has shape {list(bias.shape)}, but its weight has {len(weight)} classes")
        # sums first: they read the weights once, and a scored batch of one image waits for this
        if not weight.is_meta and not any(
            all(bool(torch.isfinite(each).all()) for each in values)
            for values in ((weight.sum(), bias.sum()), (weight, bias))
        ):
            raise InputError("the head's weight or bias holds NaN or infinite values; check the checkpoint")
        return cls(weight, bias.to(weight.device))

    @property
    def classes(self) -> int:
        """The number of classes C."""
        return self.weight.shape[0]

    @property
    def width(self) -> int:
        """The number of features M."""
        return self.weight.shape[1]

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """16 hex digits of the SHA-256 of the canonical float32 bytes and the shape."""
        return Fingerprint(self.weight, self.bias)

    @cached_property
    def distances(self) -> Tensor:
        """[C, C] Euclidean distances between the weights of the classes."""
        return torch.cdist(self.weight, self.weight)

    @cached_property
    def closeness(self) -> Tensor:
        """[C, C]: 1 over the distances between the weights of different classes; 0 where they are the same."""
        apart = self.distances
        return torch.where(apart > TINY, apart.clamp_min(TINY).reciprocal(), 0.0).fill_diagonal_(0.0)

    def logits(self, features: Tensor) -> Tensor:
        """Compute logits.

        Args:
            features: [N, M].

        Returns:
            [N, C] logits.
        """
        return torch.addmm(self.bias, features, self.weight.T)

    def to(self, device: torch.device | str) -> Head:
        """Move the head to a device.

        Args:
            device: The device.

        Returns:
            The head there; itself if it is there already.
        """
        if self.weight.device == torch.device(device):
            return self
        return Head(self.weight.to(device), self.bias.to(device))


@dataclass(frozen=True, eq=False)
class Outputs:
    """What one network returns for one batch: features, logits and the head.

    >>> head = Head.of(([[1.0, 0.0], [0.0, 2.0]], None))
    >>> features = torch.ones(3, 2)
    >>> len(Outputs(features, head.logits(features), head))
    3

    Attributes:
        features: [N, M] penultimate features.
        logits: [N, C] logits.
        head: The head.
    """

    features: Tensor
    logits: Tensor
    head: Head

    def __len__(self) -> int:
        """The number of images."""
        return len(self.features)


def drop_classes(head: Head, left_out: NDArray[np.bool_]) -> Head:
    """Return the head without the classes for which `left_out` [C] is true."""
    stays = torch.from_numpy(np.flatnonzero(~left_out)).to(head.weight.device)
    return Head(head.weight[stays].contiguous(), head.bias[stays].contiguous())
