"""The plan of a run: networks with weights, available image sets, and methods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from oodshape.benchmark.bench_model import BenchModel, BenchOptions, Images
from oodshape.benchmark.spec import AUTHORS, ID_SETS, UNCROPPED, Benchmark, ModelSpec
from oodshape.core.errors import InputError, check_trust
from oodshape.core.options import HeadOptions, ModelOptions, make_options
from oodshape.core.values import reseed
from oodshape.images.datasets.catalog import MissingDataset, open_dataset
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import ImageSet, limit_images
from oodshape.methods import registry
from oodshape.methods.detector import Method
from oodshape.networks import zoo
from oodshape.networks.classifier import guess_family
from oodshape.networks.head import Head
from oodshape.networks.hugging_face import PROMPT
from oodshape.networks.loading import Model as AnyModel
from oodshape.networks.loading import open_model, runs_named_code
from oodshape.networks.loading import override as native_preprocessing
from oodshape.networks.model_names import KNOWN, read_class_names

ZOO = "zoo:"
OPENOOD = "openood"  # its settings
VAL = "val"  # its ID validation images among the sets of a run


@dataclass(frozen=True, eq=False)
class PlannedNetwork:
    """How to open a network of a run, and its preprocessing if it is not the model's own."""

    spec: ModelSpec
    model: AnyModel | Head  # a head alone: the sets are features
    weights: Path | None = None
    preprocessing: Preprocessing | None = None
    prepared: bool = False  # whether its images are tensors or features, which need no preprocessing
    layer: HeadOptions = HeadOptions()
    classes: tuple[str, ...] = ()
    prompt: str = PROMPT


def select_methods(benchmark: Benchmark, names: tuple[str, ...] = ()) -> dict[str, Method]:
    """The methods of a run, with the hyperparameters that the benchmark asks for."""
    own = settings_of_openood(benchmark)
    if own:
        table = {name: own[name].method if name in own else method for name, method in registry.METHODS.items()}
    else:
        table = apply_settings(benchmark.settings, benchmark.of_paper, benchmark.name)
    if not names:
        return table
    chosen = {
        record.id: table.get(record.id) or registry.make_method(record) for record in map(registry.find_record, names)
    }
    return {name: chosen.pop(name) for name in table if name in chosen} | chosen


def settings_of_openood(benchmark: Benchmark) -> dict[str, registry.OpenOODSetting]:
    """OpenOOD's settings, where the benchmark asks for them; ODIN's step is in units of a network's preprocessing."""
    if benchmark.settings != OPENOOD:
        return {}
    known = [zoo.model_entry(spec.name) for spec in benchmark.models if ":" not in spec.name]
    return registry.openood_settings(known[0].native.std if known else (1.0,))


def apply_settings(settings: str, id_set: str, where: str) -> dict[str, Method]:
    """The methods with general settings, with the paper's for an ID set, or as its published code has them."""
    if settings != AUTHORS:
        return dict(registry.METHODS) if settings == "general" else registry.paper_methods(settings)
    if not id_set:
        raise InputError(
            f"the settings of the authors' code are of {', '.join(ID_SETS)}, and {where} names none of them: put "
            'id_set = "imagenet" (or another) into its file if it is one, or take other --settings, such as general'
        )
    return registry.authors_methods(id_set)


@dataclass
class Plan:
    """A benchmark with the networks, sets and methods that are available."""

    benchmark: Benchmark
    options: BenchOptions
    methods: dict[str, Method]
    networks: dict[str, PlannedNetwork]  # by title
    sets: dict[str, Images]
    skipped: list[tuple[str, str]]  # (network or OOD set, why)
    fit_on: dict[str, str] = field(default_factory=dict)  # the set that a method is fitted on, where not `train`
    runs: dict[str, str] = field(default_factory=dict)  # the networks of which a title is one training run of several
    in_memory: tuple[str, ...] = ()  # what no file names, so that the run cannot be repeated from its results
    labels: Tensor | None = None  # of the test images, where they come without

    @classmethod
    def of(cls, benchmark: Benchmark, options: BenchOptions) -> Plan:
        """Find what is available; nothing is opened yet."""
        methods = {
            name: reseed(each, options.seed) for name, each in select_methods(benchmark, options.methods).items()
        }
        own = settings_of_openood(benchmark)
        fit_on = {name: own[name].fit for name in methods if name in own and own[name].fit != "train"}
        for spec in benchmark.chosen(list(options.models)):
            if runs_named_code(spec.name):
                check_trust(f"the benchmark {benchmark.name!r} names code to run: {spec.name!r}", options.trust_code)
        specs = {spec: _list_training_runs(spec, options.weights) for spec in benchmark.chosen(list(options.models))}
        runs = {run.title: spec.title for spec, found in specs.items() for run in found if run is not spec}
        networks, gone = _plan_networks(benchmark, options, [run for found in specs.values() for run in found])
        sets, skipped = _open_sets(benchmark, options, VAL in fit_on.values())
        return cls(benchmark, options, methods, networks, sets, [*gone, *skipped], fit_on, runs)

    def model(self, title: str) -> BenchModel:
        """The network of this title, opened."""
        network, options = self.networks[title], self.options
        spec = network.spec
        if isinstance(network.model, Head):
            return BenchModel(spec, spec.family or "features", None, None, dict(self.sets), options)
        opening = replace(make_options(ModelOptions, vars(options)), weights=network.weights)
        layer = replace(network.layer, head=options.head or spec.head or network.layer.head)
        try:
            source = open_model(
                network.model, classes=network.classes, prompt=network.prompt, **vars(opening), **vars(layer)
            )
            given = network.preprocessing
            steps = given if given or network.prepared else native_preprocessing(source.native)
        except InputError as error:
            raise InputError(f"{spec.title}: {error}") from None
        name = str(network.model)
        known = KNOWN.get(name.removeprefix(ZOO)) if name.startswith(ZOO) else None
        family = spec.family or (known.family if known else guess_family(source.classifier.net))
        whole = frozenset(look.name for look in self.benchmark.pooled if look.preprocessing == UNCROPPED)
        return BenchModel(spec, family, source.classifier, steps, dict(self.sets), options, uncropped=whole)


