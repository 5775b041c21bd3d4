"""Mahalanobis distances to class means: MDS and RMDS, and on normalised features MDS++ and RMDS++."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import Sizes, copy_frozen, freeze_array
from oodshape.features.features import Features
from oodshape.features.moments import Statistic
from oodshape.features.sum_kernels import add_products, invert_upper, mirror, multiply_upper
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training_set import CHECKED, Classes, Training, uses_labels

Array = NDArray[Any]
D = TypeVar("D", bound="Mds")
Shrinkage = Literal["oas", "likelihood"]
FEW = 16  # rows: products of fewer take the time in which the matrix is read
AT_ONCE = 256  # classes, and columns of a matrix: no copy is made of all of them
LENGTH_ROUNDING = 2.0**-23  # of a length in float32
OWN_SHARE = 0.03  # by which the covariance of constant images is shrunk
KERNEL, RIDGE = 0.5, 0.1  # of the median squared distance; how much a residual counts
CONTRAST_SHARE = 0.3  # by which the covariance of the images that `Contrast` separates from ID images is shrunk


class Clusters(FittedScore):
    """-min over classes of ||(z - center) A - mean_c||^2, with z / ||z|| in place of z if `unit`."""

    center: Annotated[NDArray[np.float32], Sizes("M")]
    whitening: Annotated[NDArray[np.float32], Sizes("M M")]
    means: Annotated[NDArray[np.float32], Sizes("K M")]  # of the K classes seen, whitened
    unit: bool = field(default=True, kw_only=True)

    def of(self, seen: Evidence) -> Tensor:
        z = self.whitened(seen, "whitening")
        means = self.tensor("means", z)
        lengths = self.keep("lengths", z, lambda: means.square().sum(dim=1))
        nearest = (lengths - 2 * z @ means.T).argmin(dim=1)
        # the difference itself: where classes lie far apart, that of squared lengths would be rounding
        return -(z - means.index_select(0, nearest)).square().sum(dim=1)

    def whitened(self, seen: Evidence, name: str) -> Tensor:
        """[n, M] features, of length 1 if `unit`, minus the center, times a matrix; fitted ones are upper triangles."""
        z = (seen.directions if self.unit else seen.features) - self.tensor("center", seen.features)
        matrix = self.tensor(name, z)
        if torch.compiler.is_compiling() or len(z) < FEW:
            return z @ matrix
        below = self.keep(f"{name} below", z, lambda: matrix.tril(-1).any())
        return z @ matrix if below else multiply_upper(z, matrix)


class RelativeClusters(Clusters):
    """The same plus the squared distance to all images as one Gaussian."""

    background: Annotated[NDArray[np.float32], Sizes("M M")]

    def of(self, seen: Evidence) -> Tensor:
        """Minus the squared distance to the nearest class, relative to the background's."""
        return super().of(seen) + self.whitened(seen, "background").square().sum(dim=1)


class Unlike(FittedScore):
    """log of the squared distance to the nearest of some images that are not ID, less that to the nearest class.

    It is low for what resembles those images more than any class. Their distances are those by a covariance of their
    own, shrunk towards that within classes: constant images fill few directions.
    """

    images: Clusters
    classes: Clusters

    @classmethod
    def of_images(cls, classes: Clusters, outside: Features, inside: Features | None = None) -> tuple[Unlike, None]:
        """Compare images that are not ID with classes, which are those of features as they are: `inside` is not used.

        Returns:
            The score, and no scores of ID images.
        """
        rows = _rows(outside)
        center = rows.mean(dim=0)  # their own: distances between them are not differences of large numbers
        whitened = torch.tensor(classes.whitening, dtype=torch.float64)
        z = (rows - center) @ whitened
        own = _own_whitening(z, OWN_SHARE, 1.0)
        parts = center, whitened @ own, z @ own
        around, joint, means = (freeze_array(each.float().numpy()) for each in parts)
        return cls(replace(classes, center=around, whitening=joint, means=means), classes), None

    def of(self, seen: Evidence) -> Tensor:
        # distances of a thousandth of the covariance are no difference: what lies that close is the same image
        least = 1e-3 * len(self.classes.center)
        return (least - self.images.of(seen)).log() - (least - self.classes.of(seen)).log()


