"""Covariances with an inverse: shrunk towards their mean variance, by how much and what of it is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.linalg.lapack import dpotrf, dtrtri

from oodshape.core.errors import InputError
from oodshape.core.values import frozen_array
from oodshape.features.sum_kernels import exact, torchs_threads

Array = NDArray[Any]
SHARES = 2.0 ** np.linspace(-20, 0, 81)  # that are tried


def oas_share(scatter: Array, free: int) -> float:
    """The share that is best for Gaussians (OAS; Chen et al., 2010); `free` degrees of freedom made the scatter.

    >>> oas_share(np.diag([1.0, 1.0]), 1)
    1.0
    """
    width = len(scatter)
    trace, square = _trace(scatter, free) / free, (float(np.linalg.norm(scatter)) / free) ** 2
    apart = (free + 1 - 2 / width) * (square - trace**2 / width)
    return 1.0 if apart <= 0 else min(1.0, ((1 - 2 / width) * square + trace**2) / apart)


def likeliest_share(scatter: Array, free: int) -> float:
    """The share under which an image left out is likeliest, as a Gaussian, by its mean distance (Theiler, 2012).

    Without an image the covariance is A less a multiple of x x'; the determinant and the distance of x follow from
    r = x' A^-1 x, whose mean over all images is the trace of A^-1 S: the eigenvalues of S are all that is needed.
    The scatter is used up: its memory serves them.

    >>> likeliest_share(np.eye(3) * 50, 50)
    1.0
    """
    _trace(scatter, free)
    if free < 2:
        return 1.0
    with torchs_threads():
        found = eigvalsh(scatter.T, overwrite_a=True, check_finite=False, driver="evd")
    values = np.maximum(found / free, 0.0)
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


def whitening(scatter: Array, free: int, share: float) -> Array:
    """[M, M] float32, frozen: A with A A' = the inverse of the covariance shrunk by a share.

    The scatter is used up: its memory serves the covariance.
    """
    mean = _trace(scatter, free) / free / len(scatter)
    covariance = torch.from_numpy(scatter).div_(free)
    covariance.mul_(1 - share).diagonal().add_(share * mean)
    with torchs_threads():  # both in the scatter's own memory
        upper, failed = dpotrf(covariance.numpy().T, overwrite_a=True)
        if failed:
            raise InputError("the covariance of the training features has no inverse; give more images")
        inverse: Array = dtrtri(upper, overwrite_c=True)[0]
    return frozen_array(inverse, np.float32)


def _trace(scatter: Array, free: int) -> float:
    trace = float(np.trace(scatter))
    if not trace > free * (1e-12 if exact(free, len(scatter)) else 1e-6):  # in float32, rounding leaves 1e-7
        raise InputError("the directions of the training features are all the same: they have no covariance")
    return trace
