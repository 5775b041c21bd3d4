"""The metrics of a benchmark, each declared once: tables, pages, files and options follow this list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oodshape.core.errors import InputError, check_fraction, unknown
from oodshape.metrics import detection
from oodshape.metrics.detection import Estimate, Floats, Outcome
from oodshape.metrics.significance import Difference, Scores, delong

UNITS = {"%": ("percent", 100, 2), "s": ("seconds", 1, 3), "ms": ("milliseconds", 1, 3)}  # name, factor, decimals
LIMITS = {"_low": "low", "_high": "high"}  # how the columns of a metric's interval end in flat files


@dataclass(frozen=True)
class Metric:
    """A number about one method on one network and one OOD set.

    Args:
        name: The column in results.csv, and, with - for _, the name on the command line.
        head: The short name in the head of a column.
        title: What the number is, for notes below tables and on pages.
        direction: Which values are better.
        function: From an outcome (of any number of resamples at once) to values; None where it cannot be measured.
        unit: %: a fraction in [0, 1], shown in percent, with a bootstrap interval. s, ms: a cost in this unit, not
            bounded by 1, which every run measures again: it has no interval, and runs are not compared by it.
        tolerance: How far two runs may differ and still agree: as a fraction, and in OOD images that change sides.
        paired: The test of two methods on the same images, by default a paired bootstrap.
    """

    name: str
    head: str
    title: str
    direction: Literal["higher", "lower"]
    function: Callable[[Outcome], Floats | float | None]
    unit: Literal["%", "s", "ms"] = "%"
    tolerance: tuple[float, int] = (0.005, 2)
    paired: Callable[[Scores, Scores], Difference] | None = None

    def __call__(self, id_scores: Any, ood_scores: Any) -> float:
        """The value from scores alone."""
        value = self.function(Outcome.of(id_scores, ood_scores))
        if value is None:
            raise InputError(f"{self.name} cannot be computed from scores alone")
        return float(value)

    @property
    def interval(self) -> bool:
        """Whether it has an interval: costs have none."""
        return self.unit == "%"

    @property
    def sign(self) -> int:
        """The sign of a change for the better."""
        return 1 if self.direction == "higher" else -1

    @property
    def arrow(self) -> str:
        """The better direction as an arrow."""
        return "↑" if self.direction == "higher" else "↓"

    @property
    def note(self) -> str:
        """The head explained.

        >>> METRICS["auroc"].note
        'AUROC: probability that an ID image scores higher than an OOD image; in percent, higher is better.'
        """
        return f"{self.head}: {self.title}; in {UNITS[self.unit][0]}, {self.direction} is better."

    def allow(self, n_ood: int) -> float:
        """The largest difference of two runs that agree, on an OOD set of this size."""
        return self.tolerance[0] + self.tolerance[1] / n_ood

    def show(self, value: float) -> str:
        """The value in its unit, as it is printed; - for NaN.

        >>> METRICS["auroc"].show(0.97531), METRICS["fit_seconds"].show(97.531)
        ('97.53', '97.531')
        """
        _, factor, decimals = UNITS[self.unit]
        return "-" if np.isnan(value) else f"{factor * value:.{decimals}f}"


JOINT = "errors are wrong answers to ID images and accepted OOD images, cost 1 each, OOD weighted to 50 %"
_ALL = (
    Metric(
        "auroc",
        "AUROC",
        "probability that an ID image scores higher than an OOD image",
        "higher",
        detection.area_under_roc,
        tolerance=(0.001, 0),
        paired=delong,
    ),
    Metric(
        "fpr95",
        "FPR95",
        "OOD images accepted when 95 % of ID images are accepted",
        "lower",
        detection.false_positive_rate,
    ),
    Metric(
        "aupr_in",
        "AUPR-in",
        "area under the precision-recall curve, ID positive",
        "higher",
        detection.area_under_precision_recall,
    ),
    Metric(
        "aupr_out",
        "AUPR-out",
        "area under the precision-recall curve of the negated scores, OOD positive",
        "higher",
        lambda outcome: detection.area_under_precision_recall(detection.swap_positive(outcome)),
    ),
    Metric(
        "fpr95_ood",
        "FPR95-ood",
        "ID images rejected when 95 % of OOD images are rejected (OOD positive, OpenOOD's convention)",
        "lower",
        lambda outcome: detection.false_positive_rate(detection.swap_positive(outcome)),
    ),
    Metric("joint_aurc", "joint AURC", f"mean risk over all coverages; {JOINT}", "lower", detection.joint_aurc),
    Metric(
        "joint_coverage",
        "joint cov@5%",
        f"largest coverage with at most 5 % risk; {JOINT}",
        "higher",
        detection.joint_coverage,
    ),
    Metric(
        "fit_seconds",
        "fit s",
        "time to fit, without the extraction of features and the statistics that methods share",
        "lower",
        lambda outcome: outcome.fit_seconds,
        unit="s",
    ),
    Metric(
        "image_ms",
        "ms/image",
        "time to score one image from its features; with the network for methods that perturb images",
        "lower",
        lambda outcome: None if outcome.image_seconds is None else 1000 * outcome.image_seconds,
        unit="ms",
    ),
)
METRICS = {metric.name: metric for metric in _ALL}
MAIN = METRICS["auroc"]  # ranks methods
ERROR = METRICS["fpr95"]  # the errors at a threshold, for sentences
DEFAULT_METRICS = (MAIN, ERROR)  # the columns of a table unless others are chosen


def find_metric(name: str) -> Metric:
    """The metric of this name, in which - may stand for _."""
    found = METRICS.get(name.replace("-", "_"))
    if found is None:
        names = ", ".join(METRICS).replace("_", "-")
        raise unknown("metric", name, METRICS, f"there are {names}")
    return found


def measure(
    id_scores: Any,
    ood_scores: Mapping[str, Any],
    *,
    correct: Any = None,
    fit_seconds: float | None = None,
    image_seconds: Mapping[str, float | None] | None = None,
    level: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
) -> tuple[dict[str, dict[str, Estimate]], dict[str, Estimate]]:
    """Every metric of one method on one network: by OOD set and name, and the means over the sets by name.

    Intervals are percentile bootstrap intervals; ID images are resampled once for all sets (`detection.resample`).

    Args:
        id_scores: [n_id] scores of the ID images.
        ood_scores: The scores of every OOD set by its name.
        correct: [n_id] whether the class of each ID image is predicted correctly; None where that is not known.
        fit_seconds: How long the method took to fit.
        image_seconds: How long it took to score an image, by OOD set.
        level: The confidence level of the intervals.
        resamples: The number of bootstrap resamples.
        seed: Decides the resamples.

    >>> sets, means = measure([4.0, 3.0, 2.0], {"noise": [1.0, 0.0]})
    >>> sets["noise"]["auroc"].value, means["auroc"].value, round(means["auroc"].low, 2)
    (1.0, 1.0, 0.37)
    """
    if not ood_scores:
        raise InputError("there is no OOD set to measure on")
    right = None if correct is None else np.asarray(correct, bool)
    points: dict[str, dict[str, float]] = {}
    drawn: dict[str, dict[str, Floats]] = {}
    for place, (ood, scores) in enumerate(ood_scores.items()):
        id_ranks, ood_ranks, width = detection.rank_scores(id_scores, scores)
        if right is not None and right.shape != id_ranks.shape:
            raise InputError(f"correct must hold {len(id_ranks)} truth values, one per ID image, got {right.shape}")
        whole = detection.count_outcome(id_ranks, ood_ranks, width, right, fit_seconds, (image_seconds or {}).get(ood))
        values = {name: metric.function(whole) for name, metric in METRICS.items()}
        points[ood] = {name: float(value) for name, value in values.items() if value is not None}
        every = np.concatenate([id_ranks, ood_ranks])  # an unseen ID image with the score of an OOD image is wrong
        known = None if right is None else np.concatenate([right, np.zeros(len(ood_ranks), bool)])
        chunks: dict[str, list[Any]] = {name: [] for name in points[ood] if METRICS[name].interval}
        for i, j in detection.resample(len(id_ranks), len(ood_ranks), resamples, seed, place):
            resample = detection.count_outcome(every[i], every[j], width, None if known is None else known[i])
            for name, parts in chunks.items():
                parts.append(METRICS[name].function(resample))
        drawn[ood] = {name: np.concatenate(parts) for name, parts in chunks.items()}
    sets = {
        ood: {name: _estimate(points[ood][name], drawn[ood].get(name), level) for name in points[ood]} for ood in points
    }
    means = {}
    for name in METRICS:
        if all(name in found for found in points.values()):
            mean = float(np.mean([found[name] for found in points.values()]))
            resampled = [found[name] for found in drawn.values() if name in found]
            means[name] = _estimate(mean, np.mean(resampled, axis=0) if resampled else None, level)
    return sets, means


def _estimate(value: float, drawn: Floats | None, level: float) -> Estimate:
    return Estimate(value, value, value) if drawn is None else detection.percentile_interval(value, drawn, level)


def check_metrics(metrics: Mapping[str, Estimate]) -> None:
    """Refuse unknown metrics, fractions outside [0, 1] and negative costs."""
    for name, estimate in metrics.items():
        unit = find_metric(name).unit
        for end, value in (("", estimate.value), ("_low", estimate.low), ("_high", estimate.high)):
            if unit == "%":
                check_fraction(name + end, value, zero=True, one=True)
            elif not 0 <= value < float("inf"):
                raise InputError(f"{name}{end} must be at least 0 and finite, got {value:g}")


def flatten_metrics(metrics: Mapping[str, Estimate]) -> dict[str, float]:
    """The metrics as the columns of a flat file: value, low and high.

    >>> flatten_metrics({"auroc": Estimate(0.9, 0.8, 0.95), "fit_seconds": Estimate(2.0, 2.0, 2.0)})
    {'auroc': 0.9, 'auroc_low': 0.8, 'auroc_high': 0.95, 'fit_seconds': 2.0}
    """
    found: dict[str, float] = {}
    for name, estimate in metrics.items():
        found[name] = estimate.value
        found |= {name + end: getattr(estimate, part) for end, part in LIMITS.items() if METRICS[name].interval}
    return found


def gather_metrics(columns: Mapping[str, Any]) -> tuple[dict[str, Estimate], dict[str, Any]]:
    """The metrics among the columns of a flat file, and the other columns.

    >>> gather_metrics({"method": "msp", "auroc": 0.9, "auroc_low": 0.8, "auroc_high": 0.95})
    ({'auroc': Estimate(value=0.9, low=0.8, high=0.95)}, {'method': 'msp'})
    """
    rest = dict(columns)
    metrics = {}
    for name in METRICS:
        if name in rest:
            value = rest.pop(name)
            metrics[name] = Estimate(value, *(rest.pop(name + end, value) for end in LIMITS))
    return metrics, rest
