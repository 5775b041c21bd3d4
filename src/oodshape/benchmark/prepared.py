"""What a run needs before anything is computed: the networks with weights, the sets that are here, the methods."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import nn

from oodshape.benchmark.spec import Benchmark, ModelSpec
from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.images.by_name import Missing, open_source
from oodshape.images.image_set import ImageSet, limited
from oodshape.images.preprocessing import Preprocessing
from oodshape.methods.detector import Method
from oodshape.methods.table import METHODS, named, paper_methods
from oodshape.metrics.separation import Positive
from oodshape.networks import zoo
from oodshape.networks.classifier import Classifier
from oodshape.networks.device import Precision
from oodshape.networks.opening import built
from oodshape.networks.weights import load_weights


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
    device: str | None = None  # None: where a network is made
    precision: Precision = "float32"
    head: str | None = None  # the layer that gives the logits, in every network; None: as each says, or found
    batch_size: int = 64
    workers: int | None = None  # threads that decode

    def extraction(self) -> dict[str, Any]:
        """What it says about how features are extracted."""
        chosen = ("cache", "batch_size", "workers", "progress")
        return {name: getattr(self, name) for name in chosen}


@dataclass
class Model:
    """A network of the benchmark, and the features of every set once they are extracted."""

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


@dataclass
class Prepared:
    """A benchmark with what is here of it; every network is opened once, whoever asks first."""

    benchmark: Benchmark
    options: Options
    methods: dict[str, Method]
    networks: dict[str, tuple[ModelSpec, Path | None]]  # by title, each with its file of weights
    sets: dict[str, ImageSet]
    skipped: list[tuple[str, str]]  # (network or OOD set, why)
    _opened: dict[str, Model] = field(default_factory=dict)

    @classmethod
    def of(cls, benchmark: Benchmark, options: Options) -> Prepared:
        """Look at what is here; nothing is opened yet."""
        methods = methods_of(benchmark, options.methods)
        networks, gone = _networks(benchmark, options)
        sets, skipped = _sets(benchmark, options)
        titled = {spec.title: (spec, file) for spec, file in networks}
        return cls(benchmark, options, methods, titled, sets, [*gone, *skipped])

    def model(self, title: str) -> Model:
        """The network of this title, opened; it is handed over, so that not all of them stay in memory."""
        return self._opened.pop(title, None) or self._open(title)

    def identity(self) -> list[str]:
        """What the figures of a run depend on beside its settings: the images, the weights, the libraries."""
        libraries = [f"{name} {version(name)}" for name in ("torch", "numpy", "numba")]
        images = [part.fingerprint for part in self.sets.values()]
        models = [self._weights(title) for title in self.networks]
        return [*images, *map(str, self.skipped), *models, *map(repr, self.methods.values()), *libraries]

    def _weights(self, title: str) -> str:
        """The file of a network of the zoo by its bytes; any other network is opened, and kept for the run."""
        spec, file = self.networks[title]
        if file is not None and ":" not in spec.name:
            digest = hashlib.sha256()
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
            return digest.hexdigest()
        self._opened[title] = self._open(title)
        return self._opened[title].classifier.fingerprint

    def _open(self, title: str) -> Model:
        spec, weights = self.networks[title]
        if ":" in spec.name:
            net, own = built(spec.name)
            if own is None:
                raise InputError(f"{spec.name}() must return (network, Preprocessing), got {type(net).__name__}")
            if weights is not None:
                load_weights(net, weights)
            return Model(spec, spec.family or "ConvNet", self._classifier(net, spec), own, dict(self.sets))
        entry = zoo.model_entry(spec.name)
        way = spec.preprocessing or self.benchmark.preprocessing
        preprocessing = entry.paper if way == "paper" else entry.native
        classifier = self._classifier(zoo.build(spec.name, weights), spec)
        return Model(spec, spec.family or entry.family, classifier, preprocessing, dict(self.sets))

    def _classifier(self, net: nn.Module, spec: ModelSpec) -> Classifier:
        head = self.options.head or spec.head or None
        try:
            classifier = Classifier(net, head, precision=self.options.precision)
        except InputError as error:
            raise InputError(f"{spec.title}: {error}") from None
        return classifier if self.options.device is None else classifier.to(self.options.device)


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