def _plan_networks(
    benchmark: Benchmark, options: BenchOptions, specs: list[ModelSpec]
) -> tuple[dict[str, PlannedNetwork], list[tuple[str, str]]]:
    """The networks that can run, by title, and those without weights, with the reason."""
    found: dict[str, PlannedNetwork] = {}
    skipped: list[tuple[str, str]] = []
    for spec in specs:
        file = benchmark.base / Path(spec.weights).expanduser() if spec.weights else None
        name, steps = spec.name, None
        kind, _, rest = name.partition(":")
        if kind == "hf" or name.lower().endswith(".pt2"):  # a folder or a file next to the benchmark's
            here = benchmark.base / Path(rest or kind).expanduser()
            name = f"{'hf:' if rest else ''}{here}" if here.exists() else name
        elif kind == "zoo" or not rest:
            name = rest or kind
            file = file or zoo.find_weights(name, options.weights)
            if file is None and zoo.model_entry(name).id_set != "digits":
                more = f", or name a folder that holds {spec.checkpoints}" if spec.checkpoints else ""
                skipped.append((spec.title, zoo.weights_needed(name, options.weights) + more))
                continue
            if (spec.preprocessing or benchmark.preprocessing) == "paper":
                steps = zoo.model_entry(name).paper
            name = ZOO + name
        classes = read_class_names(benchmark.base / Path(spec.classes).expanduser()) if spec.classes else ()
        prompt = spec.prompt or PROMPT
        found[spec.title] = PlannedNetwork(spec, name, file, steps, classes=classes, prompt=prompt)
    if not found:
        raise InputError(f"no network of {benchmark.name} has weights here; {skipped[0][0]} {skipped[0][1]}")
    return found, skipped


def _list_training_runs(spec: ModelSpec, folder: Path | None) -> list[ModelSpec]:
    """The network itself, or its training runs below a folder of weights."""
    files = sorted(folder.glob(spec.checkpoints)) if spec.checkpoints and folder is not None else []
    runs = [replace(spec, label=f"{spec.title} {file.parent.name}", weights=str(file.resolve())) for file in files]
    return runs or [spec]


def _open_sets(
    benchmark: Benchmark, options: BenchOptions, fits_on_val: bool
) -> tuple[dict[str, Images], list[tuple[str, str]]]:
    """Every set that is on this machine, by its role or name, and the OOD sets that are not, with the reason."""
    inside = {"train": benchmark.train, "test": benchmark.test}
    if fits_on_val:
        if not benchmark.val:
            raise InputError(f"OpenOOD's settings need ID validation images: {benchmark.name} has no val in [id]")
        inside[VAL] = benchmark.val
    inside |= {look.name: look.images for look in benchmark.pooled}
    sets: dict[str, Images] = {name: _open_set(source, benchmark, options) for name, source in inside.items()}
    skipped: list[tuple[str, str]] = []
    for ood in benchmark.ood:
        try:
            sets[ood.name] = _open_set(ood.images, benchmark, options)
        except MissingDataset as error:
            skipped.append((ood.name, str(error).removeprefix(f"{ood.name}: ")))
    if len(sets) == len(inside):
        raise InputError(f"none of the OOD sets of {benchmark.name} is here; {skipped[0][1]}")
    return sets, skipped


def _open_set(source: str, benchmark: Benchmark, options: BenchOptions) -> ImageSet:
    images = open_dataset(source, benchmark.base, options.data, any_list=options.any_list)
    return limit_images(images, options.limit, options.seed)
