"""The paper's figures beside those of a study: each measure followed by the paper's and by the difference."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from oodshape.core.errors import InputError
from oodshape.report.beside_paper import paper_figures
from oodshape.studies.network import Network
from oodshape.studies.printing import METRICS

if TYPE_CHECKING:
    from pandas import DataFrame

Figures = dict[str, dict[str, dict[str, float]]]  # by network of the paper, row and measure, as printed
EVERY = "Average"  # over the paper's eight networks


@dataclass(frozen=True)
class Printed:
    """A table of the paper: what names its rows, our rows in its units, and how each measure is headed and printed."""

    where: str
    row: str
    ours: Callable[[DataFrame], DataFrame]  # columns network, row and a measure each
    measures: dict[str, tuple[str, int]]  # heading, decimals


def _means(frame: DataFrame, row: str) -> DataFrame:
    means = frame.groupby(["network", row], sort=False)[list(METRICS)].mean() * 100
    return means.rename_axis(["network", "row"]).reset_index()


def _validation(frame: DataFrame) -> DataFrame:
    percent = {name: 100 * frame[name] for name in ("auroc_with", "auroc_without")}
    return frame.assign(row=frame["ood"], **percent)


def _changed(frame: DataFrame) -> DataFrame:
    first = frame.drop_duplicates("network")
    return first.assign(row="r", r=100 * first["without_bias"])


def _limits(frame: DataFrame) -> DataFrame:
    vanilla = frame[frame["method"] == "optfs-v"]  # of which the paper's table is
    if vanilla.empty:
        raise InputError("the paper's table of limits is of optfs-v; leave --compare-paper out, or pick it")
    limits = vanilla.groupby(["network", "tail"], sort=False)[["lower", "upper"]].first().reset_index()
    rows = _means(vanilla, "tail").assign(lower=limits["lower"], upper=limits["upper"])
    return rows.assign(row=rows["row"].map(lambda tail: f"{100 * tail:g}"))


_SEPARATION = {name: (title, 2) for name, title in METRICS.items()}
TABLES: dict[str, Printed] = {
    "validation": Printed(
        "Table 3",
        "OOD set",
        _validation,
        {
            "norm_ratio": ("length b / a", 2),
            "cosine": ("cos(a, b)", 2),
            "auroc_with": ("AUROC with OOD data", 2),
            "auroc_without": ("AUROC ID only", 2),
        },
    ),
    "variants": Printed("Table 5", "variant", lambda frame: _means(frame, "variant"), _SEPARATION),
    "dynamic": Printed("Table 6", "ratio", _changed, {"r": ("r without bias", 1)}),
    "limits": Printed("Table 7", "percentile", _limits, {"lower": ("lower", 2), "upper": ("upper", 2), **_SEPARATION}),
}
_VARIANTS = {name: name.lower() for name in ("Real", "Gaussian", "Uniform", "Dynamic")}
_VARIANTS |= {"optfs-v": "ours (V)", "optfs-e": "ours (E)"}


@cache
def figures(study: str) -> Figures:
    """What the paper prints in the table of a study."""
    found: Figures = {}
    if study == "variants":  # printed with the rivals, and kept with their table
        for (table, _, model, _), methods in paper_figures().items():
            if table == study:
                found[model] = {_VARIANTS[name]: values for name, values in methods.items() if name in _VARIANTS}
        return found
    text = (files(__package__) / "paper.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        if line["study"] == study:
            row = found.setdefault(line["model"], {}).setdefault(line["row"], {})
            row[line["measure"]] = float(line["value"])
    return found


def check(names: Sequence[str], networks: Sequence[Network]) -> None:
    """Refuse a comparison where the paper has nothing to compare with, before anything is computed."""
    if not set(names) & set(TABLES):
        raise InputError(
            f"the paper prints figures of {', '.join(TABLES)}, not of {names[0]}; leave --compare-paper out"
        )
    if not any(network.id_set == "imagenet" for network in networks):
        which = ", ".join(network.name for network in networks)
        raise InputError(f"the paper's studies are of ImageNet, and {which} is not; leave --compare-paper out")


def model_for(study: str, network: str) -> str:
    """The network of the paper to compare with: the same, else the mean over all, else the only one of the table.

    >>> model_for("variants", "imagenet_resnet50"), model_for("variants", "imagenet_deit_tiny")
    ('ResNet50', 'Average')
    """
    models = figures(study)
    ours = _plain(network)
    same = [model for model in models if ours.endswith(_plain(model))]
    return same[0] if same else EVERY if EVERY in models else next(iter(models))


def beside(study: str, frame: DataFrame, networks: Sequence[Network]) -> tuple[DataFrame, list[str]]:
    """A row for each network and row of the study, and notes; - where the paper has no figure."""
    from pandas import DataFrame

    table, lines = TABLES[study], []
    known = {network.name: model_for(study, network.name) for network in networks if network.id_set == "imagenet"}
    for _, ours in table.ours(frame).iterrows():
        model = known.get(str(ours["network"]), "")
        rows = {_plain(name): row for name, row in figures(study).get(model, {}).items()}
        paper = rows.get(_plain(str(ours["row"])), {})
        line = {"network": str(ours["network"]), "the paper's": model or "-", table.row: str(ours["row"])}
        for name, (head, decimals) in table.measures.items():
            here, there = f"{ours[name]:.{decimals}f}", paper.get(name)
            line[head] = here
            line[f"{head} (paper)"] = "-" if there is None else f"{there:.{decimals}f}"
            gap = "-" if there is None else f"{float(here) - round(there, decimals):+.{decimals}f}"
            line[f"{head} (difference)"] = gap
        lines.append(line)
    return DataFrame(lines), list(_notes(table, known))


def _plain(name: str) -> str:
    """A name without case, hyphens and underscores: folders and the paper do not agree on them."""
    return re.sub(r"[\s_-]", "", name).casefold()


def _notes(table: Printed, known: dict[str, str]) -> Iterator[str]:
    yield (
        f"(paper): {table.where} of the paper (Zhao et al., ICLR 2024), on full data sets, whatever was used here. "
        "(difference): ours minus the paper's."
    )
    for network, model in known.items():
        if not _plain(network).endswith(_plain(model)):
            whose = "the mean over its eight networks" if model == EVERY else f"{model}, its only network there"
            yield f"{network} is not among the paper's networks: beside it stands {whose}, to look at and not to match."
