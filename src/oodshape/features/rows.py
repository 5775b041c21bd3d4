"""Functions of single rows of features: their directions and distances."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-12  # in place of a length of 0
ROUNDING = 1e-6  # of a sum of squares in float32


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
