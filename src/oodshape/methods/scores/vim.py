"""ViM: energy minus what lies outside the principal subspace (Wang et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.fields import Sizes
from oodshape.features.parts import Part
from oodshape.features.sum_kernels import noise, torchs_threads
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training import Training


@dataclass(frozen=True, eq=False, repr=False)
class VirtualLogit(FittedScore):
    """Energy - alpha ||(z - origin) R||, R the complement of the principal subspace."""

    origin: Annotated[NDArray[np.float32], Sizes("M")]
    complement: Annotated[NDArray[np.float32], Sizes("M R")]  # R = M less the dimensions of the subspace
    alpha: float

    def of(self, seen: Evidence) -> Tensor:
        """Energy minus the virtual logit."""
        return torch.logsumexp(seen.logits, dim=1) - self.alpha * self.residual(seen.features)

    def residual(self, z: Tensor) -> Tensor:
        """[n]: the length of what lies outside the principal subspace."""
        outside = (z - self.tensor("origin", z)) @ self.tensor("complement", z)
        length: Tensor = torch.linalg.vector_norm(outside, dim=1)
        return length


@dataclass(frozen=True, eq=False, repr=False)
class Vim(ScoreRecipe):
    """Energy minus a virtual logit, the length of the residual times alpha = mean max logit / mean residual.

    The principal subspace has `dimensions`, by default the paper's: 1000 of 2048 or more features, 512 of 768 or
    more, else half of them; where the training features do not fill that many, half of those they fill. It is
    read off the second moment around the origin -pinv(W) b; alpha comes from the bank of at most 5,000 images.
    """

    dimensions: int | None = None

    def __post_init__(self) -> None:
        """Refuse a subspace without dimensions."""
        if self.dimensions is not None and self.dimensions < 1:
            raise InputError(f"dimensions must be at least 1, got {self.dimensions}")

    @property
    def needs(self) -> frozenset[Part]:
        """The second moment, and a bank for alpha."""
        return frozenset([Part.SECOND, Part.BANK])

    def fit(self, train: Training) -> VirtualLogit:
        """The residual space and alpha."""
        moments, head, n = train.moments(self.needs), train.head.to("cpu"), train.n
        # gelsy: the shortest solution, pinv(W) b, without singular values
        solved = torch.linalg.lstsq(head.weight.double(), head.bias.double(), rcond=1e-6, driver="gelsy")
        origin = -solved.solution.numpy()
        center, sums = torch.from_numpy(origin), torch.from_numpy(train.sums)
        scatter = torch.from_numpy(moments.parts[Part.SECOND].copy())
        scatter.addr_(center, sums, alpha=-1).addr_(sums, center, alpha=-1).addr_(center, center, alpha=n)
        with torchs_threads():
            # by divide and conquer in the scatter's own memory: all vectors take less time than the half that is needed
            values, vectors = eigh(scatter.numpy().T, driver="evd", overwrite_a=True, check_finite=False)  # ascending
        filled = int((values > noise(n, len(values)) * values[-1]).sum())
        wanted = self.dimensions or paper_dimensions(len(values))
        kept = wanted if wanted < filled else filled // 2
        plain = VirtualLogit(origin, vectors[:, : len(values) - kept], 1.0)
        residual, largest = 0.0, 0.0
        for rows in moments.bank():
            residual += float(plain.residual(rows).double().sum())
            largest += float(head.logits(rows).amax(dim=1).double().sum())
        return VirtualLogit(plain.origin, plain.complement, largest / residual if residual > 0 else 0.0)


def paper_dimensions(width: int) -> int:
    """The paper's size of the principal subspace for a number of features.

    >>> [paper_dimensions(width) for width in (2048, 768, 192)]
    [1000, 512, 96]
    """
    return 1000 if width >= 2048 else 512 if width >= 768 else max(width // 2, 1)