class Contrast(FittedScore):
    """sum over images i of weight_i exp(-||(z - center) A - image_i||^2): about 1 for ID images, -1 for others.

    It is ridge regression with a Gaussian kernel, whose width is half the median squared distance between images. The
    distances are those by the covariance of the others: where these fill few directions, the rest separates.
    """

    images: Clusters  # each is a cluster
    weights: Annotated[NDArray[np.float32], Sizes("N")]

    @classmethod
    def of_images(cls, classes: Clusters, outside: Features, inside: Features) -> tuple[Contrast, Tensor]:
        """Separate ID images from others.

        Returns:
            The score, and the score of each ID image, then of each other image, when it is left out.
        """
        counts = torch.tensor([len(inside), len(outside)])
        z = torch.cat([_rows(inside), _rows(outside)]) - torch.tensor(classes.center)
        whitened = _own_whitening(z[len(inside) :], CONTRAST_SHARE, float(z[: len(inside)].square().mean()))
        apart = torch.cdist(z @ whitened, z @ whitened).square()
        width = max(KERNEL * float(apart[apart > 0].median()), 1e-12) if apart.any() else 1.0
        wanted = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(counts)
        noise = (RIDGE * 2 * counts / len(z)).repeat_interleave(counts)  # both kinds count the same
        inverse = torch.linalg.inv((-apart / width).exp() + noise.double().diag())
        weights = inverse @ wanted
        left_out = wanted - weights / inverse.diagonal()
        parts = whitened / width**0.5, z @ whitened / width**0.5, weights
        joint, means, frozen = (freeze_array(each.float().numpy()) for each in parts)
        return cls(replace(classes, whitening=joint, means=means), frozen), left_out.float()

    def of(self, seen: Evidence) -> Tensor:
        z = self.images.whitened(seen, "whitening")
        images = self.images.tensor("means", z)
        lengths = self.images.keep("lengths", z, lambda: images.square().sum(dim=1))
        squares = z.square().sum(dim=1, keepdim=True) - 2 * z @ images.T + lengths
        return (-squares.clamp_min(0)).exp() @ self.tensor("weights", z)


def _rows(images: Features) -> Tensor:
    """[N, M] float64."""
    return torch.cat([chunk.double() for _, chunk in images.chunks()]).cpu()


def _own_whitening(z: Tensor, share: float, scale: float) -> Tensor:
    """[M, M] float64: whitening by the images' own covariance; the identity if they are the same, relative to `scale`.

    A network that normalises each image gives all constant images the same features.
    """
    around = z - z.mean(dim=0)
    if float(around.square().mean()) <= 1e-6 * scale:
        return torch.eye(z.shape[1], dtype=torch.float64)
    return torch.tensor(compute_whitening((around.T @ around).numpy(), len(z), share), dtype=torch.float64)


class _Sums(NamedTuple):
    """The parts that a distance is made of: of features as they are, or of length 1."""

    scatter: Statistic
    by_class: Statistic
    by_label: Statistic


RAW = _Sums(Statistic.SCATTER, Statistic.CLASS_SUMS, Statistic.LABEL_SUMS)
UNIT = _Sums(Statistic.UNIT_SCATTER, Statistic.UNIT_CLASS_SUMS, Statistic.UNIT_LABEL_SUMS)


