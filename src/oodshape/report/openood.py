"""Results as OpenOOD reports them: near and far means, over training runs, beside the figures of its leaderboard."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from oodshape.benchmark.results import Results, Row
from oodshape.core.reading import reading
from oodshape.methods.openood_settings import openood_settings

# benchmark -> the leaderboard's file with its figures, and how the networks are described there
BOARDS = {
    "openood-cifar10": ("cifar10", "100 epochs"),
    "openood-cifar100": ("cifar100", "100 epochs"),
    "openood-imagenet200": ("imagenet200_ood", "90 epochs"),
    "openood-imagenet200-fs": ("imagenet200_fsood", "90 epochs"),
    "openood-imagenet": ("imagenet1k_ood", "torchvision ckpt"),
    "openood-imagenet-fs": ("imagenet1k_fsood", "torchvision ckpt"),
}
# OpenOOD's head of a column -> the figure, a fraction
METRICS: dict[str, Callable[[Row], float | None]] = {
    "FPR@95": lambda row: row.fpr("ood"),
    "AUROC": lambda row: row.auroc,
    "AUPR_IN": lambda row: row.aupr_in,
    "AUPR_OUT": lambda row: row.aupr_out,
    "ACC": lambda row: row.id_accuracy,
}
PAPERS_FPR = "FPR95 (paper)"  # the other direction, which OpenOOD does not report
FIGURES: dict[str, Callable[[Row], float | None]] = {**METRICS, PAPERS_FPR: lambda row: row.fpr("id")}
GROUPS = ("near", "far")


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
            values = [None if row is None else FIGURES[figure](row) for row in rows]
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
    board, _ = BOARDS.get(results.names("benchmark")[0], ("", ""))
    setting = openood_settings().get(method)
    name = LATER.get(method, "") if setting is None else setting.published
    return published().get((board, network, name), {})


LATER = {"mds++": "MDS++", "rmds++": "RMDS++"}  # on the leaderboard, but no part of OpenOOD's code


def their_name(method: str) -> str:
    """What OpenOOD calls a method in its files, or our own name."""
    setting = openood_settings().get(method)
    return (setting.theirs if setting is not None else "") or method


def said_of(results: Results) -> dict[str, Any]:
    """What the run says of itself."""
    said: dict[str, Any] = results.provenance.get("settings", {})
    return said
