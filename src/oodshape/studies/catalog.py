"""List the studies, run them, and write their files: what each computes, the table it prints, the figures it draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from pandas import DataFrame, concat

from oodshape.benchmark.results import CONVENTION
from oodshape.core.errors import InputError, unknown
from oodshape.core.files import replacing
from oodshape.metrics.registry import DEFAULT_METRICS
from oodshape.report.tables import paper as paper_tables
from oodshape.report.tables.markdown_latex import frame_latex, frame_markdown
from oodshape.studies import figures, optfs_variants, plotting, tables
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
        partial(tabulate_means, index=["method", "k"]),
        partial(figures.draw_sweep, column="k", factor=1, label="intervals K (0: Energy), not to scale"),
    ),
    "limits": Study(
        "Limits of the intervals at the p and 100 - p percentiles; means over OOD sets",
        optfs_variants.sweep_limits,
        partial(tabulate_means, index=["method", "tail"], also=("lower", "upper")),
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


def write_study(name: str, networks: Sequence[StudyNetwork], folder: Path, *, paper: bool = False) -> Iterator[Path]:
    """Run a study and write its table (CSV, Markdown, LaTeX) and figures (SVG, PDF, PNG); yield each path.

    The CSV file holds the tidy rows, the other files the printed table, with `paper` next to the paper's figures.
    """
    study = STUDIES[name]
    frame = compute_study(name, networks)
    table, notes = study.tabulate(frame, tables.supported_decimals(fewest_images(networks))), _notes(networks)
    if paper and name in paper_tables.STUDIES:
        id_sets = {network.name: network.id_set for network in networks}
        table, more = paper_tables.compare_study_with_paper(name, frame, id_sets)
        notes += more
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "csv": frame.to_csv(index=False, lineterminator="\n"),
        "md": frame_markdown(table, study.title, notes),
        "tex": frame_latex(table, study.title, notes, f"study-{name}"),
    }
    for kind, text in texts.items():
        with replacing(folder / f"{name}.{kind}") as temporary:
            temporary.write_text(text, encoding="utf-8")
        yield folder / f"{name}.{kind}"
    for stem, draw in ((name, study.draw), (f"{name}-families", study.draw_families)):
        if draw is not None:
            with plotting.use_style():
                figure = draw(frame)
            yield from plotting.save_figure(figure, folder, stem)


def compute_study(name: str, networks: Sequence[StudyNetwork]) -> DataFrame:
    """Return the tidy rows of a study for all networks, with the columns network and family first."""
    frames = []
    for network in networks:
        frame = STUDIES[name].compute(network)
        frame.insert(0, "family", network.family)
        frame.insert(0, "network", network.name)
        frames.append(frame)
    return concat(frames, ignore_index=True)


def fewest_images(networks: Sequence[StudyNetwork]) -> int:
    """Return the smallest number of images that a mean over OOD sets is based on."""
    return min(min(len(each.id_test), sum(map(len, each.ood.values()))) for each in networks)


def _notes(networks: Sequence[StudyNetwork]) -> list[str]:
    return [
        f"Percent where a column says {', '.join(metric.head for metric in DEFAULT_METRICS)} or r; {CONVENTION}.",
        " ".join(metric.note for metric in DEFAULT_METRICS),
        f"One image can change a mean over OOD sets by {100 / fewest_images(networks):.2g} points; "
        "the number of decimals follows from this.",
        *(network.describe() for network in networks),
    ]
