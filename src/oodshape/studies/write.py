"""Run studies and write their files: tables, figures, a page each, and an index of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from oodshape.benchmark.results import CONVENTION
from oodshape.core.files import replacing
from oodshape.metrics.registry import DEFAULT_METRICS
from oodshape.report.pages.html import html_table, plain_page, write_html
from oodshape.report.palette import inline
from oodshape.report.tables import paper as beside_paper
from oodshape.report.tables.markdown_latex import cells_of, frame_latex, frame_markdown
from oodshape.studies import plotting as drawing
from oodshape.studies.catalog import STUDIES, Study
from oodshape.studies.network import Network
from oodshape.studies.tables import decimals

if TYPE_CHECKING:
    from pandas import DataFrame


def write(
    name: str, networks: Sequence[Network], folder: Path, seeds: int = 1, *, paper: bool = False
) -> Iterator[Path]:
    """Run a study and write its table (CSV, Markdown, LaTeX), figures (SVG, PDF, PNG) and page; yield each path.

    The CSV holds the tidy rows. The other files hold the printed table, with `paper` next to the paper's figures.
    """
    study = STUDIES[name]
    parts, spread = _compute(study, networks, seeds)
    frame = _joined(parts)
    table, notes = study.table(frame, decimals(_images(networks))), [*_notes(networks), *spread]
    if paper and name in beside_paper.STUDIES:
        id_sets = {network.name: network.id_set for network in networks}
        table, more = beside_paper.study_beside_paper(name, frame, id_sets)
        notes += more
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "csv": frame.to_csv(index=False, lineterminator="\n"),
        "md": frame_markdown(table, study.title, notes),
        "tex": frame_latex(table, study.title, notes),
    }
    for kind, text in texts.items():
        with replacing(folder / f"{name}.{kind}") as temporary:
            temporary.write_text(text, encoding="utf-8")
        yield folder / f"{name}.{kind}"
    figures = [
        (study.draw, part, f"{name}-{drawing.slug(each.name)}") for each, part in zip(networks, parts, strict=True)
    ]
    if study.draw_all is not None:
        figures.append((study.draw_all, frame, name))
    pictures: list[Path] = []
    for draw, rows, stem in figures:
        with drawing.look():
            figure = draw(rows)
        pictures += drawing.save(figure, folder, stem)
    yield from pictures
    page = _page(table, study.title, notes, [path for path in pictures if path.suffix == ".svg"])
    write_html(folder / f"{name}.html", page)
    yield folder / f"{name}.html"


def write_all(
    studies: Mapping[str, Sequence[Network]], folder: Path, seeds: int = 1, *, paper: bool = False
) -> Iterator[Path]:
    """Run several studies, write the files of each, and index.html with a link to each page."""
    for name, networks in studies.items():
        yield from write(name, networks, folder, seeds, paper=paper)
    links = "".join(f'<li><a href="{name}.html">{name}</a>: {escape(STUDIES[name].title)}</li>' for name in studies)
    described = dict.fromkeys(each.describe() for networks in studies.values() for each in networks)
    write_html(folder / "index.html", plain_page("Studies", f"<ul>{links}</ul>\n{_list(list(described))}"))
    yield folder / "index.html"


def print_study(name: str, networks: Sequence[Network]) -> str:
    """Run a study and return its table as Markdown with title and notes."""
    study = STUDIES[name]
    frame = _joined(_compute(study, networks, seeds=1)[0])
    return frame_markdown(study.table(frame, decimals(_images(networks))), study.title, _notes(networks))


def _compute(study: Study, networks: Sequence[Network], seeds: int) -> tuple[list[DataFrame], list[str]]:
    """The tidy rows of each network: means over the seeds, other columns of the first; and a note on the spread."""
    from pandas import concat

    parts, spread = [], 0.0
    for network in networks:
        runs = [study.of(replace(network, seed=network.seed + step)) for step in range(seeds)]
        rows = runs[0]
        if seeds > 1:
            stacked = concat(runs, keys=range(seeds)).groupby(level=1, sort=False)
            numbers = [name for name in rows.columns if rows[name].dtype.kind == "f"]
            rows = rows.assign(**{name: stacked[name].mean() for name in numbers})
            metrics = [name for name in numbers if name.startswith(tuple(metric.name for metric in DEFAULT_METRICS))]
            spread = max([spread, *(float(stacked[name].std().max()) for name in metrics)])
        rows.insert(0, "family", network.family)
        rows.insert(0, "network", network.name)
        parts.append(rows)
    note = f"Means over {seeds} seeds; the largest standard deviation over them is {100 * spread:.2f} points."
    return parts, [note] if seeds > 1 else []


def _joined(parts: Sequence[DataFrame]) -> DataFrame:
    from pandas import concat

    return concat(parts, ignore_index=True)


def _images(networks: Sequence[Network]) -> int:
    """The fewest images that a mean over OOD sets rests on."""
    return min(min(len(each.inside), sum(len(ood) for ood in each.ood.values())) for each in networks)


def _notes(networks: Sequence[Network]) -> list[str]:
    return [
        f"Percent where a column says {', '.join(metric.head for metric in DEFAULT_METRICS)} or r; {CONVENTION}.",
        " ".join(metric.note for metric in DEFAULT_METRICS),
        f"One image can change a mean over OOD sets by {100 / _images(networks):.2g} points; "
        "the number of decimals follows from this.",
        *(network.describe() for network in networks),
    ]


def _page(frame: DataFrame, title: str, notes: Sequence[str], figures: Sequence[Path]) -> str:
    """The page of a study: the table, its notes, and the SVG files as pictures."""
    pictures = "".join(
        f"<figure>{inline(path.read_text(encoding='utf-8'), path.stem, path.stem)}"
        f"<figcaption>{escape(path.stem)}</figcaption></figure>"
        for path in figures
    )
    table = html_table([str(name) for name in frame.columns], cells_of(frame))
    return plain_page(title, f'{table}\n{_list(notes)}\n<div class="pictures">{pictures}</div>')


def _list(notes: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>'
