"""run: a benchmark -> Results. Each network sees each image once, and all methods share what it said."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from oodshape.benchmark.curves import Curve, Theta
from oodshape.benchmark.hardest_images import Gallery
from oodshape.benchmark.perturbed_scores import perturbed_scores
from oodshape.benchmark.results import Results, Row, flat, provenance
from oodshape.benchmark.spec import Benchmark, ModelSpec
from oodshape.core.errors import InputError
from oodshape.core.progress import tracked
from oodshape.features.features import Features
from oodshape.features.panel import panel_features
from oodshape.images.by_name import Missing, open_source
from oodshape.images.image_set import ImageSet, limited
from oodshape.images.preprocessing import Preprocessing
from oodshape.methods.detector import Detector, Method, collect
from oodshape.methods.table import METHODS, named, paper_methods
from oodshape.metrics.separation import Positive, summary
from oodshape.networks import zoo
from oodshape.networks.classifier import Classifier
from oodshape.networks.opening import built


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run may be told: which methods, how many images, where caches, data and weights lie."""

    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    limit: int | None = None
    seed: int = 0
    resamples: int = 200
    cache: Path | None = None
    data: Path | None = None
    weights: Path | None = None
    positive: Positive = "id"  # which side FPR95 takes as positive
    samples: int = 6  # how many of the most wrong images of each set are kept as thumbnails
    progress: bool | None = None


@dataclass
class _Model:
    """A network of the benchmark with the features of every set."""

    spec: ModelSpec
    family: str
    classifier: Classifier
    preprocessing: Preprocessing
    sets: dict[str, ImageSet]
    features: dict[str, Features] = field(default_factory=dict)
    panel: list[Features] = field(default_factory=list)  # only where a method wants one


def methods_of(benchmark: Benchmark, names: tuple[str, ...] = ()) -> dict[str, Method]:
    """The methods of a run, with the hyperparameters that the benchmark asks for."""
    table = METHODS if benchmark.settings == "general" else paper_methods(benchmark.settings)
    for name in names:
        named(name, table)
    return {name: method for name, method in table.items() if not names or name in names}


def identity(benchmark: Benchmark, options: Options) -> list[str]:
    """What the figures of a run depend on beside its settings: the images, the weights, the libraries."""
    methods = methods_of(benchmark, options.methods)
    networks, gone = _networks(benchmark, options)
    sets, skipped = _sets(benchmark, options)
    models = [_opened(*network, benchmark, sets).classifier.fingerprint for network in networks]
    libraries = [f"{name} {version(name)}" for name in ("torch", "numpy", "numba")]
    images = [part.fingerprint for part in sets.values()]
    return [*images, *map(str, [*gone, *skipped]), *models, *map(repr, methods.values()), *libraries]


def run(benchmark: Benchmark, options: Options = Options()) -> Results:
    """The results of every method on every network and OOD set of the benchmark."""
    methods = methods_of(benchmark, options.methods)
    networks, gone = _networks(benchmark, options)
    sets, skipped = _sets(benchmark, options)
    rows: list[Row] = []
    curves: list[Curve] = []
    shapes: list[Theta] = []
    weights: dict[str, str] = {}
    gallery = Gallery(sets, options.samples)
    for spec, file in networks:
        model = _extracted(spec, file, benchmark, sets, options, panel=wants_panel(methods))
        weights[spec.title] = model.classifier.fingerprint
        train = model.features["train"]
        low, high = train.stats.quantile(0.0005), train.stats.quantile(0.9995)
        collect(methods, train)
        for name, method in tracked(methods.items(), spec.title, options.progress, "methods"):
            start = time.perf_counter()
            detector = method.fit(train, panel=model.panel)
            fitting = time.perf_counter() - start
            rows_of_method, curves_of_method = _compared(benchmark, model, name, detector, fitting, options, gallery)
            rows += rows_of_method
            curves += curves_of_method
            theta = Theta.of(spec.title, name, detector.shape, low, high)
            shapes += [theta] if theta is not None else []
    settings: dict[str, Any] = {
        "settings": benchmark.settings,
        "limit": options.limit,
        "seed": options.seed,
        "resamples": options.resamples,
        "data": {name: images.fingerprint for name, images in sets.items()},
    }
    said = provenance(
        benchmark_hash=benchmark.hash, weights=weights, methods=methods, settings=settings, positive=options.positive
    )
    return Results(tuple(rows), said, (*gone, *skipped), tuple(curves), tuple(shapes), gallery.samples(rows))


def _networks(
    benchmark: Benchmark, options: Options
) -> tuple[list[tuple[ModelSpec, Path | None]], list[tuple[str, str]]]:
    """The models that can run, each with its file of weights, and those without one, with the reason."""
    found: list[tuple[ModelSpec, Path | None]] = []
    skipped: list[tuple[str, str]] = []
    for spec in benchmark.chosen(list(options.models)):
        file = benchmark.base / Path(spec.weights).expanduser() if spec.weights else None
        if file is None and ":" not in spec.name:
            file = zoo.find_weights(spec.name, options.weights)
            if file is None and zoo.model_entry(spec.name).id_set != "digits":
                skipped.append((spec.title, zoo.weights_needed(spec.name, options.weights)))
                continue
        found.append((spec, file))
    if not found:
        raise InputError(f"no network of {benchmark.name} has weights here; {skipped[0][0]} {skipped[0][1]}")
    return found, skipped


