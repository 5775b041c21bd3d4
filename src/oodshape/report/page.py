"""One HTML page with all results: it needs no network and no other file, and suits light, dark and small screens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from oodshape.files import replacing
from oodshape.report import figures
from oodshape.report.pivot import Cell, Table, table
from oodshape.report.tables import STYLED
from oodshape.results import Results, Row

FEATURED = ("msp", "energy", "optfs-e")  # drawn beside the best method of each OOD set

_LEAD = (
    "A classifier gives every image one of its classes, even an image unlike anything it was trained on. The methods"
    " below score each image by how familiar it looks, so that unfamiliar ones can be rejected; this page shows how"
    " well that works."
)
_READING = {
    "id": "<b>FP</b> is the share of unfamiliar images (out-of-distribution, OOD) that still pass when 95 % of the"
    " familiar ones (in-distribution, ID) pass: lower is better.",
    "ood": "<b>FP</b> is the share of familiar images (in-distribution, ID) that are rejected when 95 % of the"
    " unfamiliar ones (out-of-distribution, OOD) are: lower is better. This is OpenOOD's convention.",
}
_AUROC = (
    " <b>AU</b> is the chance that a familiar image scores higher than an unfamiliar one: 50 is guessing, 100 is"
    " perfect."
)
_ROC = {
    "id": "FP is where a curve meets the dotted line.",
    "ood": "FP is what a curve lacks to 1 where 5 % of OOD are accepted.",
}
_CSS = """
:root { color-scheme: light dark; --text: #1c1c1e; --soft: #5f6368; --ground: #fff; --line: #d8dadf; --tint: #f4f5f7 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e8; --soft: #a3a7ae; --ground: #16171a; --line: #3a3d43; --tint: #212328 }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1rem 1rem 3rem; max-width: 76rem; color: var(--text); background: var(--ground);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0 }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line) }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem }
p, ul { max-width: 46rem; margin: .5rem 0 }
a { color: inherit }
nav a { margin-right: 1rem; white-space: nowrap }
.soft, .notes, figcaption { color: var(--soft); font-size: .85rem }
.notes { padding-left: 1.2rem; max-width: none }
.scroll { overflow-x: auto; width: fit-content; max-width: 100%; border: 1px solid var(--line); border-radius: 6px }
table { border-spacing: 0; font-size: .85rem; font-variant-numeric: tabular-nums; overflow-wrap: normal }
th, td { padding: .2rem .5rem; text-align: right; white-space: nowrap }
thead th { font-weight: 600; text-align: center; white-space: normal }
thead tr + tr th { font-weight: 400; color: var(--soft); text-align: right; border-bottom: 1px solid var(--line) }
th:first-child { position: sticky; left: 0; text-align: left; font-weight: 400; background: var(--ground);
  border-right: 1px solid var(--line) }
.rule > * { border-top: 1px solid var(--line) }
td + td:nth-child(even), [colspan] + [colspan] { border-left: 1px solid var(--line) }
tbody tr:hover > * { background: var(--tint) }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0 }
summary { padding: .45rem .7rem; cursor: pointer }
summary:hover { background: var(--tint) }
:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px }
figure { margin: .5rem 0 }
.figures, .figures > div { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; align-items: flex-start }
.figures { padding: .3rem .7rem .8rem }
.figures > div { flex: 1 1 16rem; max-width: 36rem }
svg { max-width: 100%; height: auto; display: block }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .5rem .7rem; font-size: .85rem }
dt { color: var(--soft) }
dd { margin: 0; min-width: 0 }
dd dl { margin: .2rem .7rem .5rem }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr } dd { margin: 0 0 .3rem 1rem } }
"""


def write_page(results: Results, path: str | Path) -> None:
    """Write the page of these results, whole or not at all."""
    text = "\n".join(_page(results))
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _page(results: Results) -> Iterator[str]:
    overview = table(results, "model")
    models = results.names("model")
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    # the browser itself refuses anything that is not in this file
    yield """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
    yield f"<title>{escape(overview.title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>"
    yield f"<h1>{escape(overview.title)}</h1>\n<p>{_LEAD}</p>\n<p>{_READING[_positive(results)]}{_AUROC}</p>"
    links = [f'<a href="#model-{i}">{escape(model)}</a>' for i, model in enumerate(models)]
    yield f'<nav aria-label="Sections">{" ".join(links)} <a href="#origin">Provenance</a></nav>'
    yield "<h2>All models</h2>"
    yield _table(overview)
    for i, model in enumerate(models):
        yield from _model(results, model, i)
    if results.skipped:
        yield "<h2>Not measured</h2>\n<ul>"
        yield from (f"<li>{escape(what)}: {escape(why)}</li>" for what, why in results.skipped)
        yield "</ul>"
    yield f'<h2 id="origin">Provenance</h2>\n{_facts(results.provenance)}\n</main>\n</body>\n</html>\n'


