"""The measures that reports show: each is declared here once, and every table, page and note follows.

A measure with a short head is a column of every table; one without is offered on the page alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Measure:
    """A field of `Row` as readers see it: its name, the direction that is better, its short head in tables."""

    name: str
    title: str
    best: Literal[-1, 1]  # the sign of a change for the better
    head: str = ""

    @property
    def arrow(self) -> str:
        """Which way is better, as a sign."""
        return "↑" if self.best > 0 else "↓"

    @property
    def note(self) -> str:
        """The short head explained.

        >>> SHOWN[0].note
        'FP: FPR95 in percent, lower is better.'
        """
        return f"{self.head}: {self.title} in percent, {'higher' if self.best > 0 else 'lower'} is better."


MEASURES = (
    Measure("fpr95", "FPR95", -1, "FP"),
    Measure("auroc", "AUROC", 1, "AU"),
    Measure("aupr_in", "AUPR-in", 1),
    Measure("aupr_out", "AUPR-out", 1),
    Measure("fpr95_ood", "FPR95 (OOD positive)", -1),
)
SHOWN = tuple(measure for measure in MEASURES if measure.head)
MAIN: Final = "auroc"  # methods are ranked by it where a page must choose
ERROR = "fpr95"  # what a threshold lets through
Order = Literal["table", "auroc", "fpr95"]  # of a table's lines: the methods' own, or by a measure
