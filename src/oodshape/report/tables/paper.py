"""The paper's figures next to ours, in tables of methods and of studies: ours, the paper's, the difference."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import mean

from pandas import DataFrame, Series

from oodshape.benchmark.results import RunResults
from oodshape.benchmark.spec import Benchmark
from oodshape.core.errors import InputError
from oodshape.metrics.registry import DEFAULT_METRICS, METRICS
from oodshape.report.tables.table import Cell, Entry, Line, Table

STANDARD4 = ("iNaturalist", "SUN", "Places", "Texture")  # the sets of MOS, on which most papers report
OURS = {"optfs-v": "Ours (V)", "optfs-e": "Ours (E)"}  # how the paper calls them
Figures = dict[str, float]  # in percent, by the metric's name
Place = tuple[str, str, str, str]  # table, ID set, model, OOD set


@cache
def paper_figures() -> dict[Place, dict[str, Figures]]:
    """The paper's figures by place and method; the OOD set is `Average` where a model's mean is printed."""
    found: dict[Place, dict[str, Figures]] = {}
    text = (files(__package__) / "paper.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        place = (line["table"], line["id_set"], line["model"], line["ood"])
        figures = {name: float(line[name]) for name in METRICS if name in line}
        found.setdefault(place, {})[line["method"]] = figures
    return found


def compare_with_paper(table: Table, results: RunResults, kind: str, model: str | None = None) -> Table:
    """The table with two more groups of columns after each: the paper's figures, and ours minus the paper's.

    `kind` is what the columns are: model, ood (of `model`), or standard4. The paper's average is that of
    the columns that are here, so that both averages are over the same models or sets. There is no difference between
    means over other OOD sets.
    """
    id_set = find_comparable_set(results)
    wanted = STANDARD4 if kind == "standard4" else paper_sets(id_set)
    same = kind == "ood" or {_plain(name) for name in results.names("ood")} == set(map(_plain, wanted))

    def printed(name: str) -> dict[str, Figures]:
        """The paper's figures for a model or an OOD set, empty where it has none."""
        of_set = ("ood", id_set, str(model), name)
        return paper_figures().get(of_set if kind == "ood" else (kind, id_set, name, "Average"), {})

    columns = [_average_columns([printed(name) for name in members]) for members in table.members]
    if not any(columns):
        raise InputError(f"the paper has no figures for {', '.join(table.groups)}; leave --compare-paper out")
    lines = []
    for line in table.lines:
        entries: list[Entry] = []
        for entry, figures in zip(line.entries, columns, strict=True):
            paper = figures.get(line.method, {})
            pairs = [
                _difference(cell.text, paper.get(column.name), 2, same)
                for cell, column in zip(entry.cells, table.columns, strict=True)
            ]
            entries += [entry, *(Entry(tuple(map(Cell, texts))) for texts in zip(*pairs, strict=True))]
        lines.append(Line(line.method, tuple(entries), line.rule))
    heads = [part for name in table.groups for part in (name, f"{name} (paper)", f"{name} (difference)")]
    notes = ["(paper): as the paper prints it (Zhao et al., ICLR 2024). (difference): ours minus the paper's."]
    if kind != "ood":
        sets = "four" if kind == "standard4" else "eight"
        notes.append(f"The paper's figures are means over all {sets} OOD sets and full data sets.")
    notes += [] if same else [OTHER_SETS]
    return replace(table, groups=tuple(heads), lines=tuple(lines), notes=(*table.notes, *notes), names=OURS)


def _average_columns(columns: list[dict[str, Figures]]) -> dict[str, Figures]:
    """The mean over the columns of each method that the paper has in all of them."""
    methods = set.intersection(*(set(column) for column in columns))
    return {
        method: {name: mean(column[method][name] for column in columns) for name in columns[0][method]}
        for method in methods
    }


def find_comparable_set(results: RunResults) -> str:
    """Return the ID set whose figures are comparable: that of the paper's settings or of the authors' code."""
    said = results.provenance.get("settings", {})
    id_set = str(said.get("id_set", said.get("settings", "general")))
    known = sorted({place[1] for place in paper_figures()})
    if id_set not in known:
        raise InputError(f"--compare-paper needs the paper's settings for {', '.join(known)}, got {id_set!r}")
    return id_set


def _difference(ours: str, paper: float | None, decimals: int, same: bool) -> tuple[str, str]:
    """The paper's figure and ours minus it, as printed; - where one is missing or they are not of the `same` thing."""
    if paper is None:
        return "-", "-"
    text = f"{paper:.{decimals}f}"
    return text, f"{float(ours) - float(text):+.{decimals}f}" if same and ours != "-" else "-"


def paper_sets(id_set: str) -> tuple[str, ...]:
    """The names of the OOD sets that the paper tests networks of an ID set on."""
    return tuple(ood.name for ood in Benchmark.load(id_set).ood)


OTHER_SETS = "No difference where our mean is over other OOD sets than the paper's."
StudyFigures = dict[str, dict[str, dict[str, float]]]  # by network of the paper, row and measure, as printed


