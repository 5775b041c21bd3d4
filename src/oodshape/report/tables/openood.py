"""Results as OpenOOD reports them: near and far means next to its leaderboard, as tables and in its CSV layout."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oodshape.benchmark.results import Results, Row
from oodshape.core.columns import show_columns
from oodshape.core.files import replacing
from oodshape.core.reading import reading
from oodshape.methods.records import RECORDS
from oodshape.metrics.registry import ERROR
from oodshape.report.tables.markdown_latex import cells_of
from oodshape.report.tables.table import departures, skipped_notes

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console

# benchmark -> the leaderboard's file with its figures
BOARDS = {
    "openood-cifar10": "cifar10",
    "openood-cifar100": "cifar100",
    "openood-imagenet200": "imagenet200_ood",
    "openood-imagenet200-fs": "imagenet200_fsood",
    "openood-imagenet": "imagenet1k_ood",
    "openood-imagenet-fs": "imagenet1k_fsood",
}
# the columns of OpenOOD's files -> the metric, "" being the accuracy
METRICS = {"FPR@95": "fpr95_ood", "AUROC": "auroc", "AUPR_IN": "aupr_in", "AUPR_OUT": "aupr_out", "ACC": ""}
PAPERS_FPR = "FPR95 (paper)"  # the other direction, which OpenOOD does not report
FIGURES = {**METRICS, PAPERS_FPR: ERROR.name}
GROUPS = ("near", "far")
FOLDER = "openood"
HEADS = ("AUROC", "published", "difference", "FPR95 (OpenOOD)", PAPERS_FPR)


@dataclass(frozen=True)
class Figure:
    """A figure in percent: the mean over training runs, and their standard deviation where there are several."""

    mean: float
    spread: float | None = None

    @classmethod
    def over(cls, values: list[float]) -> Figure:
        """The mean and the standard deviation (ddof 0, as numpy has it) of one fraction per run.

        >>> str(Figure.over([0.90, 0.92])), str(Figure.over([0.9]))
        ('91.00 ± 1.00', '90.00')
        """
        percent = 100 * np.array(values, np.float64)
        return cls(float(percent.mean()), float(percent.std()) if len(values) > 1 else None)

    def __str__(self) -> str:
        """As OpenOOD prints it."""
        return f"{self.mean:.2f}" if self.spread is None else f"{self.mean:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True)
class Network:
    """A network of a benchmark: its training runs by their titles in the rows."""

    name: str
    runs: tuple[str, ...]


def is_openood(results: Results) -> bool:
    """Whether the results are of one of OpenOOD's benchmarks."""
    return any(name.startswith("openood-") for name in results.names("benchmark"))


def networks(results: Results) -> list[Network]:
    """The networks with their training runs."""
    runs: dict[str, str] = results.provenance.get("settings", {}).get("runs", {})
    found: dict[str, list[str]] = {}
    for title in results.names("model"):
        found.setdefault(runs.get(title, title), []).append(title)
    return [Network(name, tuple(titles)) for name, titles in found.items()]


class Scores:
    """The figures of one method on one network, by set and by group of sets."""

    def __init__(self, results: Results, network: Network, method: str) -> None:
        """Look the rows up."""
        wanted = set(network.runs)
        self._rows = {(row.model, row.ood): row for row in results.rows if row.method == method and row.model in wanted}
        self._runs = network.runs
        self.groups = {group: [o for o, kind in _groups(results).items() if kind == group] for group in GROUPS}

    def of(self, sets: list[str], figure: str) -> Figure | None:
        """A figure's mean over sets, then over runs; None where a run lacks a set, or no set is there."""
        means = []
        for run in self._runs:
            rows = [self._rows.get((run, ood)) for ood in sets]
            values = [None if row is None else _value(row, FIGURES[figure]) for row in rows]
            known = [value for value in values if value is not None]
            if not known or len(known) < len(values):
                return None
            means.append(sum(known) / len(known))
        return Figure.over(means)

    def group(self, group: str, figure: str) -> Figure | None:
        """A figure's mean over the near or the far sets."""
        return self.of(self.groups[group], figure)

    def lines(self) -> Iterator[tuple[str, dict[str, Figure | None]]]:
        """(name, figures) of every set and mean in the order of OpenOOD's files: near sets, nearood, far, farood."""
        for group, sets in self.groups.items():
            for names, name in (*(([each], each) for each in sets), (sets, f"{group}ood")):
                yield name, {head: self.of(names, head) for head in METRICS}


def _value(row: Row, metric: str) -> float | None:
    return row.value(metric) if metric else row.id_accuracy


def _groups(results: Results) -> dict[str, str]:
    return {row.ood: row.group for row in results.rows}


@cache
def published() -> dict[tuple[str, str, str], dict[str, float]]:
    """The leaderboard's figures in percent, by its file, network and postprocessor (`openood.csv` says the source)."""
    path = files(__package__) / "openood.csv"
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    with reading(str(path)):
        for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            figures = {name: float(line[name]) for name in (*GROUPS, "accuracy") if line[name]}
            found[line["table"], line["network"], line["postprocessor"]] = figures
    return found


def published_of(results: Results, network: str, method: str) -> dict[str, float]:
    """The leaderboard's figures for a method of ours, none where it has none or means something else."""
    board = BOARDS.get(results.names("benchmark")[0], "")
    return published().get((board, network, openood_fact(method, "published")), {})


