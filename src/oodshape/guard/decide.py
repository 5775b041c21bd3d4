"""Decide about a finished file of scores as a whole: flag images so that few of those flagged are familiar."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.core.reading import reading
from oodshape.core.values import load_values
from oodshape.core.words import counted
from oodshape.guard.p_value_stream import lines_of, p_values
from oodshape.metrics.conformal import false_discoveries, fewest_flagged

Row = dict[str, Any]
WAY_OUT = "give the file that `oodshape score --out` wrote"
DIGITS = 1e-6  # of a p-value in a text file, relative


@dataclass(frozen=True)
class Calibration:
    """What the p-values came from."""

    images: int
    held_out: bool = True  # whether the network was not trained on them; nothing holds without it

    @classmethod
    def of(cls, detector: str | Path) -> Calibration:
        """That of a guard or detector file; one with a threshold per class is refused."""
        known, about = load_values(detector, "detector", "value", "guard")
        if known.calibration is None:
            raise InputError(f"{detector} promises nothing yet: calibrate it on held-out images")
        if known.groups is not None:
            raise InputError(
                f"{detector} has a threshold per class: its p-values come from several calibration sets, for which the "
                "rate is not shown; calibrate it with one for all: oodshape calibrate --one-threshold"
            )
        return cls(len(known.calibration), about is None or about.held_out)


@dataclass(frozen=True)
class Decisions:
    """The rows of a scores file, and which of them are flagged; one that could not be read is not judged."""

    rows: list[Row]
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
        """What people want to know, and what cannot be done."""
        m, lost = int(self.readable.sum()), int((~self.readable).sum())
        said = [
            f"{counted(m, 'image')}: {int(self.flagged.sum()):,} flagged as strange; of those flagged, at most "
            f"{100 * self.level:g} % are familiar on average ({'Storey' if self.storey else 'Benjamini-Hochberg'})"
        ]
        said += [f"{lost:,} more could not be read, and are neither"] if lost else []
        if self.calibration is None:
            border = f"with the smallest p-value here, {self.smallest:.4g}, "
            end = "; --detector tells how small they can be, and whether the promise holds"
        else:
            n = self.calibration.images
            border, end = f"with {n:,} calibration images no p-value is below 1 / {n + 1:,}: ", ""
        together = f"at least {self.fewest:,} of {m:,} are flagged together, or none"
        if self.storey:
            together = f"without Storey's estimate {together}"
        elif self.fewest > m:
            together = (
                f"nothing can be flagged among {counted(m, 'image')}: give more calibration images or a larger --fdr"
            )
        said.append(f"{border}{together}{end}")
        if self.calibration is not None and not self.calibration.held_out:
            said.append("no guarantee: the guard was calibrated on training images")
        return said

    def table(self) -> Iterator[Row]:
        """Every row with a last column `flagged`, empty for an image that could not be read."""
        places = iter(self.flagged.tolist())
        for row, read in zip(self.rows, self.readable, strict=True):
            yield row | {"flagged": next(places) if read else None}


def decide_scores(
    scores: str, level: float, *, storey: bool = False, calibration: Calibration | None = None
) -> Decisions:
    """The decisions on a finished scores file, with the false discovery rate held at `level`."""
    if scores == "-":
        raise InputError("decide needs all scores at once: give a file")
    values = np.array([np.nan if each is None else each for each in p_values(lines_of(scores), scores)], np.float64)
    rows = list(_rows(scores))
    if len(rows) != len(values):
        raise InputError(f"{scores} has {len(values)} p-values in {len(rows)} rows; {WAY_OUT}")
    readable = ~np.isnan(values)
    if not readable.any():
        raise InputError(f"{scores} has no image with a p-value: there is nothing to decide about")
    known = values[readable]
    _check_one_calibration(scores, rows, values, readable)
    if calibration is not None:
        known = _on_grid(known, calibration.images, scores)
    flagged = false_discoveries(known, level, storey=storey)
    return Decisions(rows, readable, flagged, level, storey, calibration, float(known.min()))


def _check_one_calibration(
    scores: str, rows: list[Row], values: NDArray[np.float64], readable: NDArray[np.bool_]
) -> None:
    """Refuse p-values that do not grow with the score: they do not come from one calibration set."""
    places = np.flatnonzero(readable)
    try:
        found = np.array([float(rows[place]["score"]) for place in places])
    except (KeyError, TypeError, ValueError):
        return  # a table of someone else's p-values
    order = np.lexsort((values[places], found))
    ranked = values[places][order]
    falls = np.flatnonzero(np.diff(ranked) < -DIGITS * ranked[1:])
    if len(falls):
        one, other = (rows[places[order[falls[0] + step]]] for step in (0, 1))
        raise InputError(
            f"{scores} has p-values that do not grow with the score ({one.get('path', 'a row')} and "
            f"{other.get('path', 'another')}): a guard with a threshold per class wrote it, or several guards; "
            "calibrate with one threshold for all (oodshape calibrate --one-threshold) and score again"
        )


def _on_grid(values: NDArray[np.float64], n: int, scores: str) -> NDArray[np.float64]:
    """The p-values as whole numbers of calibration images over n + 1: text files round them."""
    steps = np.rint(values * (n + 1))
    wrong = np.abs(steps - values * (n + 1)) > max(1e-6, DIGITS * (n + 1))
    if wrong.any() or steps.min() < 1:
        raise InputError(
            f"{scores} is not of a guard with {n:,} calibration images: {values[wrong.argmax()]:g} is no multiple of "
            f"1 / {n + 1:,}; give the guard that scored it"
        )
    return np.asarray(steps / (n + 1))


def _rows(scores: str) -> Iterator[Row]:
    """The rows by the names of their columns, all of them."""
    if scores.endswith(".parquet"):
        import pyarrow.parquet as pq

        with reading(scores, WAY_OUT):
            yield from pq.read_table(scores, page_checksum_verification=True).to_pylist()
        return
    with reading(scores, WAY_OUT), open(scores, encoding="utf-8", errors="surrogateescape", newline="") as file:
        first = next((line for line in file if line.strip()), "")
        file.seek(0)
        if first.lstrip().startswith("{"):
            yield from (json.loads(line) for line in file if line.strip())
        else:
            yield from csv.DictReader(file)


def write_decisions(decisions: Decisions, out: Path) -> None:
    """Write all rows with the column `flagged`: CSV, JSON lines or Parquet, by the ending."""
    kind = out.suffix.lower()
    if kind not in (".csv", ".jsonl", ".ndjson", ".parquet"):
        raise InputError(f"{out} must end in .csv, .jsonl or .parquet")
    rows = decisions.table()
    with replacing(out) as temporary:
        if kind == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(list(rows)), temporary, write_page_checksum=True)
            return
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            if kind == ".csv":
                write_csv(rows, file)
            else:
                file.writelines(json.dumps(row) + "\n" for row in rows)


def write_csv(rows: Iterator[Row], file: Any) -> None:
    """Rows as CSV; nothing where there are none."""
    table = csv.writer(file, lineterminator="\n")
    for number, row in enumerate(rows):
        if number == 0:
            table.writerow(row)
        table.writerow([str(cell).lower() if isinstance(cell, bool) else cell for cell in row.values()])
