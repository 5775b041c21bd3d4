"""One HTML page with all results: it needs no network and no other file, and suits light, dark and small screens.

The words at the top and the provenance are written here; tables and figures are drawn by the scripts in `web` from
JSON that stands in the page, so that they follow the reader's filters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from oodshape.benchmark.results import Row, RunResults
from oodshape.core.text import format_count
from oodshape.methods.describe import find_titles
from oodshape.methods.records import FEATURED, RECORDS
from oodshape.metrics.detection import Estimate
from oodshape.metrics.registry import DEFAULT_METRICS, ERROR, MAIN, METRICS, UNITS, Metric
from oodshape.report.method_styles import BLOCKS, display_name, method_style, table_block
from oodshape.report.pages.html import definitions, fill_template, page_json, write_page
from oodshape.report.tables.table import DEFAULT_COLUMNS, Column, Columns, list_caveats, make_table

SCRIPTS = ("elements.js", "data.js", "filters.js", "table.js", "charts.js", "state.js", "top.js", "page.js")
COST = ("fit_seconds", "image_ms")
LESSON = (
    "These networks are tiny: methods that measure distances among features win here. On ImageNet, OptFS has the "
    "lowest FPR95 on EfficientNet-Lite0 (see Results in the documentation); no method wins on every network."
)


def page_data(results: RunResults, columns: Sequence[Column] = DEFAULT_COLUMNS) -> dict[str, Any]:
    """Everything that the page shows, with models, methods and OOD sets as places in their lists.

    `columns` are those that the table shows at first.
    """
    models, methods, oods = (_places(results.names(axis)) for axis in ("model", "method", "ood"))
    metrics = [metric for metric in METRICS.values() if any(metric.name in row.metrics for row in results.rows)]
    kinds = {row.group for row in results.rows}
    sides = [Column(ERROR, kind) for kind in ("near", "far") if {"near", "far"} <= kinds]
    asked = [*map(Column, metrics), *(column for column in (*columns, *sides) if column.metric in metrics)]
    known = dict.fromkeys(asked)
    first = [*columns, *sides, *(Column(METRICS[name]) for name in COST)]
    return {
        "models": _models(results),
        "ours": methods.get(FEATURED),
        "methods": _methods(results),
        "oods": [{"name": row.ood, "group": row.group, "n": row.n_ood} for row in _first(results, "ood")],
        "rows": [
            [models[row.model], methods[row.method], oods[row.ood]]
            + [number for metric in metrics for number in _numbers(row.metrics.get(metric.name))]
            for row in results.rows
        ],
        "metrics": [_column(column, metrics) for column in known],
        "main": MAIN.name,
        "overview": [each.name for each in first if each in known] if columns == DEFAULT_COLUMNS else None,
        "shown": [column.name for column in columns if column in known] or [MAIN.name],
        "ties": {
            f"{models.get(each.model, -1)},{oods.get(each.ood, -1)}": [methods[m] for m in each.tied if m in methods]
            for each in results.ties
        },
        "averages": {
            f"{models[each.model]},{methods[each.method]}": {
                name: _numbers(found)[1:] for name, found in each.metrics.items() if METRICS[name].interval
            }
            for each in results.averages_of
            if each.model in models and each.method in methods
        },
    }


def _numbers(found: Estimate | None) -> list[float | None]:
    """Value, low and high; values keep their digits, so that means are printed as in every other table."""
    return [None] * 3 if found is None else [round(found.value, 12), round(found.low, 6), round(found.high, 6)]


def _column(column: Column, metrics: Sequence[Metric]) -> dict[str, Any]:
    """A column as the page knows it; `at` is its place among the numbers of a row."""
    metric = column.metric
    _, factor, decimals = UNITS[metric.unit]
    named = {"name": column.name, "title": column.head, "note": metric.note, "kind": column.kind}
    shown = {"best": metric.sign, "factor": factor, "decimals": decimals, "interval": metric.interval}
    return named | shown | {"at": 3 + 3 * metrics.index(metric)}


def collect_curves(results: RunResults) -> list[dict[str, Any]]:
    """For each model its ROC curves by "method,ood": most of a large page, so they stand apart from the rest."""
    models, methods, oods = (_places(results.names(axis)) for axis in ("model", "method", "ood"))
    found: list[dict[str, Any]] = [{} for _ in models]
    for each in results.curves:
        if each.model in models and each.method in methods and each.ood in oods:
            points = [[round(1000 * rate) for rate in rates] for rates in (each.fpr, each.tpr)]
            found[models[each.model]][f"{methods[each.method]},{oods[each.ood]}"] = points
    return found


def _places(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _first(results: RunResults, column: str) -> list[Row]:
    """The first row of each entry of a column."""
    first = {getattr(row, column): row for row in reversed(results.rows)}
    return [first[name] for name in dict.fromkeys(getattr(row, column) for row in results.rows)]


def _models(results: RunResults) -> list[dict[str, Any]]:
    found = []
    for row in _first(results, "model"):
        accuracy = None if row.id_accuracy is None else round(row.id_accuracy, 4)
        sizes = {"train": row.n_train, "id": row.n_id}
        found.append({"name": row.model, "family": row.family, **sizes, "accuracy": accuracy})
    return found


def _methods(results: RunResults) -> list[dict[str, Any]]:
    recipes = results.provenance.get("methods", {})
    found = []
    for name in results.names("method"):
        color, dashes = method_style(name).web
        said: dict[str, Any] = {"name": name, "title": display_name(name), "papers": [], "paper": ""}
        if name in RECORDS:
            record = RECORDS[name]
            said |= {"sentence": record.summary, "needs": record.needs, "fails": record.fails}
            said |= {"papers": find_titles(record.citation), "paper": record.citation.replace("*", "")}
        said |= {"recipe": str(recipes.get(name, "")), "kind": BLOCKS[table_block(name)]}
        found.append(said | {"color": color, "dashes": dashes})
    return found


def write_benchmark_page(
    results: RunResults, path: str | Path, columns: Columns = DEFAULT_COLUMNS, **more: tuple[str, str]
) -> None:
    """Write the page of these results atomically; its table shows these columns at first.

    `more` are sections behind the leaderboard: id=(title, HTML), as examples/demo.py adds one.
    """
    overview = make_table(results, "model")
    lacking = any(entry.over < entry.full for line in overview.lines for entry in line.entries)
    parts = {
        "title": escape(overview.title),
        "sub": escape(_sub(results)),
        "reading": escape(" ".join(metric.note for metric in DEFAULT_METRICS)),
        "lesson": f" {LESSON}" if results.names("benchmark") == ["digits"] else "",
        "main": escape(MAIN.head),
        "metrics": "".join(f"<li>{escape(metric.note)}</li>" for metric in METRICS.values()),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in list_caveats(results, lacking)),
        "skipped": _skipped(results),
        "origin": definitions(results.provenance.items()),
        "data": page_json(page_data(results, columns)),
    }
    # behind the script, which draws the table before these have come
    later = "".join(
        f'<script type="application/json" id="curves-{place}">{page_json(each)}</script>\n'
        for place, each in enumerate(collect_curves(results))
        if each
    )
    write_page(path, overview.title, fill_template("page.html", parts, more), SCRIPTS, "page_wide.css", later)


def _sub(results: RunResults) -> str:
    """What was measured, in one line."""
    groups = Counter(row.group for row in _first(results, "ood"))
    kinds = ", ".join(f"{count} {group}" for group, count in groups.items())
    networks = format_count(len(results.names("model")), "network")
    methods = format_count(len(results.names("method")), "method")
    sets = f"{format_count(groups.total(), 'OOD set')} ({kinds})"
    limit = results.provenance.get("settings", {}).get("limit")
    subset = "" if limit is None else f" · only a subset was used: at most {limit} images of each set"
    return f"{networks} · {sets} · {methods} · fitted on ID images only{subset}"


def _skipped(results: RunResults) -> str:
    """What was not measured, by name, with reasons in a list that can be opened."""
    left_out = [*results.skipped, *((f"{each.method} on {each.model}", each.why) for each in results.failed)]
    if not left_out:
        return ""
    names = escape(", ".join(what for what, _ in left_out))
    reasons = "".join(f"<li>{escape(what)}: {escape(why)}</li>" for what, why in left_out)
    return f'<details class="notes"><summary>Not measured: {names}</summary><ul>{reasons}</ul></details>'
