"""Results as OpenOOD reports them: near and far means next to its leaderboard."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from pandas import DataFrame

from oodshape.benchmark.results import RunResults
from oodshape.core.text import print_columns
from oodshape.methods.records import RECORDS
from oodshape.metrics.registry import ERROR
from oodshape.report.tables.markdown_latex import format_cells
from oodshape.report.tables.table import list_skipped

if TYPE_CHECKING:
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
GROUPS = ("near", "far")
# the paper's FPR95 has the other direction, which OpenOOD does not report
HEADS = ("AUROC", "published", "difference", "FPR95 (OpenOOD)", "FPR95 (paper)")


class OpenOODFigures:
    """The figures of results: means over sets, then over the training runs of a network."""

    def __init__(self, results: RunResults) -> None:
        self._rows = {(row.model, row.method, row.ood): row for row in results.rows}
        kinds = {row.ood: row.group for row in results.rows}
        self.groups = {group: [ood for ood, kind in kinds.items() if kind == group] for group in GROUPS}
        runs: dict[str, str] = results.provenance.get("settings", {}).get("runs", {})
        self.runs: dict[str, list[str]] = {}  # the titles of the training runs of each network
        for title in results.names("model"):
            self.runs.setdefault(runs.get(title, title), []).append(title)

    def of(self, network: str, method: str, sets: list[str], metric: str = "") -> list[float]:
        """One fraction per run, without a metric the accuracy; none where a run lacks a set, or no set is there."""
        found = [[self._rows.get((run, method, ood)) for ood in sets] for run in self.runs[network]]
        rows = [[row.value(metric) if metric else row.id_accuracy for row in each if row] for each in found]
        known = [[value for value in each if value is not None] for each in rows]
        return [fmean(each) for each in known] if sets and all(len(each) == len(sets) for each in known) else []


def _format_figure(fractions: list[float]) -> str:
    """The mean in percent, and the standard deviation (ddof 0, as numpy has it) of several runs.

    >>> _format_figure([0.90, 0.92]), _format_figure([0.9]), _format_figure([])
    ('91.00 ± 1.00', '90.00', '-')
    """
    percent = 100 * np.array(fractions, np.float64)
    spread = f" ± {percent.std():.2f}" if len(percent) > 1 else ""
    return f"{percent.mean():.2f}{spread}" if len(percent) else "-"


@cache
def load_leaderboard() -> dict[tuple[str, str, str], dict[str, float]]:
    """The leaderboard's figures in percent, by its file, network and postprocessor (`openood.csv` says the source)."""
    path = files(__package__) / "openood.csv"
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        figures = {name: float(line[name]) for name in (*GROUPS, "accuracy") if line[name]}
        found[line["table"], line["network"], line["postprocessor"]] = figures
    return found


def _find_openood_fact(method: str, key: str) -> str:
    """Return a fact about OpenOOD from a method's record: its name there, its published name, or a note; else empty."""
    return str(RECORDS[method].openood.get(key, "")) if method in RECORDS else ""


def openood_tables(results: RunResults) -> Iterator[tuple[DataFrame, str, list[str]]]:
    """(table, title, notes) of each network: near and far means, the published AUROC and the difference.

    Results of other benchmarks than OpenOOD's have none.
    """
    figures = OpenOODFigures(results)
    ours = any(name.startswith("openood-") for name in results.names("benchmark"))
    for network, titles in figures.runs.items() if ours else ():
        lines = [
            [method, *(cell for group in GROUPS for cell in _cells(results, figures, network, method, group))]
            for method in results.names("method")
        ]
        heads = ["method", *(f"{group} {head}" for group in GROUPS for head in HEADS)]
        runs = f", mean ± standard deviation of {len(titles)} training runs" if len(titles) > 1 else ""
        title = f"{results.names('benchmark')[0]} (OpenOOD v1.5): {network}{runs}"
        yield DataFrame(lines, columns=heads), title, list(_notes(results, figures, network))


def show_openood(results: RunResults, console: Console) -> None:
    """Print the tables of OpenOOD's benchmarks; other results print nothing."""
    for frame, title, notes in openood_tables(results):
        console.print(title, markup=False, style="bold", soft_wrap=True)
        print_columns(list(frame.columns), format_cells(frame), console)
        console.print("\n".join(notes) + "\n", markup=False, soft_wrap=not console.is_terminal)


def _cells(results: RunResults, figures: OpenOODFigures, network: str, method: str, group: str) -> Iterator[str]:
    sets, board = figures.groups[group], BOARDS.get(results.names("benchmark")[0], "")
    published = load_leaderboard().get((board, network, _find_openood_fact(method, "published")), {})
    ours, theirs = figures.of(network, method, sets, "auroc"), published.get(group)
    yield _format_figure(ours)
    yield "-" if theirs is None else f"{theirs:.2f}"
    yield "-" if theirs is None or not ours else f"{round(100 * fmean(ours), 2) - theirs:+.2f}"
    yield from (_format_figure(figures.of(network, method, sets, metric)) for metric in ("fpr95_ood", ERROR.name))


def _notes(results: RunResults, figures: OpenOODFigures, network: str) -> Iterator[str]:
    """What the figures are, what they were made with, and what keeps them from being compared."""
    said, methods = results.provenance.get("settings", {}), results.names("method")
    kinds = "; ".join(f"{group}: {', '.join(sets)}" for group, sets in figures.groups.items() if sets)
    yield f"In percent. {kinds}."
    if accuracy := figures.of(network, methods[0], [ood for sets in figures.groups.values() for ood in sets]):
        yield f"ID accuracy: {_format_figure(accuracy)}."
    if said.get("spectrum"):
        yield f"Full spectrum ({said['spectrum']}): ID are the test images and those of {', '.join(said['shifted'])}."
    yield (
        "FPR95 (OpenOOD): the share of ID images rejected when 95 % of the OOD images are. "
        "FPR95 (paper): the share of OOD images accepted when 95 % of the ID images are."
    )
    searched = [method for method in methods if _find_openood_fact(method, "searched")]
    if said.get("settings") != "openood":
        yield "Methods are fitted with oodshape's own settings, not as OpenOOD fits them (--settings openood)."
    elif searched:
        yield (
            "No OOD image was used for any setting; on the leaderboard these were searched on OOD validation images: "
            f"{', '.join(searched)}."
        )
    yield (
        "published: AUROC on OpenOOD's leaderboard (github.com/zjysteven/OpenOOD at 28d3a40; Zhang et al., arXiv "
        "2306.09301). difference: ours minus published. -: no such figure."
    )
    yield from (f"{method}: {note}." for method in methods if (note := _find_openood_fact(method, "note")))
    why = explain_not_comparable(results)
    if why:
        yield f"Not comparable with the leaderboard: {why}."
    yield from list_skipped(results)


def explain_not_comparable(results: RunResults) -> str:
    """Explain why the leaderboard's figures are not comparable; empty if they are."""
    said = results.provenance.get("settings", {})
    if results.names("benchmark")[0] not in BOARDS:
        return "the leaderboard has no table for it"
    if said.get("limit") is not None:
        return f"only {said['limit']} images of each set were used"
    if said.get("lists"):
        return "the lists of images are not the published ones"
    if results.skipped:
        return f"{results.skipped[0][0]} is missing"
    return ""