@dataclass(frozen=True)
class PaperStudyTable:
    """A table of the paper: the column of our rows that names its rows, its head, and how each measure is printed."""

    where: str
    column: str
    head: str
    measures: dict[str, tuple[str, int, int]]  # heading, decimals, factor of our values


_SEPARATION = {metric.name: (metric.head, 2, 100) for metric in DEFAULT_METRICS}
STUDIES: dict[str, PaperStudyTable] = {
    "validation": PaperStudyTable(
        "Table 3",
        "ood",
        "OOD set",
        {
            "norm_ratio": ("length b / a", 2, 1),
            "cosine": ("cos(a, b)", 2, 1),
            "auroc_with": ("AUROC with OOD data", 2, 100),
            "auroc_without": ("AUROC ID only", 2, 100),
        },
    ),
    "variants": PaperStudyTable("Table 5", "variant", "variant", _SEPARATION),
    "dynamic": PaperStudyTable(
        "Table 6",
        "ratio",
        "ratio",
        {
            "without_bias": ("r without bias (paper's formula)", 1, 100),
            "with_bias": ("r with bias (authors' code)", 1, 100),
        },
    ),
    "limits": PaperStudyTable(
        "Table 7", "percentile", "percentile", {"lower": ("lower", 2, 1), "upper": ("upper", 2, 1), **_SEPARATION}
    ),
}


def _average_rows(study: str, frame: DataFrame) -> DataFrame:
    """Return a row per network and row of the paper's table: network, the table's column, and the mean measures."""
    if study == "limits":  # the paper's table is of OptFS (V)
        frame = frame[frame["method"] == "optfs-v"]
        frame = frame.assign(percentile=frame["tail"].map(lambda tail: f"{100 * tail:g}"))
    table = STUDIES[study]
    factors = {name: factor for name, (_, _, factor) in table.measures.items()}
    groups = frame.assign(ratio="r").groupby(["network", table.column], sort=False)
    return (groups[list(factors)].mean() * Series(factors)).reset_index()


@cache
def _load_study_figures(study: str) -> StudyFigures:
    """Load the paper's figures of a study."""
    found: StudyFigures = {}
    text = (files(__package__) / "paper_studies.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        if line["study"] == study:
            row = found.setdefault(line["model"], {}).setdefault(line["row"], {})
            row[line["measure"]] = float(line["value"])
    return found


def check_in_paper(names: Sequence[str], id_sets: Mapping[str, str]) -> None:
    """Refuse a comparison where the paper has nothing to compare with, before anything is computed."""
    printed = [name for name in names if name in STUDIES]
    if not printed:
        raise InputError(
            f"the paper prints figures of {', '.join(STUDIES)}, not of {names[0]}; leave --compare-paper out"
        )
    if not any(_find_paper_model(study, *each) for study in printed for each in id_sets.items()):
        raise InputError(
            f"{', '.join(id_sets)} is no network of the paper's tables on ImageNet; leave --compare-paper out"
        )


def _find_paper_model(study: str, network: str, id_set: str) -> str:
    """Return the paper's name of a network; empty if the paper does not have it.

    >>> [_find_paper_model("variants", f"imagenet_{name}", "imagenet") for name in ("resnet50", "deit_tiny")]
    ['ResNet50', '']
    """
    models = _load_study_figures(study) if id_set == "imagenet" else ()
    return next((model for model in models if _plain(network).endswith(_plain(model))), "")


def compare_study_with_paper(study: str, frame: DataFrame, id_sets: Mapping[str, str]) -> tuple[DataFrame, list[str]]:
    """A row for each network and row of the study, and notes; - where the paper has no figure for the same.

    `id_sets` names the ID set of each network.
    """
    table, lines = STUDIES[study], []
    wanted = set(map(_plain, paper_sets("imagenet")))
    sets = {name: set(map(_plain, part["ood"])) for name, part in frame.groupby("network") if "ood" in part}
    for _, ours in _average_rows(study, frame).iterrows():
        network = str(ours["network"])
        model = _find_paper_model(study, network, id_sets[network])
        rows = {_plain(name): row for name, row in _load_study_figures(study).get(model, {}).items()}
        paper = rows.get(_plain(ours[table.column]), {})
        line = {"network": network, table.head: ours[table.column]}
        for name, (head, decimals, _) in table.measures.items():
            same = name not in _SEPARATION or sets[network] == wanted
            line[head] = f"{ours[name]:.{decimals}f}"
            theirs = _difference(line[head], paper.get(name), decimals, same)
            line[f"{head} (paper)"], line[f"{head} (difference)"] = theirs
        lines.append(line)
    note = f"(paper): {table.where} of the paper (Zhao et al., ICLR 2024), on full data sets. "
    return DataFrame(lines), [f"{note}(difference): ours minus the paper's. {OTHER_SETS}"]


def _plain(name: str) -> str:
    """A name without case, hyphens and underscores: folders and the paper do not agree on them."""
    return re.sub(r"[\s_-]", "", name).casefold()
