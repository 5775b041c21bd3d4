"""The summary of results: sentences below the printed table, and the answer of each network on the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oodshape.benchmark.results import Results
from oodshape.core.text import joined
from oodshape.metrics.registry import DEFAULT_METRICS, ERROR, MAIN, Metric
from oodshape.report.method_styles import BASELINE, CHOICE, FEATURED, family
from oodshape.report.tables.table import Line, table


@dataclass(frozen=True)
class Mean:
    """A method's means over the OOD sets of a network, and its place by the main metric from 1 on."""

    method: str
    main: float
    error: float
    place: int

    @property
    def errors(self) -> str:
        """What it does wrong: "accepts 1.00 % of OOD images"."""
        return ERROR.phrase.format(s="s", value=ERROR.show(self.error))


@dataclass(frozen=True)
class Answer:
    """One network: its best methods by both default metrics, and `auto` (None where it was not measured)."""

    model: str
    family: str
    best: Mean
    tied: tuple[str, ...]  # methods whose main metric is not significantly worse than the best
    lowest: Mean
    auto: Mean | None


def answers(results: Results) -> Iterator[Answer]:
    """The answer of each network; methods that lack an OOD set are left out, since their means do not compare."""
    means = results.averages("model")
    families = {row.model: row.family for row in results.rows}
    ties = {each.model: each.tied for each in results.ties if not each.ood}
    for model in results.names("model"):
        here = means[means["model"] == model]
        here = here[here["over"] == here["over"].max()]
        places = (MAIN.sign * here[MAIN.name]).rank(ascending=False, method="min").astype(int)
        means_of = zip(here["method"], here[MAIN.name], here[ERROR.name], places, strict=True)
        ranked = sorted((Mean(*each) for each in means_of), key=lambda entry: entry.place)
        best = ranked[0]
        same = MAIN.show(best.main)  # equal as printed is no difference
        alike = {*ties.get(model, ()), *(entry.method for entry in ranked if MAIN.show(entry.main) == same)}
        tied = tuple(entry.method for entry in ranked[1:] if entry.method in alike)
        auto = next((entry for entry in ranked if family(entry.method) == CHOICE), None)
        lowest = max(ranked, key=lambda entry: ERROR.sign * entry.error)
        yield Answer(model, families[model], best, tied, lowest, auto)


def summarize(results: Results) -> list[str]:
    """Sentences on the best method, and on where `auto`, the baseline and the featured method are, as printed."""
    lines = [line for line in table(results).lines if _rank(line)]
    if len(lines) < 2:
        return []
    best = [line for line in lines if _rank(line) == 1]
    tied = [line.method for line in lines if line.entries[-1].tied and _rank(line) > 1]
    equal = f" (tied with {joined(tied)})" if tied else ""
    have, s = ("has", "s") if len(best) == 1 else ("have", "")
    places = [
        f"{line.method} is number {_rank(line)} of {len(lines)} "
        f"({MAIN.head} {_text(line, MAIN)}, {ERROR.head} {_text(line, ERROR)})"
        for line in sorted(lines, key=lambda line: family(line.method) != CHOICE)
        if _rank(line) > 1 and (line.method in (BASELINE, FEATURED) or family(line.method) == CHOICE)
    ]
    return [
        f"{joined([line.method for line in best])} {have} the {MAIN.direction[:-1]}st {MAIN.head}, "
        f"{_text(best[0], MAIN)}{equal}, and "
        f"{ERROR.phrase.format(s=s, value=joined([_text(line, ERROR) for line in best]))}.",
        *(["; ".join(places) + "."] if places else []),
    ]


def _text(line: Line, metric: Metric) -> str:
    return line.entries[-1].cells[DEFAULT_METRICS.index(metric)].text


def _rank(line: Line) -> int:
    return line.entries[-1].cells[DEFAULT_METRICS.index(MAIN)].rank
