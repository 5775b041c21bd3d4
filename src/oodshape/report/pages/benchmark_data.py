"""Results as the JSON that the page draws from: names once, then numbers, short enough to be sent by mail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from oodshape.benchmark.results import Results
from oodshape.core.errors import InputError
from oodshape.methods.describe import cited
from oodshape.methods.records import FEATURED, RECORDS
from oodshape.metrics.detection import Estimate
from oodshape.metrics.registry import MAIN, METRICS, UNITS, Metric
from oodshape.report.method_styles import BLOCKS, block, style
from oodshape.report.tables.kinds import STANDARD4
from oodshape.report.tables.paper import comparable, paper_figures
from oodshape.report.tables.table import DEFAULT_COLUMNS, Column

TABLES = ("model", "ood", "standard4")  # of the paper's, those that compare methods


def payload(results: Results, columns: Sequence[Column] = DEFAULT_COLUMNS) -> dict[str, Any]:
    """Everything that the page shows, with models, methods and OOD sets as places in their lists.

    `columns` are those that the table shows at first.
    """
    models, methods, oods = (_places(results.names(axis)) for axis in ("model", "method", "ood"))
    metrics = [metric for metric in METRICS.values() if any(metric.name in row.metrics for row in results.rows)]
    known = dict.fromkeys([*map(Column, metrics), *(column for column in columns if column.metric in metrics)])
    return {
        "models": _models(results),
        "ours": methods.get(FEATURED),
        "methods": _methods(results),
        "oods": [{"name": row.ood, "group": row.group, "n": row.n_ood} for row in _first(results, "ood").values()],
        "rows": [
            [models[row.model], methods[row.method], oods[row.ood]]
            + [number for metric in metrics for number in _numbers(row.metrics.get(metric.name))]
            for row in results.rows
        ],
        "metrics": [_column(column, metrics) for column in known],
        "main": MAIN.name,
        "shown": [column.name for column in columns if column in known] or [MAIN.name],
        "shapes": {
            f"{models[s.model]},{methods[s.method]}": [[_short(v) for v in part] for part in (s.z, s.theta)]
            for s in results.shapes
            if not s.is_identity and s.model in models and s.method in methods
        },
        "samples": _samples(results, models, methods, oods),
        "paper": _paper(results, models, methods, oods),
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


def curves(results: Results) -> list[dict[str, Any]]:
    """For each model its curves by "method,ood": four fifths of a large page, so they stand apart from the rest."""
    models, methods, oods = (_places(results.names(axis)) for axis in ("model", "method", "ood"))
    found: list[dict[str, Any]] = [{} for _ in models]
    for each in results.curves:
        if each.model in models and each.method in methods and each.ood in oods:
            found[models[each.model]][f"{methods[each.method]},{oods[each.ood]}"] = [
                *(_short(limit) for limit in (each.low, each.high)),
                *(list(counts) for counts in (each.id_counts, each.ood_counts)),
                *([round(1000 * rate) for rate in rates] for rates in (each.fpr, each.tpr)),
            ]
    return found


def _places(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _first(results: Results, column: str) -> dict[str, Any]:
    """The first row of each entry of a column."""
    found: dict[str, Any] = {}
    for row in results.rows:
        found.setdefault(getattr(row, column), row)
    return found


def _models(results: Results) -> list[dict[str, Any]]:
    return [
        {
            "name": row.model,
            "family": row.family,
            "train": row.n_train,
            "id": row.n_id,
            "accuracy": None if row.id_accuracy is None else round(row.id_accuracy, 4),
        }
        for row in _first(results, "model").values()
    ]


def _methods(results: Results) -> list[dict[str, Any]]:
    recipes = results.provenance.get("methods", {})
    found = []
    for name in results.names("method"):
        color, dashes = style(name).web
        said: dict[str, Any] = {"name": name, "sentence": "", "needs": "", "fails": "", "papers": [], "paper": ""}
        if name in RECORDS:
            record = RECORDS[name]
            said |= {"sentence": record.summary, "needs": record.needs, "fails": record.fails}
            said |= {"papers": cited(record.citation), "paper": record.citation.replace("*", "")}
        said |= {"recipe": str(recipes.get(name, "")), "kind": BLOCKS[block(name)]}
        found.append(said | {"color": color, "dashes": dashes})
    return found


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _samples(results: Results, models: Any, methods: Any, oods: Any) -> dict[str, Any]:
    picks = [
        {
            "model": models[pick.model],
            "method": methods[pick.method],
            "ood": oods[pick.ood] if pick.ood else -1,
            "images": pick.images,
            "scores": [_short(score) for score in pick.scores],
            "shares": pick.shares,
            "predicted": pick.predicted,
            "labels": pick.labels,
        }
        for pick in results.samples.picks
        if pick.model in models and pick.method in methods and (not pick.ood or pick.ood in oods)
    ]
    return {"images": results.samples.images, "picks": picks}


def _paper(results: Results, models: Any, methods: Any, oods: Any) -> dict[str, Any] | None:
    """The paper's figures in percent, "table,model,method(,ood)" -> one per metric; None where it has none of these."""
    try:
        id_set = comparable(results)
    except InputError:
        return None
    found = {}
    metrics: list[str] = []
    for (table, of, model, ood), figures in paper_figures().items():
        end = f",{oods[ood]}" if ood in oods else ""
        if table not in TABLES or of != id_set or model not in models or (table == "ood") != bool(end):
            continue
        for method, printed in figures.items():
            if method in methods:
                metrics = list(printed)
                found[f"{table},{models[model]},{methods[method]}{end}"] = list(printed.values())
    four = [oods[name] for name in STANDARD4 if name in oods]
    whole = four if len(four) == len(STANDARD4) else []
    return {"metrics": metrics, "figures": found, "standard4": whole} if found else None
