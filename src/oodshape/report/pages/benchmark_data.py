"""Results as the JSON that the page draws from: names once, then numbers, short enough to be sent by mail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oodshape.benchmark.results import Results
from oodshape.core.errors import InputError
from oodshape.methods.describe import cited
from oodshape.methods.records import FEATURED, RECORDS
from oodshape.report.method_styles import BLOCKS, block, style
from oodshape.report.tables.kinds import STANDARD4
from oodshape.report.tables.measures import MAIN, MEASURES, SHOWN
from oodshape.report.tables.paper import comparable, paper_figures

TABLES = ("model", "ood", "standard4")  # of the paper's, those that compare methods


def payload(results: Results) -> dict[str, Any]:
    """Everything that the page shows, with models, methods and OOD sets as places in their lists."""
    models, methods, oods = (_places(results.names(axis)) for axis in ("model", "method", "ood"))
    return {
        "positive": results.provenance.get("positive", "id"),
        "models": _models(results),
        "ours": methods.get(FEATURED),
        "methods": _methods(results),
        "oods": [{"name": row.ood, "group": row.group, "n": row.n_ood} for row in _first(results, "ood").values()],
        "rows": [
            [models[row.model], methods[row.method], oods[row.ood]]
            + [
                round(getattr(row, measure.name + end), 6 if end else 12)  # means are printed as in every other table
                for measure in MEASURES
                for end in ("", "_low", "_high")
            ]
            for row in results.rows
        ],
        "metrics": [{"name": each.name, "title": each.title, "best": each.best} for each in MEASURES],
        "main": MAIN,
        "shown": sorted((each.name for each in SHOWN), key=lambda name: name != MAIN),
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
                shown.name: [round(getattr(each, f"{shown.name}{end}"), 6) for end in ("_low", "_high")]
                for shown in SHOWN
            }
            for each in results.averages_of
            if each.model in models and each.method in methods
        },
    }


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