class _Classes(NamedTuple):
    """Where the classes that have images lie, as sums, and the scatter around their means."""

    sums: Array  # [C, M]
    counts: Array  # [C]
    center: Array  # [M]
    scatter: Array  # [M, M]
    free: int  # degrees of freedom that made it

    def whitened(self, within: Array) -> Array:
        """[K, M] float32: the means of the K classes that have images, less the center, times an upper triangle."""
        seen = np.flatnonzero(self.counts)
        means = np.empty((len(seen), len(within)), np.float32)
        for first in range(0, len(within), AT_ONCE):
            last = first + AT_ONCE
            wide = torch.from_numpy(within[:last, first:last].astype(np.float64))
            for start in range(0, len(seen), AT_ONCE):
                part = seen[start : start + AT_ONCE]
                around = self.sums[part, :last] / self.counts[part, None] - self.center[:last]
                means[start : start + AT_ONCE, first:last] = (torch.from_numpy(around) @ wide).numpy()
        return freeze_array(means)


class Mds(ScoreRecipe):
    """-min_c (z - mu_c)' S^-1 (z - mu_c): MDS (Lee et al., 2018) on the features as they are.

    mu_c is the mean of the images of class c; classes without images are no candidates. The class of an image is the
    `predicted` one, its label (`labels`), or its label where all images have one in the network's order (`auto`). S is
    the covariance within classes, shrunk towards its mean variance, so that it has an inverse however few the images
    are: by a share that suits Gaussians (`oas`; Chen et al., 2010), or by the one under which images left out are
    likeliest (`likelihood`; Theiler, 2012). Where every class has one image at most it is the covariance of all.
    """

    _sums = RAW

    classes: Classes = "predicted"
    shrinkage: Shrinkage = "oas"

    def unlabelled(self: D) -> D:
        return replace(self, classes="predicted")

    @property
    def needs(self) -> frozenset[Statistic]:
        """Class sums and the scatter; sums by label where those may be used."""
        predicted = frozenset([Statistic.COUNTS, self._sums.by_class, self._sums.scatter])
        return predicted if self.classes == "predicted" else predicted | CHECKED | {self._sums.by_label}

    def fit(self, train: Training) -> Clusters:
        return self._within(train, self._share_of(train) if self.shrinkage == "likelihood" else None)

    def _share_of(self, train: Training) -> float:
        """The likeliest share; the scatter goes with it, and is made again: a copy would need more memory."""
        found = self._classes(train)
        return _find_likeliest_share(found.scatter, found.free)

    def _within(self, train: Training, share: float | None) -> Clusters:
        """The whitened class means by a covariance that is shrunk by a share, or by the one that suits Gaussians."""
        found = self._classes(train)
        chosen = _oas_share(found.scatter, found.free) if share is None else share
        within = compute_whitening(found.scatter, found.free, chosen)
        found = found._replace(scatter=within)  # the other one is not needed any more
        return Clusters(found.center, within, found.whitened(within), unit=self._sums is UNIT)

    def _classes(self, train: Training) -> _Classes:
        moments = train.moments(self.needs)
        if moments.n < 2:
            raise InputError(f"a covariance needs at least 2 training images, got {moments.n}")
        labelled = uses_labels(moments, self.classes)
        sums = moments.parts[self._sums.by_label if labelled else self._sums.by_class]
        counts = moments.parts[Statistic.LABEL_COUNTS if labelled else Statistic.COUNTS]
        center, free = sums.sum(axis=0) / moments.n, moments.n - int((counts > 0).sum())
        scatter = self._around(train)
        if not free:
            return _Classes(sums, counts, center, scatter, moments.n - 1)
        within = torch.from_numpy(scatter)
        for first in range(0, len(sums), AT_ONCE):
            number = counts[first : first + AT_ONCE, None]
            away = sums[first : first + AT_ONCE] - number * center
            means = away / np.maximum(number, 1)
            add_products(within, torch.from_numpy(away), torch.from_numpy(means), -1.0)
        mirror(scatter)
        return _Classes(sums, counts, center, scatter, free)

    def _around(self, train: Training) -> Array:
        """[M, M]: a copy of the scatter of all images around their mean, with n - 1 degrees of freedom.

        Scoring divides by a rounded length, which moves an image along the mean; the scatter takes that in.
        """
        moments = train.moments(self.needs)
        scatter: Array = moments.parts[self._sums.scatter].copy()
        if self._sums is UNIT:
            mean = torch.from_numpy(moments.parts["unit_scatter_sums"] / moments.n)
            torch.from_numpy(scatter).addr_(mean, mean, alpha=moments.n * LENGTH_ROUNDING**2)
        return scatter