def _positive(results: Results) -> str:
    """The positive side of FPR95."""
    return str(results.provenance.get("positive", "id"))


def _model(results: Results, model: str, number: int) -> Iterator[str]:
    rows = [row for row in results.rows if row.model == model]
    row = rows[0]
    facts = [row.family, f"fitted on {row.n_train:,} images", f"{row.n_id:,} ID images"]
    facts += [] if row.id_accuracy is None else [f"accuracy {100 * row.id_accuracy:.2f} %"]
    yield f'<h2 id="model-{number}">{escape(model)}</h2>\n<p class="soft">{escape("; ".join(facts))}</p>'
    yield _table(table(results, "ood", model))
    shapes = [shape for shape in results.shapes if shape.model == model and not shape.is_identity]
    if shapes:
        yield "<h3>Shaping functions</h3>\n<figure>" + figures.shaping(shapes)
        yield "<figcaption>What a feature of value z is multiplied by. The dotted line at 1 is no shaping.</figcaption>"
        yield "</figure>"
    if any(curve.model == model for curve in results.curves):
        yield "<h3>Scores by OOD set</h3>"
    for i, ood in enumerate(dict.fromkeys(row.ood for row in rows)):
        here = {row.method: row for row in rows if row.ood == ood}
        yield _details(results, here, is_open=number == i == 0)


def _details(results: Results, rows: Mapping[str, Row], *, is_open: bool) -> str:
    """The histograms and the ROC curves of a few methods on one model and one OOD set, in a box that opens."""
    best = max(rows.values(), key=lambda row: row.auroc)
    names = [name for name in dict.fromkeys((best.method, *FEATURED)) if name in rows]
    found = {c.method: c for c in results.curves if (c.model, c.ood) == (best.model, best.ood)}
    curves = [found[name] for name in names if name in found]
    if not curves:
        return ""
    titles = {name: f"{name} (best)" if name == best.method else name for name in names}
    histograms = [figures.histogram(curve, titles[curve.method]) for curve in curves]
    caption = f"<figcaption>{_ROC[_positive(results)]}</figcaption>"
    said = f"{best.ood} ({best.group}, {best.n_ood:,} images): best AU {100 * best.auroc:.2f} by {best.method}"
    return "\n".join(
        [
            f"<details{' open' if is_open else ''}><summary>{escape(said)}</summary>",
            f'<div class="figures"><figure>{figures.roc(curves)}{caption}</figure><div>',
            *(f"<figure>{svg}</figure>" for svg in histograms),
            "</div></div>\n</details>",
        ]
    )


def _table(table: Table) -> str:
    """The table in a box of its own that scrolls, and its notes."""
    names = [escape(group).replace("_", "_<wbr>").replace("-", "-<wbr>") for group in table.groups]
    groups = "".join(f'<th colspan="2" scope="colgroup">{name}</th>' for name in names)
    heads = '<th scope="col">FP↓</th><th scope="col">AU↑</th>' * len(table.groups)
    lines = []
    for line in table.lines:
        cells = "".join(
            f"<td>{_marked(cell)}{escape(pair.mark)}</td>" for pair in line.pairs for cell in (pair.fp, pair.au)
        )
        kind = ' class="rule"' if line.rule else ""
        lines.append(f'<tr{kind}><th scope="row">{escape(line.method)}</th>{cells}</tr>')
    notes = "".join(f"<li>{escape(note)}</li>" for note in (STYLED, *table.notes))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}"><table>\n<thead>'
        f'<tr><th></th>{groups}</tr><tr><th scope="col">method</th>{heads}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + f'\n</tbody></table></div>\n<ul class="notes">{notes}</ul>'
    )


def _marked(cell: Cell) -> str:
    text = escape(cell.text)
    return f"<b>{text}</b>" if cell.rank == 1 else f"<u>{text}</u>" if cell.rank in (2, 3) else text


def _facts(facts: Mapping[str, Any]) -> str:
    """A list of names and values, in which long lists can be opened."""
    parts = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            inner = f"<details><summary>{len(value)} entries</summary>{_facts(value)}</details>" if value else "none"
        else:
            inner = escape(str(value))
        parts.append(f"<dt>{escape(name)}</dt><dd>{inner}</dd>")
    return f"<dl>{''.join(parts)}</dl>"