def wants_panel(methods: Mapping[str, Method]) -> bool:
    """Whether any of the methods chooses by a panel."""
    return any(method.wants_panel for method in methods.values())


def extracted(benchmark: Benchmark, options: Options = Options()) -> Iterator[_Model]:
    """The networks of the benchmark one by one, each with the features of every set here and the panel's."""
    networks, _ = _networks(benchmark, options)
    sets, _ = _sets(benchmark, options)
    for spec, file in networks:
        yield _extracted(spec, file, benchmark, sets, options, panel=True)


def _extracted(
    spec: ModelSpec,
    file: Path | None,
    benchmark: Benchmark,
    sets: Mapping[str, ImageSet],
    options: Options,
    *,
    panel: bool,
) -> _Model:
    model = _opened(spec, file, benchmark, sets)
    for name, images in tracked(sets.items(), spec.title, options.progress, "sets"):
        model.features[name] = Features.extract(
            model.classifier, images, model.preprocessing, cache=options.cache, progress=options.progress
        )
    if panel:
        model.panel = panel_features(
            model.classifier,
            sets["train"],
            model.preprocessing,
            cache=options.cache,
            seed=options.seed,
            progress=options.progress,
        )
    return model


def _sets(benchmark: Benchmark, options: Options) -> tuple[dict[str, ImageSet], list[tuple[str, str]]]:
    """Every set that is on this machine, by its role or name, and the OOD sets that are not, with the reason."""
    sets: dict[str, ImageSet] = {}
    skipped: list[tuple[str, str]] = []
    for name, source in (("train", benchmark.train), ("test", benchmark.test)):
        sets[name] = limited(open_source(source, benchmark.base, options.data), options.limit, options.seed)
    for ood in benchmark.ood:
        try:
            images = open_source(ood.images, benchmark.base, options.data)
        except Missing as error:
            skipped.append((ood.name, str(error).removeprefix(f"{ood.name}: ")))
            continue
        sets[ood.name] = limited(images, options.limit, options.seed)
    if len(sets) == 2:
        raise InputError(f"none of the OOD sets of {benchmark.name} is here; {skipped[0][1]}")
    return sets, skipped


def _opened(spec: ModelSpec, weights: Path | None, benchmark: Benchmark, sets: Mapping[str, ImageSet]) -> _Model:
    if ":" in spec.name:
        net, own = built(spec.name)
        if own is None:
            raise InputError(f"{spec.name}() must return (network, Preprocessing), got {type(net).__name__}")
        if weights is not None:
            from oodshape.networks.weights import load_weights

            load_weights(net, weights)
        return _Model(spec, spec.family or "ConvNet", Classifier(net), own, dict(sets))
    entry = zoo.model_entry(spec.name)
    way = spec.preprocessing or benchmark.preprocessing
    preprocessing = entry.paper if way == "paper" else entry.native
    return _Model(
        spec, spec.family or entry.family, Classifier(zoo.build(spec.name, weights)), preprocessing, dict(sets)
    )


def _compared(
    benchmark: Benchmark,
    model: _Model,
    name: str,
    detector: Detector,
    fitting: float,
    options: Options,
    gallery: Gallery,
) -> tuple[list[Row], list[Curve]]:
    """The rows and curves of one fitted method on one network."""
    inside, seconds = _scored(detector, model, "test", options)
    rows, curves, scores = [], [], {"test": inside}
    train, test = model.features["train"], model.features["test"]
    for ood in benchmark.ood:
        if ood.name not in model.features:
            continue
        outside, more = _scored(detector, model, ood.name, options)
        scores[ood.name] = outside
        measured = summary(inside, outside, resamples=options.resamples, seed=options.seed, positive=options.positive)
        rows.append(
            Row(
                benchmark=benchmark.name,
                model=model.spec.title,
                family=model.family,
                method=name,
                ood=ood.name,
                group=ood.group,
                **flat(measured),
                n_train=len(train),
                n_id=len(inside),
                n_ood=len(outside),
                id_accuracy=test.accuracy,
                seconds=fitting + seconds + more,
                limit=options.limit or 0,
                positive=options.positive,
            )
        )
        curves.append(Curve.of(model.spec.title, name, ood.name, inside, outside))
    gallery.add(model.spec.title, name, scores, model.features)
    return rows, curves


def _scored(detector: Detector, model: _Model, name: str, options: Options) -> tuple[Tensor, float]:
    """The scores of a set, and the seconds they took; a perturbation goes back to the images."""
    start = time.perf_counter()
    if detector.method.perturb.eps == 0:
        return detector.score(model.features[name]), time.perf_counter() - start
    scores = perturbed_scores(
        detector,
        model.classifier,
        model.sets[name],
        model.preprocessing,
        cache=options.cache,
        progress=options.progress,
    )
    return scores, time.perf_counter() - start
