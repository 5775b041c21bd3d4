"""Run studies and write their files: tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pandas import DataFrame, concat

from oodshape.benchmark.results import CONVENTION
from oodshape.core.files import replacing
from oodshape.metrics.registry import DEFAULT_METRICS
from oodshape.report.tables import paper as paper_tables
from oodshape.report.tables.markdown_latex import frame_latex, frame_markdown
from oodshape.studies import plotting
from oodshape.studies.catalog import STUDIES
from oodshape.studies.load_networks import StudyNetwork
from oodshape.studies.tables import supported_decimals


def write_study(name: str, networks: Sequence[StudyNetwork], folder: Path, *, paper: bool = False) -> Iterator[Path]:
    """Run a study and write its table (CSV, Markdown, LaTeX) and figures (SVG, PDF, PNG); yield each path.

    The CSV file holds the tidy rows, the other files the printed table, with `paper` next to the paper's figures.
    """
    study = STUDIES[name]
    frame = compute_study(name, networks)
    table, notes = study.tabulate(frame, supported_decimals(fewest_images(networks))), _notes(networks)
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