def openood_fact(method: str, key: str) -> str:
    """What the record of a method says about OpenOOD: its name there, its published name, a note; else nothing."""
    return str(RECORDS[method].openood.get(key, "")) if method in RECORDS else ""


def their_name(method: str) -> str:
    """What OpenOOD calls a method in its files, or our own name; custom names become file names."""
    return openood_fact(method, "name") or method.replace(":", "-")


def said_of(results: Results) -> dict[str, Any]:
    """What the run says of itself."""
    said: dict[str, Any] = results.provenance.get("settings", {})
    return said


def openood_tables(results: Results) -> Iterator[tuple[DataFrame, str, list[str]]]:
    """(table, title, notes) of each network: near and far means, the published AUROC and the difference."""
    from pandas import DataFrame

    for network in networks(results):
        lines = [
            [method, *(cell for group in GROUPS for cell in _cells(results, network, method, group))]
            for method in results.names("method")
        ]
        heads = ["method", *(f"{group} {head}" for group in GROUPS for head in HEADS)]
        runs = f", mean ± standard deviation of {len(network.runs)} training runs" if len(network.runs) > 1 else ""
        title = f"{results.names('benchmark')[0]} (OpenOOD v1.5): {network.name}{runs}{departures(results)}"
        yield DataFrame(lines, columns=heads), title, list(_notes(results, network))


def show_openood(results: Results, console: Console) -> None:
    """The tables of OpenOOD's benchmarks on a console; nothing for other results."""
    for frame, title, notes in openood_tables(results) if is_openood(results) else ():
        console.print(title, markup=False, style="bold", soft_wrap=True)
        show_columns(list(frame.columns), cells_of(frame), console)
        console.print("\n".join(notes) + "\n", markup=False, soft_wrap=not console.is_terminal)


def _cells(results: Results, network: Network, method: str, group: str) -> Iterator[str]:
    scores = Scores(results, network, method)
    ours, theirs = scores.group(group, "AUROC"), published_of(results, network.name, method).get(group)
    yield _said(ours)
    yield "-" if theirs is None else f"{theirs:.2f}"
    yield "-" if theirs is None or ours is None else f"{round(ours.mean, 2) - theirs:+.2f}"
    yield _said(scores.group(group, "FPR@95"))
    yield _said(scores.group(group, PAPERS_FPR))


def _said(figure: Figure | None) -> str:
    return "-" if figure is None else str(figure)


def _notes(results: Results, network: Network) -> Iterator[str]:
    """What the figures are, what they were made with, and what keeps them from being compared."""
    said, methods = said_of(results), results.names("method")
    scores = Scores(results, network, results.names("method")[0])
    yield (
        "In percent. " + "; ".join(f"{group}: {', '.join(sets)}" for group, sets in scores.groups.items() if sets) + "."
    )
    accuracy = scores.of([ood for sets in scores.groups.values() for ood in sets], "ACC")
    if accuracy is not None:
        yield f"ID accuracy: {accuracy}."
    if said.get("spectrum"):
        yield f"Full spectrum ({said['spectrum']}): ID are the test images and those of {', '.join(said['shifted'])}."
    yield (
        "FPR95 (OpenOOD): the share of ID images rejected when 95 % of the OOD images are. "
        "FPR95 (paper): the share of OOD images accepted when 95 % of the ID images are."
    )
    grids = [method for method in methods if openood_fact(method, "grid")]
    if said.get("settings") != "openood":
        yield "Methods are fitted with oodshape's own settings, not as OpenOOD fits them (--settings openood)."
    elif said.get("tuned") is not None:
        yield f"Chosen on OOD validation images ({said['tuned_on']}): the settings of {', '.join(grids) or 'none'}."
    elif grids:
        yield (
            "No OOD image was used for any setting; on the leaderboard these were searched on OOD validation images "
            f"(--settings openood-tuned): {', '.join(grids)}."
        )
    yield (
        "published: AUROC on OpenOOD's leaderboard (github.com/zjysteven/OpenOOD at 28d3a40; Zhang et al., arXiv "
        "2306.09301). difference: ours minus published. -: no such figure."
    )
    yield from (f"{method}: {note}." for method in methods if (note := openood_fact(method, "note")))
    why = why_not_comparable(results)
    if why:
        yield f"Not comparable with the leaderboard: {why}."
    yield from skipped_notes(results)


def why_not_comparable(results: Results) -> str:
    """Why the leaderboard's figures are of something else; nothing where they are not."""
    said = said_of(results)
    if results.names("benchmark")[0] not in BOARDS:
        return "the leaderboard has no table for it"
    if said.get("limit") is not None:
        return f"only {said['limit']} images of each set were used"
    if said.get("lists"):
        return "the lists of images are not the published ones"
    if results.skipped:
        return f"{results.skipped[0][0]} is missing"
    return ""


def write_openood(results: Results, folder: Path) -> None:
    """Write openood/<method>.csv (in a folder per network where there are several)."""
    found = networks(results)
    for network in found:
        place = folder / FOLDER / network.name.replace("/", "-") if len(found) > 1 else folder / FOLDER
        place.mkdir(parents=True, exist_ok=True)
        for method in results.names("method"):
            lines = [[name, *map(_said, row.values())] for name, row in Scores(results, network, method).lines()]
            _write(place / f"{their_name(method)}.csv", [["", *METRICS], *lines])


def _write(path: Path, rows: list[list[str]]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
