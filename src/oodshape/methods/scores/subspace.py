"""Principal subspaces: ViM (Wang et al., 2022), NECO (Ben Ammar et al., 2024) and CoP (Fang et al., 2024)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.values import AtLeast, Fraction, Sizes
from oodshape.features.kernels import TINY, normalise_rows
from oodshape.features.moments import Statistic
from oodshape.features.sum_kernels import NARROW, NOISE
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training_set import Training


class VirtualLogit(FittedScore):
    """Energy - alpha ||(z - origin) R||, R the complement of the principal subspace."""

    origin: Annotated[NDArray[np.float32], Sizes("M")]
    complement: Annotated[NDArray[np.float32], Sizes("M R")]  # R = M less the dimensions of the subspace
    alpha: float

    def of(self, seen: Evidence) -> Tensor:
        return torch.logsumexp(seen.logits, dim=1) - self.alpha * self.residual(seen.features)

    def residual(self, z: Tensor) -> Tensor:
        """[n]: the length of what lies outside the principal subspace."""
        outside = (z - self.tensor("origin", z)) @ self.tensor("complement", z)
        length: Tensor = torch.linalg.vector_norm(outside, dim=1)
        return length


class Vim(ScoreRecipe):
    """Energy minus a virtual logit, the length of the residual times alpha = mean max logit / mean residual.

    The principal subspace has `dimensions`, by default the paper's: 1000 of 2048 or more features, 512 of 768 or
    more, else half of them; where the training features do not fill that many, half of those they fill. It is
    read off the scatter around the origin -pinv(W) b; alpha comes from the bank of at most 5,000 images.
    """

    needs = frozenset([Statistic.SCATTER, Statistic.BANK])  # the bank is for alpha

    dimensions: Annotated[int, AtLeast(1)] | None = None

    def fit(self, train: Training) -> VirtualLogit:
        moments, head, n = train.moments(self.needs), train.head.to("cpu"), train.n
        origin: NDArray[Any] = np.zeros(head.width)
        if bool(head.bias.any()):  # gelsy: the shortest solution, pinv(W) b, without singular values
            solved = torch.linalg.lstsq(head.weight.double(), head.bias.double(), rcond=1e-6, driver="gelsy")
            origin = -solved.solution.numpy()
        away = torch.from_numpy(moments.parts["scatter_sums"] / n - origin)
        scatter = torch.from_numpy(moments.parts[Statistic.SCATTER].copy()).addr_(away, away, alpha=n)
        # all vectors, by divide and conquer, take less time than the half that is needed; torch's own threads: scipy's
        # wait by spinning, which makes this ten times slower where other programs run
        values, vectors = (found.numpy() for found in torch.linalg.eigh(scatter))  # ascending
        # rounding is that of the features around their mean: far from the origin, the mean would hide the others
        spread = min(values[-1], float(np.trace(moments.parts[Statistic.SCATTER])))
        filled = int((values > max(NOISE * spread, np.finfo(np.float32).eps ** 2 * values[-1])).sum())
        wanted = self.dimensions or _paper_dimensions(len(values))
        kept = wanted if wanted < filled else filled // 2
        plain = VirtualLogit(origin, vectors[:, : len(values) - kept], 1.0)
        residual = sum(float(plain.residual(rows).double().sum()) for rows in moments.bank())
        largest = float(moments.bank_outputs(head)[1].double().sum())
        return VirtualLogit(plain.origin, plain.complement, largest / residual if residual > 0 else 0.0)


def _paper_dimensions(width: int) -> int:
    """The paper's size of the principal subspace for a number of features.

    >>> [_paper_dimensions(width) for width in (2048, 768, 192)]
    [1000, 512, 96]
    """
    return 1000 if width >= 2048 else 512 if width >= 768 else max(width // 2, 1)


ROUNDING = 1e-9  # of a share of variance
UNCHANGED = 1e-15  # of a squared mean: a smaller variance is rounding of float32 features


class Subspace(FittedScore):
    """||P t|| / ||t||, times the largest logit where `logit`, with t = (z - mean) / scale."""

    mean: Annotated[NDArray[np.float32], Sizes("M")]
    scale: Annotated[NDArray[np.float32], Sizes("M")]
    axes: Annotated[NDArray[np.float32], Sizes("M K")]
    logit: bool

    def of(self, seen: Evidence) -> Tensor:
        t = (seen.features - self.tensor("mean", seen.features)) / self.tensor("scale", seen.features)
        inside: Tensor = torch.linalg.vector_norm(t @ self.tensor("axes", t), dim=1)
        share: Tensor = inside / torch.linalg.vector_norm(t, dim=1).clamp_min(TINY)
        return share * seen.logits.amax(dim=1) if self.logit else share


class Neco(ScoreRecipe):
    """The share of the standardised features' length in their principal subspace, times the largest logit.

    The subspace holds a share `variance` of the training features' variance. The authors leave the logit out on
    ResNets: `logit=False`.
    """

    needs = frozenset([Statistic.SCATTER])

    variance: Annotated[float, Fraction(one=True)] = 0.9
    logit: bool = True

    def fit(self, train: Training) -> Subspace:
        parts = train.moments(self.needs).parts
        mean, covariance = parts["scatter_sums"] / train.n, parts[Statistic.SCATTER] / train.n
        variance = np.diagonal(covariance)
        # one that never changes is not scaled
        scale = np.sqrt(np.where(variance > UNCHANGED * mean**2, variance, 1.0))
        covariance /= scale
        covariance /= scale[:, None]
        return Subspace(mean.astype(np.float32), scale, _principal_axes(covariance, self.variance)[0], self.logit)


def _principal_axes(covariance: NDArray[Any], variance: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """[M, K]: the fewest principal axes of a covariance [M, M] that hold a fraction `variance`; [M, M - K]: the others.

    Of many features they are computed in float32, in half the time: axes of much variance lose nothing by it.
    """
    matrix = torch.from_numpy(covariance).to(torch.float64 if len(covariance) < NARROW else torch.float32)
    values, axes = (found.numpy() for found in torch.linalg.eigh(matrix))  # ascending
    shares = np.cumsum(np.maximum(values[::-1], 0.0), dtype=np.float64)
    kept = 1 + int(np.searchsorted(shares, (variance - ROUNDING) * shares[-1]))
    split = len(axes) - kept
    return np.ascontiguousarray(axes[:, split:][:, ::-1]), np.asarray(axes[:, :split], np.float32)


class EnergyAndResidual(FittedScore):
    """Energy less the length of the residual of u = z / ||z|| outside the principal subspace, both z-scored."""

    mean: Annotated[NDArray[np.float32], Sizes("M")]  # of u
    axes: Annotated[NDArray[np.float32], Sizes("M K")]
    energy: tuple[float, float] = (0.0, 1.0)  # mean and standard deviation on training images
    residual: tuple[float, float] = (0.0, 1.0)

    def of(self, seen: Evidence) -> Tensor:
        t = seen.directions - self.tensor("mean", seen.directions)
        axes = self.tensor("axes", t)
        residual: Tensor = torch.linalg.vector_norm(t - (t @ axes) @ axes.T, dim=1)
        energy = (torch.logsumexp(seen.logits, dim=1) - self.energy[0]) / self.energy[1]
        return energy - (residual - self.residual[0]) / self.residual[1]


class Cop(ScoreRecipe):
    """Energy plus CoP: minus the PCA reconstruction error of features of length 1, each z-scored on the bank.

    The principal subspace holds a fraction `variance` of the variance of the training features of length 1.
    """

    needs = frozenset([Statistic.UNIT_SCATTER, Statistic.BANK])

    variance: Annotated[float, Fraction(one=True)] = 0.9

    def fit(self, train: Training) -> EnergyAndResidual:
        moments, head = train.moments(self.needs), train.head.to("cpu")
        mean = moments.parts["unit_scatter_sums"] / train.n
        covariance = moments.parts[Statistic.UNIT_SCATTER] / train.n
        center, (axes, others) = torch.from_numpy(mean).float(), _principal_axes(covariance, self.variance)
        outside = torch.from_numpy(others)  # as long as what the axes leave over, by fewer products
        found = [torch.linalg.vector_norm((normalise_rows(rows) - center) @ outside, dim=1) for rows in moments.bank()]
        both = (each.double() for each in (moments.bank_outputs(head)[0], torch.cat(found)))
        scales = [(float(x.mean()), float(x.std(correction=0)) or 1.0) for x in both]
        return EnergyAndResidual(center.numpy(), axes, *scales)
