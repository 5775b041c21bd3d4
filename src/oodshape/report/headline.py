"""What results say first, in figures for a few sentences: the best method of each network, and where one is behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oodshape.benchmark.results import Results, Row

OURS = "optfs-e"
AUTO = "auto"  # chooses by itself, without OOD data


@dataclass(frozen=True)
class Mean:
    """A method's means over the OOD sets of a network, and its place by AUROC from 1 on."""

    method: str
    auroc: float
    fpr95: float
    place: int


@dataclass(frozen=True)
class Gap:
    """A method's row on one network and OOD set, and the best row there."""

    ours: Row
    best: Row

    @property
    def auroc(self) -> float:
        """How much AUROC lies between them; 0 where the method is the best itself."""
        return self.best.auroc - self.ours.auroc


@dataclass(frozen=True)
class Answer:
    """One network: its best methods by AUROC and by FPR95, and how `ours` and `auto` do, None where not measured."""

    model: str
    family: str
    methods: int
    best: Mean
    tied: tuple[str, ...]  # methods that cannot be told from the best by AUROC
    lowest: Mean
    ours: Mean | None
    worst: Gap | None
    auto: Mean | None


def answers(results: Results, ours: str = OURS) -> Iterator[Answer]:
    """The answer of each network; methods that lack an OOD set are left out, since their means do not compare."""
    means = results.averages("model")
    families = {row.model: row.family for row in results.rows}
    ties = {each.model: each.tied for each in results.ties if not each.ood}
    for model in results.names("model"):
        here = means[means["model"] == model]
        here = here[here["over"] == here["over"].max()].sort_values("auroc", ascending=False, kind="stable")
        ranked = [
            Mean(line.method, line.auroc, line.fpr95, 1 + int((here["auroc"] > line.auroc).sum()))
            for line in here.itertuples()
        ]
        best = ranked[0]
        same = f"{100 * best.auroc:.2f}"  # what is printed alike is no difference
        alike = {*ties.get(model, ()), *(entry.method for entry in ranked if f"{100 * entry.auroc:.2f}" == same)}
        tied = [entry.method for entry in ranked[1:] if entry.method in alike]
        named = {entry.method: entry for entry in ranked}
        worst = max(gaps(results, ours, model), key=lambda gap: gap.auroc, default=None)
        lowest = min(ranked, key=lambda entry: entry.fpr95)
        yield Answer(
            model, families[model], len(ranked), best, tuple(tied), lowest, named.get(ours), worst, named.get(AUTO)
        )


def gaps(results: Results, ours: str = OURS, model: str | None = None) -> list[Gap]:
    """The gap of a method on every network and OOD set, or on those of one network; the largest first."""
    best: dict[tuple[str, str], Row] = {}
    for row in results.rows:
        there = best.setdefault((row.model, row.ood), row)
        if row.auroc > there.auroc:
            best[row.model, row.ood] = row
    rows = [row for row in results.rows if row.method == ours and model in (None, row.model)]
    return sorted((Gap(row, best[row.model, row.ood]) for row in rows), key=lambda gap: -gap.auroc)
