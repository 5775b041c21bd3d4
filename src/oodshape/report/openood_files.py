"""OpenOOD's own outputs: the table with published figures, a CSV per method in its layout, rows for its leaderboard."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from oodshape.benchmark.results import Results
from oodshape.core.files import replacing
from oodshape.methods.openood_settings import openood_settings
from oodshape.report.columns import show_columns
from oodshape.report.openood import (
    BOARDS,
    GROUPS,
    METRICS,
    PAPERS_FPR,
    Figure,
    Network,
    Scores,
    is_openood,
    networks,
    published_of,
    said_of,
    their_name,
)
from oodshape.report.pivot import departures, skipped_notes
from oodshape.report.render import cells_of

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console

FOLDER = "openood"
BOARD_HEAD = (
    "Training",
    "Postprocessor",
    "Near-OOD_AUROC",
    "Far-OOD_AUROC",
    "ID_Accuracy",
    "Outlier_Data",
    "Arch",
    "Additional_Description",
)
HEADS = ("AUROC", "published", "difference", "FPR95 (OpenOOD)", PAPERS_FPR)


def openood_tables(results: Results) -> Iterator[tuple[DataFrame, str, list[str]]]:
    """(table, title, notes) of each network: near and far means, the published AUROC and the difference."""
    from pandas import DataFrame

    for network in networks(results):
        lines = [
            [method, *(cell for group in GROUPS for cell in _cells(results, network, method, group))]
            for method in results.names("method")
        ]
        heads = ["method", *(f"{group} {head}" for group in GROUPS for head in HEADS)]
        runs = f", mean ± standard deviation of {len(network.runs)} training runs" if len(network.runs) > 1 else ""
        title = f"{results.names('benchmark')[0]} (OpenOOD v1.5): {network.name}{runs}{departures(results)}"
        yield DataFrame(lines, columns=heads), title, list(_notes(results, network))


def show_openood(results: Results, console: Console) -> None:
    """The tables of OpenOOD's benchmarks on a console; nothing for other results."""
    for frame, title, notes in openood_tables(results) if is_openood(results) else ():
        console.print(title, markup=False, style="bold", soft_wrap=True)
        show_columns(list(frame.columns), cells_of(frame), console)
        console.print("\n".join(notes) + "\n", markup=False, soft_wrap=not console.is_terminal)


def _cells(results: Results, network: Network, method: str, group: str) -> Iterator[str]:
    scores = Scores(results, network, method)
    ours, theirs = scores.group(group, "AUROC"), published_of(results, network.name, method).get(group)
    yield _said(ours)
    yield "-" if theirs is None else f"{theirs:.2f}"
    yield "-" if theirs is None or ours is None else f"{round(ours.mean, 2) - theirs:+.2f}"
    yield _said(scores.group(group, "FPR@95"))
    yield _said(scores.group(group, PAPERS_FPR))


def _said(figure: Figure | None) -> str:
    return "-" if figure is None else str(figure)


def _notes(results: Results, network: Network) -> Iterator[str]:
    """What the figures are, what they were made with, and what keeps them from being compared."""
    settings, said = openood_settings(), said_of(results)
    scores = Scores(results, network, results.names("method")[0])
    yield (
        "In percent. " + "; ".join(f"{group}: {', '.join(sets)}" for group, sets in scores.groups.items() if sets) + "."
    )
    accuracy = scores.of([ood for sets in scores.groups.values() for ood in sets], "ACC")
    if accuracy is not None:
        yield f"ID accuracy: {accuracy}."
    if said.get("spectrum"):
        yield f"Full spectrum ({said['spectrum']}): ID are the test images and those of {', '.join(said['shifted'])}."
    yield (
        "FPR95 (OpenOOD): the share of ID images rejected when 95 % of the OOD images are. "
        "FPR95 (paper): the share of OOD images accepted when 95 % of the ID images are."
    )
    here = [method for method in results.names("method") if method in settings]
    grids = [method for method in here if settings[method].grid]
    if said.get("settings") != "openood":
        yield "Methods are fitted with oodshape's own settings, not as OpenOOD fits them (--settings openood)."
    elif said.get("tuned") is not None:
        yield f"Chosen on OOD validation images ({said['tuned_on']}): the settings of {', '.join(grids) or 'none'}."
    elif grids:
        yield (
            "No OOD image was used for any setting; on the leaderboard these were searched on OOD validation images "
            f"(--tuned): {', '.join(grids)}."
        )
    yield (
        "published: AUROC on OpenOOD's leaderboard (github.com/zjysteven/OpenOOD at 28d3a40; Zhang et al., arXiv "
        "2306.09301). difference: ours minus published. -: no such figure."
    )
    yield from (f"{method}: {settings[method].says}." for method in here if settings[method].says)
    why = why_not_comparable(results)
    if why:
        yield f"Not comparable with the leaderboard, and no rows for it were written: {why}."
    yield from skipped_notes(results)


def why_not_comparable(results: Results) -> str:
    """Why rows for the leaderboard would mislead; nothing where they would not."""
    said = said_of(results)
    if results.names("benchmark")[0] not in BOARDS:
        return "the leaderboard has no table for it"
    if said.get("limit") is not None:
        return f"only {said['limit']} images of each set were used"
    if said.get("lists"):
        return "the lists of images are not the published ones"
    if results.skipped:
        return f"{results.skipped[0][0]} is missing"
    return ""


def write_openood(results: Results, folder: Path) -> None:
    """Write openood/<method>.csv (in a folder per network where there are several), and rows for the leaderboard."""
    found = networks(results)
    for network in found:
        place = folder / FOLDER / network.name.replace("/", "-") if len(found) > 1 else folder / FOLDER
        place.mkdir(parents=True, exist_ok=True)
        for method in results.names("method"):
            lines = [[name, *map(_said, row.values())] for name, row in Scores(results, network, method).lines()]
            _write(place / f"{their_name(method)}.csv", [["", *METRICS], *lines])
    if not why_not_comparable(results):
        board, _ = BOARDS[results.names("benchmark")[0]]
        place = folder / FOLDER / "leaderboard"
        place.mkdir(parents=True, exist_ok=True)
        _write(place / f"{board}.csv", [list(BOARD_HEAD), *board_rows(results)])


def board_rows(results: Results) -> list[list[str]]:
    """Rows as the leaderboard's files hold them, one per network and method."""
    _, described = BOARDS[results.names("benchmark")[0]]
    rows = []
    for network in networks(results):
        for method in results.names("method"):
            scores = Scores(results, network, method)
            near, far = (scores.group(group, "AUROC") for group in GROUPS)
            accuracy, setting = scores.group(GROUPS[0], "ACC"), openood_settings().get(method)
            name = (setting.published if setting is not None else "") or method
            figures = [_said(near), _said(far), "/" if accuracy is None else str(accuracy)]
            rows.append(["CrossEntropy", name, *figures, "No", network.name, described])
    return rows


def _write(path: Path, rows: list[list[str]]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
