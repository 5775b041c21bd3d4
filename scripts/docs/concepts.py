"""The figures of docs/concepts.md, from two normal distributions: AUROC, FPR95 and threshold, p-value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from lean import svg
from oodshape.report.palette import ID_COLOR, OOD_COLOR, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSIDE, OUTSIDE = norm(2.0, 1.0), norm(0.0, 1.0)  # scores of ID and of OOD images
SHOWN = 0.9  # the score of the image in the last figure


def figures() -> dict[str, str]:
    """SVGs by name."""
    return {
        "concept-auroc": svg((4.2, 2.8), "ROC curve with the area under it shaded", _roc),
        "concept-fpr95": svg((5.6, 2.6), "Scores of ID and OOD images, the threshold, accepted OOD shaded", _fpr),
        "concept-p-value": svg(
            (5.6, 2.6), "Calibration scores, the score of one image, the fraction below it", _p_value
        ),
    }


def _roc(axes: Axes) -> None:
    thresholds = np.linspace(-4, 6, 121)
    accepted_ood, accepted_id = OUTSIDE.sf(thresholds), INSIDE.sf(thresholds)
    axes.fill([*accepted_ood, 0, 1], [*accepted_id, 0, 0], color=ID_COLOR, alpha=0.2)
    axes.plot(accepted_ood, accepted_id, color=ID_COLOR)
    axes.plot([0, 1], [0, 1], color=TEXT, linewidth=0.8, linestyle=":")
    area = norm.cdf(2.0 / np.sqrt(2.0))
    axes.text(0.3, 0.72, f"AUROC = area = {100 * area:.0f} %", fontsize=9)
    axes.text(0.62, 0.5, "chance: 50 %", fontsize=8)
    axes.set(xlabel="OOD images accepted", ylabel="ID images accepted", xlim=(0, 1), ylim=(0, 1))


def _fpr(axes: Axes) -> None:
    scores = np.linspace(-3.2, 5.2, 169)
    threshold = INSIDE.ppf(0.05)
    for law, color, name in ((INSIDE, ID_COLOR, "ID"), (OUTSIDE, OOD_COLOR, "OOD")):
        axes.plot(scores, law.pdf(scores), color=color, label=name)
    above = scores[scores >= threshold]
    axes.fill([above[0], *above, above[-1]], [0, *OUTSIDE.pdf(above), 0], color=OOD_COLOR, alpha=0.35)
    axes.axvline(threshold, color=TEXT, linewidth=1.2, linestyle="--")
    axes.text(threshold + 0.08, 0.455, "threshold: 95 % of ID accepted", fontsize=8)
    axes.text(0.45, 0.03, f"FPR95\n= {100 * OUTSIDE.sf(threshold):.0f} %", fontsize=8.5)
    axes.text(-3.1, 0.455, "rejected", fontsize=8)
    axes.set(xlabel="score", ylabel="density", yticks=[], ylim=(0, 0.5))
    axes.legend(loc="center right")


def _p_value(axes: Axes) -> None:
    calibration = INSIDE.ppf((np.arange(200) + 0.5) / 200)
    edges = np.linspace(-1.2, 5.2, 33)
    counts = np.histogram(calibration, edges)[0]
    axes.stairs(counts, edges, fill=True, color=ID_COLOR, alpha=0.25)
    below = edges[:-1] < SHOWN
    axes.stairs(counts[below], edges[: below.sum() + 1], fill=True, color=OOD_COLOR, alpha=0.6)
    axes.stairs(counts, edges, color=ID_COLOR, label="200 calibration images")
    axes.axvline(SHOWN, color=TEXT, linewidth=1.2)
    p_value = (1 + (calibration <= SHOWN).sum()) / 201
    axes.text(SHOWN + 0.06, 16.6, f"this image: p = {p_value:.2f}", fontsize=8.5)
    threshold = np.sort(calibration)[int(0.05 * 201) - 1]
    axes.axvline(threshold, color=TEXT, linewidth=1.2, linestyle="--")
    axes.text(threshold - 0.06, 8.5, "threshold at\nalpha = 0.05", fontsize=8.5, ha="right")
    axes.set(xlabel="score", ylabel="images", ylim=(0, 19))
    axes.legend(loc="center right")
