"""run: a benchmark -> Results. Each network sees each image once, and all methods share what it said."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from oodshape.benchmark.bench_model import BenchModel, BenchOptions, Images, TensorSet
from oodshape.benchmark.comparisons import Average, find_ties
from oodshape.benchmark.kept_scores import KeptScores
from oodshape.benchmark.plan import Plan, PlannedNetwork
from oodshape.benchmark.repeat import run_recipe
from oodshape.benchmark.results import Failed, Row, RunResults, ScoreCurve, collect_provenance
from oodshape.benchmark.spec import AUTHORS, Benchmark
from oodshape.core.errors import InputError
from oodshape.core.files import compute_fingerprint
from oodshape.core.progress import progress_bar, track_named
from oodshape.core.user_code import locate_failure
from oodshape.core.values import reseed
from oodshape.features.features import Features, check_labels, warn_if_by_chance
from oodshape.images.sources.image_set import Subset
from oodshape.methods.detector import Detector
from oodshape.methods.fit_all import collect_statistics
from oodshape.metrics.detection import Estimate, roc_points
from oodshape.metrics.registry import measure


def run_benchmark(benchmark: Benchmark, options: BenchOptions = BenchOptions()) -> RunResults:
    """Run every method on every network and OOD set of the benchmark."""
    return run_plan(Plan.of(benchmark, options))[0]


def run_plan(prepared: Plan) -> tuple[RunResults, KeptScores]:
    """Run a plan; return the results and the scores that they come from.

    With several seeds, metrics are means over them; all else is of the first.
    """
    results, kept = _run_once(prepared)
    more = [_run_once(again)[0].rows for again in _with_further_seeds(prepared)]
    if more:  # comparisons and intervals would be those of the first seed, whose scores are kept
        rows = _merge_seeds(results.rows, more)
        several = {row.method for row in rows if row.seeds > 1}
        means = tuple(each for each in results.averages_of if each.method not in several)
        results = replace(results, rows=rows, ties=(), averages_of=means)
    return results, kept


def _run_once(prepared: Plan) -> tuple[RunResults, KeptScores]:
    benchmark, options, methods, sets = prepared.benchmark, prepared.options, prepared.methods, prepared.sets
    rows: list[Row] = []
    curves: list[ScoreCurve] = []
    means: list[Average] = []
    failed: list[Failed] = []
    skipped = list(prepared.skipped)
    weights: dict[str, str] = {}
    data: dict[str, str] = {}
    overlaps: dict[str, None] = {}
    kept = KeptScores()
    for title, _ in _track_networks(prepared):
        try:
            model = prepared.model(title)
        except InputError as error:  # a library that is missing, a file that cannot be downloaded
            skipped.append((title, str(error).removeprefix(f"{title}: ")))
            continue
        _extract(model, proxy=any(method.wants_proxy for method in methods.values()))
        if prepared.labels is not None:
            model.features["test"] = model.features["test"].with_labels(prepared.labels)
        for name, names in (("train", getattr(sets["train"], "classes", ())), ("test", ())):
            check_labels(model.features[name].labels, model.features[name].head.classes, names)
        overlaps |= dict.fromkeys(_find_overlaps(model.features))
        test = model.features["test"]
        if not warn_if_by_chance(test.accuracy, len(test), test.head.classes) and (moved := test.moved_class()):
            warnings.warn(
                f"the network gives most images with label {moved[0]} the class {moved[1]}: the accuracy is wrong if "
                "the labels are not in the order of its classes",
                stacklevel=2,
            )
        weights[title] = model.fingerprint
        data |= {name: _fingerprint(images, model.features[name]) for name, images in sets.items()}
        with progress_bar(f"{title}: statistics", None, options.progress):
            for fitted in {"train", *prepared.fit_on.values()}:
                here = {name: each for name, each in methods.items() if prepared.fit_on.get(name, "train") == fitted}
                with suppress(Exception):  # of a method that then fails by itself, below
                    collect_statistics(here, model.features[fitted])
        for name, method in track_named(methods.items(), title, options.progress, "methods"):
            try:
                start = time.perf_counter()
                images = model.features[prepared.fit_on.get(name, "train")]
                detector = model.learn(method).fit(images, proxy=model.proxy)
                fitting = time.perf_counter() - start
                made = _measure_method(benchmark, model, name, detector, fitting, kept)
            except Exception as error:  # one method does not end a run: a bug in a user's own, or too few images
                why = str(error) if isinstance(error, InputError) else locate_failure(error)
                failed.append(Failed(model=title, method=name, why=why))
                continue
            rows += made[0]
            curves += made[1]
            means.append(made[2])
    if not rows and failed:
        raise InputError(f"no method could be run; {failed[0].method} on {failed[0].model}: {failed[0].why}")
    if not rows:
        raise InputError(f"no network could be opened; {skipped[-1][0]}: {skipped[-1][1]}")
    settings: dict[str, Any] = {"settings": benchmark.settings}
    settings |= {name: getattr(options, name) for name in ("limit", "seed", "seeds", "resamples")}
    noted = {
        "data": data,
        "id_set": benchmark.of_paper if benchmark.settings == AUTHORS else "",
        "runs": prepared.runs,
        "spectrum": benchmark.spectrum,
        "shifted": [look.name for look in benchmark.pooled],
        "lists": "as they are, not held to the published ones" if options.any_list else "",
    }
    settings |= {name: value for name, value in noted.items() if value}
    said = collect_provenance(benchmark_hash=benchmark.hash, weights=weights, methods=methods, settings=settings)
    said |= {"run": run_recipe(benchmark, options, prepared.in_memory), "overlaps": list(overlaps)}
    with progress_bar("ties", None, options.progress):
        equals = list(find_ties(kept))
    results = RunResults(tuple(rows), said, tuple(skipped), tuple(curves), tuple(means), tuple(equals), tuple(failed))
    return results, kept


def _find_overlaps(features: Mapping[str, Features]) -> Iterator[str]:
    """Name and warn of sets that share more than 1 % of their images: figures on them are too good, or too bad."""
    points = {name: _project(each) for name, each in features.items()}
    for (one, others), (name, rows) in combinations(points.items(), 2):
        if "train" in (one, name) or "test" in (one, name):
            # a tolerance: equal images in other batches have other last bits
            nearest, _ = cKDTree(np.unique(others, axis=0)).query(rows, p=np.inf, distance_upper_bound=1e-4)
            shared = int(np.isfinite(nearest).sum())
            if shared > 0.01 * len(rows):
                found = f"{shared:,} of the {len(rows):,} images of {name} are in {one} too"
                warnings.warn(f"{found}: training, ID and OOD images must differ", stacklevel=2)
                yield found


def _project(features: Features) -> np.ndarray:
    """[N, 5]: of each image the log length and four projections of its features, unlike those of others."""
    directions = torch.randn(features.width, 4, generator=torch.Generator().manual_seed(0))
    points: list[Tensor] = []
    for _, raw in features.chunks():
        z = raw.cpu().float()
        length = z.norm(dim=1, keepdim=True)
        points.append(torch.hstack([length.log(), z @ directions / length]))
    found = torch.cat(points)
    return found[found.isfinite().all(dim=1)].numpy()


def _fingerprint(images: Images, features: Features) -> str:
    """What identifies the images of a set: of tensors their content in any order, of features the numbers."""
    if isinstance(images, TensorSet):
        return compute_fingerprint(np.sort(features.identities))
    if isinstance(images, Features):
        return compute_fingerprint(*(part.float().cpu().numpy() for _, part in images.chunks()))
    return images.fingerprint


def extract_networks(benchmark: Benchmark, options: BenchOptions = BenchOptions()) -> Iterator[BenchModel]:
    """Yield the networks of the benchmark, each with the features of every available set and of the proxy."""
    prepared = Plan.of(benchmark, options)
    for title, _ in _track_networks(prepared):
        model = prepared.model(title)
        _extract(model, proxy=True)
        yield model


def _track_networks(prepared: Plan) -> Iterator[tuple[str, PlannedNetwork]]:
    """The networks by title, behind a bar where there are several."""
    show = prepared.options.progress if len(prepared.networks) > 1 else False
    return track_named(prepared.networks.items(), "networks", show, "networks")


def _extract(model: BenchModel, *, proxy: bool) -> None:
    """Extract the features of every set, and those of the proxy where it is wanted."""
    for name, _ in track_named(model.sets.items(), model.spec.title, model.options.progress, "sets"):
        model.extract(name, proxy=proxy and name == "train")


def _measure_method(
    benchmark: Benchmark, model: BenchModel, name: str, detector: Detector, fitting: float, kept: KeptScores
) -> tuple[list[Row], list[ScoreCurve], Average]:
    """The rows, the curves and the average of one fitted method on one network."""
    counted = ["test", *(look.name for look in benchmark.pooled)]
    sets = {ood.name: ood for ood in benchmark.ood if ood.name in model.features}
    options = model.options
    parts = {each: model.score(detector, each) for each in (*counted, *sets)}
    inside = torch.cat([parts[each][0] for each in counted])
    outside = {ood: parts[ood][0] for ood in sets}
    correct, accuracy = _find_correct([model.features[each] for each in counted])
    measured, means = measure(
        inside,
        outside,
        correct=correct,
        fit_seconds=fitting,
        image_seconds={ood: _mean_seconds([parts[each] for each in (*counted, ood)]) for ood in sets},
        resamples=options.resamples,
        seed=options.seed,
    )
    title = model.spec.title
    rows = [
        Row(
            benchmark=benchmark.name,
            model=title,
            family=model.family,
            method=name,
            ood=ood,
            group=sets[ood].group,
            metrics=metrics,
            n_train=detector.n_train,
            n_id=len(inside),
            n_ood=len(outside[ood]),
            id_accuracy=accuracy,
            limit=options.limit or 0,
        )
        for ood, metrics in measured.items()
    ]
    curves = []
    for ood, part in outside.items():
        fpr, tpr = roc_points(inside, part)
        curves.append(ScoreCurve(model=title, method=name, ood=ood, fpr=fpr, tpr=tpr))
    kept.add(title, name, inside.cpu(), {ood: part.cpu() for ood, part in outside.items()})
    return rows, curves, Average(model=title, method=name, metrics=means)


def _find_correct(parts: Sequence[Features]) -> tuple[Any, float | None]:
    """[n] whether the class of each image is predicted correctly, None unless all have labels; and the accuracy.

    The accuracy is that of the images with labels; None where none has one.
    """
    given = [torch.full((len(part),), -1) if part.labels is None else part.labels for part in parts]
    labels, predictions = torch.cat(given), torch.cat([part.predictions.cpu() for part in parts])
    right, known = predictions == labels, int((labels >= 0).sum())
    return right.numpy() if known == len(labels) else None, int(right.sum()) / known if known else None


def _mean_seconds(parts: Sequence[tuple[Tensor, float | None]]) -> float | None:
    """The mean time to score an image; None where one of the times is not known."""
    times = [seconds for _, seconds in parts if seconds is not None]
    return sum(times) / sum(len(scores) for scores, _ in parts) if len(times) == len(parts) else None


def _with_further_seeds(prepared: Plan) -> Iterator[Plan]:
    """Repeat the run with each further seed, for the methods that depend on it: all methods if images are sampled."""
    options = prepared.options
    drawn = any(isinstance(images, Subset) for images in prepared.sets.values())
    methods = [
        name for name, method in prepared.methods.items() if drawn or method.wants_proxy or reseed(method, 1) != method
    ]
    for step in range(1, options.seeds if methods else 1):
        again = replace(options, seed=options.seed + step, seeds=1, methods=tuple(methods))
        yield Plan.of(prepared.benchmark, again)


def _merge_seeds(rows: Sequence[Row], more: Sequence[Sequence[Row]]) -> tuple[Row, ...]:
    """The rows with means over all seeds and the standard deviation; those that no seed changes stay as they are."""
    others: dict[tuple[str, str, str], list[Row]] = {}
    for row in (row for part in more for row in part):
        others.setdefault((row.model, row.method, row.ood), []).append(row)
    return tuple(_mean_row([row, *others.get((row.model, row.method, row.ood), [])]) for row in rows)


def _mean_row(rows: Sequence[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    names = [name for name in rows[0].metrics if all(name in row.metrics for row in rows)]
    estimates = {name: [row.metrics[name] for row in rows] for name in names}
    means = {
        name: Estimate(*(mean(getattr(each, part) for each in some) for part in ("value", "low", "high")))
        for name, some in estimates.items()
    }
    spreads = {name: stdev(each.value for each in some) for name, some in estimates.items()}
    return replace(rows[0], metrics=means, spreads=spreads, seeds=len(rows))
