"""Flag images of a finished score file with a bound on the false discovery rate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oodshape.core import files
from oodshape.core.errors import InputError
from oodshape.core.files import reading
from oodshape.core.text import format_count
from oodshape.core.values import decode_value
from oodshape.guard.scoring.score_formats import (
    Cells,
    ScoreRow,
    check_format,
    import_parquet,
    read_scores,
    write_text,
)
from oodshape.metrics.conformal import false_discoveries, fewest_flagged

ROUNDING = 1e-6  # of a p-value in a text file, relative


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration set that p-values come from."""

    images: int
    alpha: float | None = None
    held_out: bool = True  # whether the network was not trained on them; without it there is no guarantee
    scores: NDArray[np.float32] | None = None  # ascending

    @classmethod
    def of(cls, path: str | Path) -> Calibration:
        """Read it from a guard or detector file, without torch; one with a threshold per class is refused."""
        header, arrays = files.load_file(path, "detector")
        with reading(path, files.WAY_OUT["detector"]):
            detector, about = (json.loads(header.get(name, "null")) for name in ("value", "guard"))
            scores, alpha = decode_value(detector["calibration"], arrays), detector["alpha"]
            if scores is None or alpha is None:
                raise InputError("it has no guarantee yet: calibrate it on images that the network was not trained on")
            if detector["groups"] is not None:
                raise InputError(
                    "it has a threshold per class: its p-values come from several calibration sets, for which the rate "
                    "is not known; calibrate it with one for all: oodshape calibrate --one-threshold --images ..."
                )
            return cls(len(scores), float(alpha), about is None or bool(about["held_out"]), scores)

    def check(self, rows: Sequence[ScoreRow], source: str) -> None:
        """Refuse rows of another guard: their p-values are not those that these scores give."""
        known = [(row.score, row.p_value) for row in rows if row.score is not None and row.p_value is not None]
        if self.scores is None or not known:
            return
        found, p = np.array(known, np.float64).T
        near, steps = ROUNDING * np.abs(found), np.rint(p * (self.images + 1))
        low = 1 + np.searchsorted(self.scores, found - near, side="left")
        high = 1 + np.searchsorted(self.scores, found + near, side="right")
        wrong = (steps < low) | (steps > high)
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"another guard wrote {source}: by the calibration set of this one, the p-value of the score "
                f"{found[row]:g} is not {p[row]:.4g}; give the guard that scored it"
            )


@dataclass(frozen=True)
class Decisions:
    """The rows of a score file, and which of them are flagged; an unreadable image is neither flagged nor not."""

    rows: list[ScoreRow]
    readable: NDArray[np.bool_]
    flagged: NDArray[np.bool_]
    level: float
    storey: bool
    calibration: Calibration | None
    smallest: float  # p-value

    @property
    def fewest(self) -> int:
        """How many images must be flagged together, if any is."""
        m = int(self.readable.sum())
        n = 1 / self.smallest - 1 if self.calibration is None else self.calibration.images
        return fewest_flagged(m, self.level, n)

    def lines(self) -> list[str]:
        m, lost = int(self.readable.sum()), int((~self.readable).sum())
        rate = f"expected false discovery rate <= {100 * self.level:g} %"
        if self.calibration is not None and not self.calibration.held_out:
            rate = "no guarantee: the guard was calibrated on training images"
        said = [
            f"{format_count(m, 'image')}: {int(self.flagged.sum()):,} flagged as OOD; {rate} "
            f"({'Storey' if self.storey else 'Benjamini-Hochberg'})"
        ]
        said += [f"{lost:,} more could not be read, and are neither"] if lost else []
        if self.calibration is None:
            border = f"with the smallest p-value here, {self.smallest:.4g}, "
            end = "; --guard tells how small they can be, and whether the guarantee holds"
        else:
            n = self.calibration.images
            border, end = f"with {n:,} calibration images no p-value is below 1 / {n + 1:,}: ", ""
        together = f"at least {self.fewest:,} of {m:,} are flagged together, or none"
        if self.storey:
            together = f"without Storey's estimate {together}"
        elif self.fewest > m:
            among = format_count(m, "image")
            together = f"nothing can be flagged among {among}: give more calibration images or a larger --fdr"
        return [*said, f"{border}{together}{end}"]

    def table(self) -> Iterator[Cells]:
        """Every row with a last column `flagged`, empty for an image that could not be read."""
        flagged = iter(self.flagged.tolist())
        return (row.cells | {"flagged": None if row.p_value is None else next(flagged)} for row in self.rows)


def decide_scores(
    scores: str, level: float, *, storey: bool = False, calibration: Calibration | None = None
) -> Decisions:
    """Decide about a finished score file with the false discovery rate at most `level`."""
    if scores == "-":
        raise InputError("decide needs all scores at once: give a file")
    rows = list(read_scores(scores))
    readable = np.array([row.p_value is not None for row in rows], bool)
    if not readable.any():
        raise InputError(f"{scores} has no image with a p-value: there is nothing to decide about")
    judged = [row for row in rows if row.p_value is not None]
    values = np.array([row.p_value for row in judged], np.float64)
    _check_one_calibration(scores, judged, values)
    if calibration is not None:
        values = round_to_grid(values, calibration.images, scores)
        calibration.check(judged, scores)
    flagged = false_discoveries(values, level, storey=storey)
    return Decisions(rows, readable, flagged, level, storey, calibration, float(values.min()))


def _check_one_calibration(scores: str, rows: Sequence[ScoreRow], values: NDArray[np.float64]) -> None:
    """Refuse p-values that do not grow with the score: they do not come from one calibration set."""
    found = np.array([row.score for row in rows], np.float64)
    if np.isnan(found).any():
        return  # a table of another program
    order = np.lexsort((values, found))
    ranked = values[order]
    falls = np.flatnonzero(np.diff(ranked) < -ROUNDING * ranked[1:])
    if len(falls):
        one, other = (rows[order[falls[0] + step]].cells for step in (0, 1))
        raise InputError(
            f"{scores} has p-values that do not grow with the score ({one.get('path', 'a row')} and "
            f"{other.get('path', 'another')}): a guard with a threshold per class wrote it, or several guards; "
            "calibrate with one threshold for all (oodshape calibrate --one-threshold --images ...) and score again"
        )


def round_to_grid(values: NDArray[np.float64], n: int, scores: str) -> NDArray[np.float64]:
    """The p-values as whole numbers of calibration images over n + 1: text files round them."""
    steps = np.rint(values * (n + 1))
    wrong = (np.abs(steps - values * (n + 1)) > max(1e-6, ROUNDING * (n + 1))) | (steps < 1)
    if wrong.any():
        raise InputError(
            f"{scores} is not of a guard with {n:,} calibration images: {values[wrong.argmax()]:g} is no multiple of "
            f"1 / {n + 1:,}; give the guard that scored it"
        )
    return np.asarray(steps / (n + 1))


def write_decisions(decisions: Decisions, out: Path) -> None:
    """Write all rows with the column `flagged`: CSV, JSON lines or Parquet, by the ending."""
    ending, rows = check_format(out), decisions.table()
    with files.replacing(out) as temporary:
        if ending == ".parquet":
            pa, pq = import_parquet()
            pq.write_table(pa.Table.from_pylist(list(rows)), temporary, write_page_checksum=True)
        else:
            write_text(temporary, rows, ending)
