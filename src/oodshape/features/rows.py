"""Functions of single rows of features: their directions, and numbers drawn from their own bits."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-12  # in place of a length of 0
ROUNDING = 1e-6  # of a sum of squares in float32
ROWS = 256  # rows that are hashed at once: it takes several times their memory


def unit(z: Tensor) -> Tensor:
    """[N, M] rows divided by their length; rows of zeros stay zeros.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    length: Tensor = torch.linalg.vector_norm(z, dim=1, keepdim=True)
    return z / length.clamp_min(TINY)


def row_distances(a: Tensor, b: Tensor) -> Tensor:
    """[N, C] Euclidean distances between the rows; in a graph by products, where rows almost equal count as equal.

    >>> row_distances(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([[5.]])
    """
    if not torch.compiler.is_compiling():
        return torch.cdist(a, b)
    lengths = a.square().sum(dim=1, keepdim=True) + b.square().sum(dim=1)
    squares = lengths - 2 * a @ b.T
    return torch.where(squares > ROUNDING * lengths, squares, 0.0).sqrt()


def row_noise(z: Tensor, seed: int) -> Tensor:
    """[N, M] uniform numbers in [0, 1) that depend on the seed, the place and the row's own float32 bits."""
    return ((_mix(row_keys(z, seed)[:, None] + _places(z)) >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24


def row_keys(z: Tensor, seed: int) -> Tensor:
    """[N] int64: a hash of the seed and each row's own float32 bits."""
    keys = torch.empty(len(z), dtype=torch.int64, device=z.device)
    for first in range(0, len(z), ROWS):
        bits = (z[first : first + ROWS].float() + 0.0).view(torch.int32).to(torch.int64)  # + 0.0: -0.0 counts as 0
        keys[first : first + ROWS] = _mix(_mix(bits + _places(z)).sum(dim=1) + seed)
    return keys


def _places(z: Tensor) -> Tensor:
    return torch.arange(1, z.shape[1] + 1, device=z.device) * _GOLDEN


_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed integer
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685  # the multipliers of splitmix64


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64 on int64 with wrap-around."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * _FIRST
    x = (x ^ ((x >> 27) & (2**37 - 1))) * _SECOND
    return x ^ ((x >> 31) & (2**33 - 1))