class Rmds(Mds):
    """MDS minus the same with one Gaussian over all images: RMDS (Ren et al., 2021).

    By `likelihood` both Gaussians are shrunk by the share of the first: what two shares leave over would be taken for
    a difference between the two.
    """

    def fit(self, train: Training) -> RelativeClusters:
        share = self._share_of(train) if self.shrinkage == "likelihood" else None
        around, free = self._around(train), train.n - 1
        background = compute_whitening(around, free, _oas_share(around, free) if share is None else share)
        del around  # of both Gaussians one at a time is in memory
        within = self._within(train, share)
        return RelativeClusters(within.center, within.whitening, within.means, background, unit=within.unit)


class MdsPlus(Mds):
    """MDS on features of length 1, z / ||z||: MDS++ (Mueller & Hein, 2025)."""

    _sums = UNIT


class RmdsPlus(Rmds):
    """RMDS on features of length 1: RMDS++ (Ren et al., 2021; Mueller & Hein, 2025)."""

    _sums = UNIT


SHARES = 2.0 ** np.linspace(-20, 0, 81)  # that are tried


def _oas_share(scatter: Array, free: int) -> float:
    """The share that is best for Gaussians (OAS; Chen et al., 2010); `free` degrees of freedom made the scatter.

    >>> _oas_share(np.diag([1.0, 1.0]), 1)
    1.0
    """
    width = len(scatter)
    trace, square = _trace(scatter, free) / free, (float(np.linalg.norm(scatter)) / free) ** 2
    apart = (free + 1 - 2 / width) * (square - trace**2 / width)
    return 1.0 if apart <= 0 else min(1.0, ((1 - 2 / width) * square + trace**2) / apart)


def _find_likeliest_share(scatter: Array, free: int) -> float:
    """The share under which an image left out is likeliest, as a Gaussian, by its mean distance (Theiler, 2012).

    Without an image the covariance is A less a multiple of x x'; the determinant and the distance of x follow from
    r = x' A^-1 x, whose mean over all images is the trace of A^-1 S: the eigenvalues of S are all that is needed.

    >>> _find_likeliest_share(np.eye(3) * 50, 50)
    1.0
    """
    _trace(scatter, free)
    if free < 2:
        return 1.0
    values = np.maximum(torch.linalg.eigvalsh(torch.from_numpy(scatter)).numpy() / free, 0.0)
    best, lowest = 1.0, np.inf
    for share in SHARES:
        kept = (1 - share) / (free - 1)
        without = kept * free * values + share * values.mean()
        distance = float((values / without).sum())
        rest = max(1 - kept * distance, 1e-12)
        surprise = float(np.log(without).sum()) + np.log(rest) + distance / rest
        if surprise < lowest * (1 - 1e-12 * np.sign(lowest)):
            best, lowest = float(share), surprise
    return best


def compute_whitening(scatter: Array, free: int, share: float) -> Array:
    """[M, M] float32, frozen: A with A A' = the inverse of the covariance shrunk by a share.

    The scatter is used up: its memory serves the covariance.
    """
    mean = _trace(scatter, free) / free / len(scatter)
    covariance = torch.from_numpy(scatter).div_(free)
    covariance.mul_(1 - share).diagonal().add_(share * mean)
    upper, failed = torch.linalg.cholesky_ex(covariance, upper=True)
    if failed.item():
        raise InputError("the covariance of the training features has no inverse; give more images")
    invert_upper(upper)
    return copy_frozen(upper.numpy(), np.float32)


def _trace(scatter: Array, free: int) -> float:
    trace = float(np.trace(scatter))
    if not trace > free * 1e-12:
        raise InputError("the directions of the training features are all the same: they have no covariance")
    return trace
