"""A study's files: its tables, figures and page, and the index of a run of all of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oodshape.benchmark.results import convention
from oodshape.core.files import replacing
from oodshape.report.render import frame_latex, frame_markdown
from oodshape.studies import beside_paper, drawing
from oodshape.studies.catalog import STUDIES, Study
from oodshape.studies.network import Network
from oodshape.studies.page import index_page, study_page
from oodshape.studies.printing import decimals
from oodshape.studies.seeds import over_seeds

if TYPE_CHECKING:
    from pandas import DataFrame


def write(
    name: str, networks: Sequence[Network], folder: Path, seeds: int = 1, *, paper: bool = False
) -> Generator[Path, None, str]:
    """Run a study and write its table (CSV, Markdown, LaTeX), figures (SVG, PDF, PNG) and page; the paths written.

    The CSV holds the tidy rows in full; Markdown, LaTeX and the page begin with what the study shows, the sentence that
    is returned at the end, and hold the table to print, with `paper` that of the study beside the paper's figures.
    """
    study = STUDIES[name]
    parts, frame, more = over_seeds(lambda each: _computed(study, each), networks, seeds)
    finding, table, notes = _shown(study, frame, networks)
    notes = [*notes, *more]
    if paper and name in beside_paper.TABLES:
        table, said = beside_paper.beside(name, frame, networks)
        notes += said
    texts = {
        "csv": frame.to_csv(index=False, lineterminator="\n"),
        "md": f"{finding}\n\n{frame_markdown(table, study.title, notes)}",
        "tex": frame_latex(table, f"{study.title}. {finding.removesuffix('.')}", notes),
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
    yield _written(study_page(table, study.title, finding, notes, drawn), folder / f"{name}.html")
    return finding


def write_all(
    studies: Mapping[str, Sequence[Network]], folder: Path, seeds: int = 1, *, paper: bool = False
) -> Iterator[Path]:
    """Run studies, each of its networks, and write their files and index.html, which has what each shows."""
    entries = []
    for name, networks in studies.items():
        finding = yield from write(name, networks, folder, seeds, paper=paper)
        entries.append((name, STUDIES[name].title, finding))
    described = dict.fromkeys(each.describe() for networks in studies.values() for each in networks)
    yield _written(index_page(entries, list(described)), folder / "index.html")


def printed(name: str, networks: Sequence[Network]) -> tuple[str, str]:
    """What a study shows, and the Markdown of its table with title and notes: what `write` puts into a file."""
    study = STUDIES[name]
    finding, table, notes = _shown(study, _computed(study, networks)[1], networks)
    return finding, frame_markdown(table, study.title, notes)


def _shown(study: Study, frame: DataFrame, networks: Sequence[Network]) -> tuple[str, DataFrame, list[str]]:
    digits = decimals(_images(networks))
    picked = dict.fromkeys(name for each in networks for name in each.picked)
    # a sentence compares: where methods were picked, those that it speaks of may be missing
    only = f"Of {', '.join(picked)} alone, as asked: the sentence of this study compares more."
    less = picked and (study.picks is not None or study.by_panel)
    finding = only if less else study.finding(frame, digits)
    return finding, study.table(frame, digits), _notes(networks)


def _images(networks: Sequence[Network]) -> int:
    """The fewest images that a mean over OOD sets rests on."""
    return min(min(len(each.inside), sum(len(ood) for ood in each.ood.values())) for each in networks)


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
    share = 100 / _images(networks)
    supports = f"one image may move a mean over OOD sets by {share:.2g} points, which is why there are no more decimals"
    return [
        f"Percent where a column says FPR95, AUROC or r; {convention()}.",
        f"Of the fewest images here, {supports}.",
        *(network.describe() for network in networks),
    ]
