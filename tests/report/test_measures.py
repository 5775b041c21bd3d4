"""A measure is declared once: given a head, it is a column of every table, in every format and on the page."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

from oodshape.benchmark.results import METRICS, Row
from oodshape.report import measures, render, table, tables_of, terminal
from oodshape.report.beside_paper import beside_paper
from oodshape.report.measures import MAIN, MEASURES, SHOWN
from synthetic import results, row

AUPR = replace(MEASURES[2], head="PR")
THREE = (*SHOWN, AUPR)


def test_every_metric_of_a_row_has_a_measure() -> None:
    assert tuple(measure.name for measure in MEASURES) == METRICS
    assert {measure.name + end for measure in MEASURES for end in ("", "_low", "_high")} <= {
        field.name for field in fields(Row)
    }
    assert MAIN in METRICS


def test_a_new_head_is_a_column_in_every_format() -> None:
    made = table(results(["net", "other"], ["msp", "react"]), measures=THREE)
    plain = table(results(["net", "other"], ["msp", "react"]))
    assert [[len(entry.cells) for entry in line.entries] for line in made.lines] == 2 * [[3, 3, 3]]
    assert "PR: AUPR-in in percent, higher is better." in made.notes[0]
    text, markdown, latex = terminal.to_text(made), render.to_markdown(made), render.to_latex(made)
    assert text.count("PR↑") == markdown.count("PR↑") == latex.count(r"PR$\uparrow$") == 3
    assert r"\multicolumn{3}{c}{net}" in latex
    assert r"\begin{tabular}{lccccccccc}" in latex
    assert r"\cmidrule(lr){2-4} \cmidrule(lr){5-7} \cmidrule(lr){8-10}" in latex
    for rendered, short in ((text, terminal.to_text(plain)), (markdown, render.to_markdown(plain))):
        first, shorter = (next(line for line in part.splitlines() if "msp" in line) for part in (rendered, short))
        assert first.count(".") == shorter.count(".") + 3


def test_a_column_that_the_paper_has_not_stays_empty_beside_it() -> None:
    found = replace(results(), rows=(row("ResNet50", "msp", "SUN"),), provenance={"settings": {"settings": "imagenet"}})
    (line,) = beside_paper(table(found, measures=THREE), found, "model").lines
    assert [cell.text for cell in line.entries[1].cells] == ["69.30", "76.26", "-"]
    assert line.entries[2].cells[2].text == "-"


def test_no_other_file_names_a_measure() -> None:
    """`headline` alone does, whose sentences are about AUROC and FPR95."""
    room, names = Path(measures.__file__).parent, {text for each in MEASURES for text in (each.name, each.head) if text}
    for path in [*room.rglob("*.py"), *room.rglob("*.js")]:
        found = set(re.findall(r'"(\w+)"', path.read_text(encoding="utf-8"))) & names
        assert not found or path.name in ("measures.py", "headline.py"), path.name
    assert tables_of(results())[0].measures == SHOWN
