"""OODEstimator: a method over feature arrays behind scikit-learn's outlier detector contract."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from oodshape.core.errors import InputError, check_fraction
from oodshape.features.features import Features
from oodshape.methods.detector import PARTS, Detector, Method, check_scores
from oodshape.methods.registry import find_method
from oodshape.methods.slots import Batch, Evidence
from oodshape.metrics.conformal import threshold_rank
from oodshape.networks.head import Head

Array = NDArray[Any]
ROUNDING = 1e-9  # of a score in float64, relative to the largest, with room to spare


class OODEstimator(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scikit-learn outlier detector on features: 1 for rows like the training rows, -1 for others, by any method.

    X are features, one row per image. The methods need a linear head: the network's own if `weight` and `bias` are
    given; else a logistic regression on the labels y; else the nearest of `n_clusters` k-means centres, which is linear
    too. With too few rows, or calibration=None, the threshold comes from the fitted rows, and there is no guarantee;
    otherwise `guaranteed_` is True.

    Features are rounded to float32; scores are computed in float64, so that the score of a row does not depend on the
    other rows of the call (to 1e-7). Decisions may differ only if a score lies that close to the threshold.

    >>> rng = np.random.default_rng(0)
    >>> X, y = np.repeat(np.eye(3), 100, axis=0) + rng.normal(scale=0.1, size=(300, 3)), np.repeat([0, 1, 2], 100)
    >>> OODEstimator("mds++").fit(X, y).predict([[1.0, 0.0, 0.0], [-5.0, -5.0, 5.0]])
    array([ 1, -1])

    Args:
        method: An id from `METHODS`, or a `Method`.
        weight: [C, M] weight of the network's head.
        bias: [C] bias of the network's head.
        alpha: Upper bound on the expected fraction of ID images that are rejected by mistake.
        calibration: Fraction of X that is kept from fitting and sets the threshold (split conformal).
        n_clusters: Number of k-means centres.
        random_state: Seed.
    """

    def __init__(
        self,
        method: str | Method = "optfs-e",
        *,
        weight: Any = None,
        bias: Any = None,
        alpha: float = 0.05,
        calibration: float | None = 0.25,
        n_clusters: int = 8,
        random_state: int | None = 0,
    ) -> None:
        self.method = method
        self.weight = weight
        self.bias = bias
        self.alpha = alpha
        self.calibration = calibration
        self.n_clusters = n_clusters
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> OODEstimator:
        """Fit head, method and threshold.

        Args:
            X: [n, M] features.
            y: [n] labels, or None.

        Returns:
            The estimator itself.

        Raises:
            InputError: If a parameter cannot be used.
        """
        rows = self._rows(X, reset=True)
        method = self.method if isinstance(self.method, Method) else find_method(self.method)
        check_fraction("alpha", self.alpha)
        labels = None if y is None else column_or_1d(y)
        if labels is not None and len(labels) != len(rows):
            raise InputError(f"X has {len(rows)} rows, y has {len(labels)}")
        fitting, held_out = self._split(rows)
        self.guaranteed_ = bool(len(held_out))
        head = self._head(rows[fitting], None if labels is None else labels[fitting])
        detector = method.fit(Features.from_arrays(rows[fitting], head))
        basis = held_out if self.guaranteed_ else fitting
        scores = _scores(detector, Features.from_arrays(rows[basis], head))
        # without a promise, the smallest score stands in where alpha would ask for less than one row
        place = max(threshold_rank(len(scores), self.alpha), 1)
        self.detector_: Detector = detector.calibrate(scores, self.alpha) if self.guaranteed_ else detector
        # below the score of that row by more than rounding: the row itself is accepted in any batch
        self.offset_ = float(np.sort(scores)[place - 1] - ROUNDING * np.abs(scores).max())
        self.head_ = head
        return self

    def score_samples(self, X: Any) -> Array:
        """Score rows.

        Args:
            X: [n, M] features.

        Returns:
            [n] scores, higher = more like the training rows.
        """
        check_is_fitted(self)
        return _scores(self.detector_, Features.from_arrays(self._rows(X, reset=False), self.head_))

    def decision_function(self, X: Any) -> Array:
        """Return score - offset_, negative for rejected rows.

        Args:
            X: [n, M] features.

        Returns:
            [n] values.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Array:
        """Accept or reject rows.

        Args:
            X: [n, M] features.

        Returns:
            [n]: 1 for accepted rows, -1 for rejected rows.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def _rows(self, X: Any, *, reset: bool) -> NDArray[np.float32]:
        rows = validate_data(self, X, dtype=[np.float32, np.float64], reset=reset, ensure_min_samples=2 if reset else 1)
        return np.ascontiguousarray(rows, dtype=np.float32)

    def _split(self, rows: Array) -> tuple[Array, Array]:
        """(rows to fit on, distinct other rows to calibrate on); the second is empty where it would be too small."""
        order = np.random.default_rng(self.random_state).permutation(len(rows))
        if self.calibration is None:
            return order, order[:0]
        check_fraction("calibration", self.calibration)
        kind = np.unique(rows, axis=0, return_inverse=True)[1].ravel()[order]  # copies of a row are of one kind
        distinct = np.sort(np.unique(kind, return_index=True)[1])
        held_out = distinct[: int(self.calibration * len(distinct))]
        if threshold_rank(len(held_out), self.alpha) < 1:
            warnings.warn(
                f"{len(held_out)} of {len(distinct)} distinct rows are too few to calibrate alpha = {self.alpha:g}: "
                "the threshold comes from the fitted rows, so there is no guarantee; give more, or calibration=None",
                stacklevel=3,
            )
            return order, order[:0]
        return order[~np.isin(kind, kind[held_out])], order[held_out]

    def _head(self, rows: Array, labels: Array | None) -> Head:
        if self.weight is not None:
            return Head.of((check_array(self.weight), self.bias))
        if labels is not None and len(np.unique(labels)) > 1:
            check_classification_targets(labels)
            fitted = LogisticRegression(max_iter=1000).fit(rows, labels)
            weight, bias = fitted.coef_, fitted.intercept_
            if len(weight) == 1:  # two classes: one row stands for the second
                weight, bias = np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
            return Head.of((weight, bias))
        count = min(self.n_clusters, len(np.unique(rows, axis=0)))
        centers = KMeans(count, n_init=1, random_state=self.random_state).fit(rows).cluster_centers_
        return Head.of((centers, -0.5 * np.square(centers).sum(axis=1)))


def _scores(detector: Detector, features: Features) -> NDArray[np.float64]:
    """[n] what `detector.score` gives, computed in float64."""
    detector.check_features(features)
    shape, last, scorer = detector.shape.traced(), detector.head.traced(), detector.scorer.traced()
    own, bound = features.head, last.bind(features.head)
    head = Head(own.weight.double(), own.bias.double())
    layer = head if bound is own else Head(bound.weight.double(), bound.bias.double())
    found = [
        scorer.of(Evidence(Batch(raw, head, first, dtype=torch.float64), shape, last, layer))
        for first, raw in features.chunks(parts=PARTS)
    ]
    scores = torch.cat(found)
    check_scores(scores)
    return np.asarray(scores.double().numpy())
