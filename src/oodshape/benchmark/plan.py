"""What a run needs before anything is computed: the networks with weights, the sets that are here, the methods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import nn

from oodshape.benchmark import openood_protocol as openood
from oodshape.benchmark.spec import AUTHORS, UNCROPPED, Benchmark, ModelSpec
from oodshape.core.errors import InputError, check_trust
from oodshape.core.options import CacheOptions, ModelOptions, RunOptions, SubsetOptions, make_options
from oodshape.core.values import reseeded
from oodshape.features.features import Features
from oodshape.images.datasets.catalog import Missing, open_source
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import ImageSet, limited
from oodshape.methods.detector import Method
from oodshape.methods.registry import METHODS, authors_methods, find_record, make_method, paper_methods
from oodshape.networks import zoo
from oodshape.networks.classifier import Classifier
from oodshape.networks.loading import built
from oodshape.networks.weights import load_weights


@dataclass(frozen=True, kw_only=True)
class Options(ModelOptions, SubsetOptions, CacheOptions, RunOptions):
    """Options of a benchmark run; `weights` is the folder that holds the weights of its networks."""

    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seed: int = 0
    seeds: int = 1  # how many runs, from `seed` on, where anything is random
    resamples: int = 200
    keep_scores: bool | None = None  # write the scores of every image with the results; None: where they are few
    data: Path | None = None
    samples: int = 6  # how many of the most wrong images of each set are kept as thumbnails
    head: str | None = None  # the layer that gives the logits, in every network; None: as each says, or found
    tuned: bool = False  # whether settings are chosen on OOD validation images
    any_list: bool = False  # whether lists of images need not be the published ones

    @property
    def run(self) -> RunOptions:
        """How networks run."""
        return make_options(RunOptions, vars(self))


@dataclass
class Model:
    """A network of the benchmark, and the features of every set once they are extracted."""

    spec: ModelSpec
    family: str
    classifier: Classifier
    preprocessing: Preprocessing
    sets: dict[str, ImageSet]
    features: dict[str, Features] = field(default_factory=dict)
    proxy: list[Features] = field(default_factory=list)  # only where a method wants one
    uncropped: frozenset[str] = frozenset()  # the sets whose images have their final size

    def prepares(self, name: str) -> Preprocessing:
        """How the images of a set are prepared."""
        return replace(self.preprocessing, resize=None, crop=None) if name in self.uncropped else self.preprocessing


def methods_of(benchmark: Benchmark, names: tuple[str, ...] = ()) -> dict[str, Method]:
    """The methods of a run, with the hyperparameters that the benchmark asks for."""
    if benchmark.settings == openood.NAME:
        table = openood.Protocol.of(benchmark, tuned=False).methods
    else:
        table = with_settings(benchmark.settings, benchmark.of_paper, benchmark.name)
    if not names:
        return table
    chosen = {record.id: table.get(record.id) or make_method(record) for record in map(find_record, names)}
    return {name: chosen.pop(name) for name in table if name in chosen} | chosen


def with_settings(settings: str, id_set: str, where: str) -> dict[str, Method]:
    """The methods with general settings, with the paper's for an ID set, or as its published code has them."""
    if settings != AUTHORS:
        return dict(METHODS) if settings == "general" else paper_methods(settings)
    if not id_set:
        raise InputError(
            f"the settings of the authors' code are of an ID set, and {where} does not say which; "
            'put id_set = "imagenet", "cifar10" or "cifar100" into its file'
        )
    return authors_methods(id_set)


