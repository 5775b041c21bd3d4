"""List the studies: what each computes, the table it prints, and the figures it draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure
from pandas import DataFrame

from oodshape.core.errors import InputError, unknown
from oodshape.studies import figures, optfs_variants, tables
from oodshape.studies.compare_methods import average_by_family, compare_methods, compare_with_optfs
from oodshape.studies.load_networks import StudyNetwork
from oodshape.studies.shaping_functions import profile_shapes, profile_weights
from oodshape.studies.tables import tabulate_means, tabulate_rows


@dataclass(frozen=True)
class Study:
    """A study: its title, the tidy rows of one network, and from those of all networks the table and the figure.

    `tabulate` also takes the number of decimals that the number of images supports; `draw_families` draws one more.
    """

    title: str
    compute: Callable[[StudyNetwork], DataFrame]
    tabulate: Callable[[DataFrame, int], DataFrame]
    draw: Callable[[DataFrame], Figure]
    draw_families: Callable[[DataFrame], Figure] | None = None


STUDIES: dict[str, Study] = {
    "variants": Study(
        "Variants of OptFS: one theta from one OOD set, tested on all; means over OOD sets",
        optfs_variants.compare_variants,
        partial(tabulate_means, index=["variant"]),
        figures.draw_variants,
    ),
    "validation": Study(
        "Validation of the ID-only problem: one theta per OOD set, tested on that set; V score",
        optfs_variants.validate_term,
        tabulate_rows,
        figures.draw_validation,
    ),
    "dynamic": Study(
        "Classes that may change: the ratio r of changed argmax, and theta by alternating optimisation",
        optfs_variants.compare_dynamic,
        tables.tabulate_dynamic,
        figures.draw_dynamic,
    ),
    "intervals": Study(
        "Number of intervals K; K = 0 is Energy; means over OOD sets",
        partial(optfs_variants.sweep_optfs, setting="k", values=optfs_variants.NUMBERS),
        partial(tabulate_means, index=["method", "k"], descending="method"),
        partial(figures.draw_sweep, column="k", factor=1, label="intervals K (0: Energy), not to scale"),
    ),
    "limits": Study(
        "Limits of the intervals at the p and 100 - p percentiles; means over OOD sets",
        optfs_variants.sweep_limits,
        partial(tabulate_means, index=["method", "tail"], also=("lower", "upper"), descending="method"),
        partial(figures.draw_sweep, column="tail", factor=100, label="percentile p of the limits, not to scale"),
    ),
    "compatibility": Study(
        "Scores and methods alone and with OptFS; means over OOD sets",
        compare_with_optfs,
        lambda frame, digits: tabulate_means(
            frame.assign(shaped=frame["shaped"].map({False: "base", True: "+ OptFS"})), digits, index=["base", "shaped"]
        ),
        figures.draw_compatibility,
    ),
    "shaping": Study(
        "Shaping functions: cosine of each theta with that of OptFS with OOD data, over intervals that hold values",
        profile_shapes,
        tables.tabulate_shaping,
        figures.draw_shaping,
    ),
    "weights": Study(
        "Weights of the predicted class by feature value, mean and standard deviation in ten equal parts of the range",
        profile_weights,
        tables.tabulate_weights,
        figures.draw_weights,
    ),
    "intuition": Study(
        "The intuition: b = E[I_OOD] relative to a = E[I_ID] = (1, 0)",
        lambda network: optfs_variants.project_impacts(optfs_variants.validate_term(network)),
        tabulate_rows,
        figures.draw_intuition,
    ),
    "generalisation": Study(
        "Generalisation: AUROC per method on each network, on ConvNets, on transformers and on MLPs",
        compare_methods,
        tables.tabulate_generalisation,
        figures.draw_bars,
        lambda frame: figures.draw_generalisation(average_by_family(frame)),
    ),
}


COMPARING = "generalisation"  # the one study whose methods are not fixed


def select_studies(name: str, methods: Sequence[str] = ()) -> list[str]:
    """Return the studies of a name, one or `all`; `methods` are only for the study that compares methods."""
    if name not in (*STUDIES, "all"):
        raise unknown("study", name, (*STUDIES, "all"))
    if methods and name not in (COMPARING, "all"):
        raise InputError(f"the study {name} has fixed methods; leave --methods out (it is for {COMPARING})")
    return [COMPARING] if methods else list(STUDIES) if name == "all" else [name]
