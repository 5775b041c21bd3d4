"""From a study and networks to files: its table, its figures and its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oodshape.benchmark.results import convention
from oodshape.core.files import replacing
from oodshape.report.render import frame_latex, frame_markdown
from oodshape.studies import beside_paper, drawing
from oodshape.studies.network import Network
from oodshape.studies.page import study_page
from oodshape.studies.seeds import over_seeds
from oodshape.studies.table import STUDIES, Study

if TYPE_CHECKING:
    from pandas import DataFrame


def write(
    name: str, networks: Sequence[Network], folder: Path, seeds: int = 1, *, paper: bool = False
) -> Iterator[Path]:
    """Run a study and write its table (CSV, Markdown, LaTeX), figures (SVG, PDF, PNG) and page; the paths written.

    The CSV holds the tidy rows in full; Markdown, LaTeX and the page hold the table to print, with `paper` that of
    the study beside the paper's figures.
    """
    study = STUDIES[name]
    parts, frame, more = over_seeds(lambda each: _computed(study, each), networks, seeds)
    table, notes = study.table(frame), [*_notes(networks), *more]
    if paper and name in beside_paper.TABLES:
        table, said = beside_paper.beside(name, frame, networks)
        notes += said
    texts = {
        "csv": frame.to_csv(index=False, lineterminator="\n"),
        "md": frame_markdown(table, study.title, notes),
        "tex": frame_latex(table, study.title, notes),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in texts.items():
        yield _written(text, folder / f"{name}.{kind}")
    pictures: list[Path] = []
    for network, part in zip(networks, parts, strict=True):
        with drawing.look():
            figure = study.draw(part)
        pictures += drawing.save(figure, folder, f"{name}-{drawing.slug(network.name)}")
    if study.draw_all is not None:
        with drawing.look():
            figure = study.draw_all(frame)
        pictures += drawing.save(figure, folder, name)
    yield from pictures
    drawn = [path for path in pictures if path.suffix == ".svg"]
    yield _written(study_page(table, study.title, notes, drawn), folder / f"{name}.html")


def printed(name: str, networks: Sequence[Network]) -> str:
    """The Markdown that `write` puts into a study's file, without the files."""
    study = STUDIES[name]
    return frame_markdown(study.table(_computed(study, networks)[1]), study.title, _notes(networks))


def _computed(study: Study, networks: Sequence[Network]) -> tuple[list[DataFrame], DataFrame]:
    """The tidy rows of each network, named after it, and all of them in one frame."""
    from pandas import concat

    parts = [study.of(network) for network in networks]
    for part, network in zip(parts, networks, strict=True):
        part.insert(0, "family", network.family)
        part.insert(0, "network", network.name)
    return parts, concat(parts, ignore_index=True)


def _written(text: str, path: Path) -> Path:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _notes(networks: Sequence[Network]) -> list[str]:
    return [f"Percent where a column says FPR95, AUROC or r; {convention()}.", *(n.describe() for n in networks)]