@dataclass
class Prepared:
    """A benchmark with what is here of it."""

    benchmark: Benchmark
    options: Options
    methods: dict[str, Method]
    networks: dict[str, tuple[ModelSpec, Path | None]]  # by title, each with its file of weights
    sets: dict[str, ImageSet]
    skipped: list[tuple[str, str]]  # (network or OOD set, why)
    protocol: openood.Protocol
    runs: dict[str, str] = field(default_factory=dict)  # the networks of which a title is one training run of several

    @classmethod
    def of(cls, benchmark: Benchmark, options: Options) -> Prepared:
        """Look at what is here; nothing is opened yet."""
        methods = {name: reseeded(each, options.seed) for name, each in methods_of(benchmark, options.methods).items()}
        protocol = openood.Protocol.of(benchmark, tuned=options.tuned)
        for spec in benchmark.chosen(list(options.models)):
            if ":" in spec.name:
                check_trust(f"the benchmark {benchmark.name!r} names code to run: {spec.name!r}", options.trust_code)
        specs = {spec: _training_runs(spec, options.weights) for spec in benchmark.chosen(list(options.models))}
        runs = {run.title: spec.title for spec, found in specs.items() for run in found if run is not spec}
        networks, gone = _networks(benchmark, options, [run for found in specs.values() for run in found])
        sets, skipped = _sets(benchmark, options, protocol, methods)
        titled = {spec.title: (spec, file) for spec, file in networks}
        return cls(benchmark, options, methods, titled, sets, [*gone, *skipped], protocol, runs)

    def model(self, title: str) -> Model:
        """Open the network of this title."""
        spec, weights = self.networks[title]
        if ":" in spec.name:
            net, own = built(spec.name)
            if own is None:
                raise InputError(f"{spec.name}() must return (network, Preprocessing), got {type(net).__name__}")
            if weights is not None:
                load_weights(net, weights)
            return self._model(spec, spec.family or "ConvNet", net, own)
        entry = zoo.model_entry(spec.name)
        way = spec.preprocessing or self.benchmark.preprocessing
        preprocessing = entry.paper if way == "paper" else entry.native
        return self._model(spec, spec.family or entry.family, zoo.build(spec.name, weights), preprocessing)

    def _model(self, spec: ModelSpec, family: str, net: nn.Module, preprocessing: Preprocessing) -> Model:
        whole = frozenset(look.name for look in self.benchmark.pooled if look.preprocessing == UNCROPPED)
        return Model(spec, family, self._classifier(net, spec), preprocessing, dict(self.sets), uncropped=whole)

    def _classifier(self, net: nn.Module, spec: ModelSpec) -> Classifier:
        head = self.options.head or spec.head or None
        try:
            classifier = Classifier(net, head, precision=self.options.precision or "float32")
        except InputError as error:
            raise InputError(f"{spec.title}: {error}") from None
        return classifier if self.options.device is None else classifier.to(self.options.device)


def _networks(
    benchmark: Benchmark, options: Options, specs: list[ModelSpec]
) -> tuple[list[tuple[ModelSpec, Path | None]], list[tuple[str, str]]]:
    """The models that can run, each with its file of weights, and those without one, with the reason."""
    found: list[tuple[ModelSpec, Path | None]] = []
    skipped: list[tuple[str, str]] = []
    for spec in specs:
        file = benchmark.base / Path(spec.weights).expanduser() if spec.weights else None
        if file is None and ":" not in spec.name:
            file = zoo.find_weights(spec.name, options.weights)
            if file is None and zoo.model_entry(spec.name).id_set != "digits":
                more = f", or name a folder that holds {spec.checkpoints}" if spec.checkpoints else ""
                skipped.append((spec.title, zoo.weights_needed(spec.name, options.weights) + more))
                continue
        found.append((spec, file))
    if not found:
        raise InputError(f"no network of {benchmark.name} has weights here; {skipped[0][0]} {skipped[0][1]}")
    return found, skipped


def _training_runs(spec: ModelSpec, folder: Path | None) -> list[ModelSpec]:
    """The network itself, or its training runs below a folder of weights: there, in `results`, or in the run's own."""
    if not spec.checkpoints or folder is None:
        return [spec]
    run, _, inside = spec.checkpoints.partition("/")
    for place, pattern in ((folder, spec.checkpoints), (folder / "results", spec.checkpoints), (folder, inside)):
        files = sorted(place.glob(pattern))
        if files and (pattern != inside or folder.resolve().name == run):
            return [
                replace(spec, label=f"{spec.title} {file.parent.name}", weights=str(file.resolve())) for file in files
            ]
    return [spec]


def _sets(
    benchmark: Benchmark, options: Options, protocol: openood.Protocol, methods: Iterable[str]
) -> tuple[dict[str, ImageSet], list[tuple[str, str]]]:
    """Every set that is on this machine, by its role or name, and the OOD sets that are not, with the reason."""
    inside = (("train", benchmark.train), ("test", benchmark.test), *protocol.sets(benchmark, methods))
    sets = {name: _opened(source, benchmark, options) for name, source in inside}
    skipped: list[tuple[str, str]] = []
    for ood in benchmark.ood:
        try:
            sets[ood.name] = _opened(ood.images, benchmark, options)
        except Missing as error:
            skipped.append((ood.name, str(error).removeprefix(f"{ood.name}: ")))
    if len(sets) == len(inside):
        raise InputError(f"none of the OOD sets of {benchmark.name} is here; {skipped[0][1]}")
    return sets, skipped


def _opened(source: str, benchmark: Benchmark, options: Options) -> ImageSet:
    images = open_source(source, benchmark.base, options.data, any_list=options.any_list)
    return limited(images, options.limit, options.seed)
