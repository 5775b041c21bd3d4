"""Network: the features of every set of one network, from a folder of files or from a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oodshape.benchmark.plan import Model, Options, methods_of, with_settings
from oodshape.benchmark.run import extracted
from oodshape.benchmark.spec import AUTHORS, ID_SETS, Benchmark
from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.images.datasets.synthetic import NoiseSet
from oodshape.images.decode.limits import npz_within
from oodshape.methods.detector import Method
from oodshape.methods.registry import named
from oodshape.networks.zoo import MODELS

SURROGATES = ("gaussian", "uniform")
PROXY = "scrambled"
NOISE = 50_000  # noise images of a kind, unless there is a limit
HELD_OUT = "calibration"  # ID images that are neither fitted on nor tested
CODED_REAL = {"cifar100": "Places365"}  # what the configuration of the authors' code takes for real OOD data
LAYOUT = "head.npz (weight, bias), train.npz, val.npz or test.npz, and a .npz per OOD set (features, labels)"


@dataclass(frozen=True, eq=False)
class Network:
    """What a study looks at: fitting data, ID and OOD test data, surrogates that are never tested, the methods."""

    name: str
    family: str  # ConvNet, transformer or MLP
    train: Features
    inside: Features
    ood: dict[str, Features]
    surrogates: dict[str, Features]
    methods: dict[str, Method]
    proxy: tuple[Features, ...] = ()  # scrambled ID images, to choose methods by
    held_out: Features | None = None  # further ID images
    told: str = ""  # the OOD set that is to stand for real OOD data
    picked: tuple[str, ...] = ()  # only these methods, where a study compares them
    seed: int = 0
    settings: str = "general"  # whose hyperparameters the methods have
    id_set: str = ""  # of the paper, where it is one of these

    @property
    def real(self) -> str:
        """The OOD set that stands for real OOD data: as told, else the largest, the first of equals."""
        return self.told if self.told in self.ood else max(self.ood, key=lambda name: len(self.ood[name]))

    @property
    def as_coded(self) -> bool:
        """Whether all is to be as in the authors' code: the objective and the search too, not the methods alone."""
        return self.settings == AUTHORS

    @property
    def compared(self) -> dict[str, Method]:
        """The methods that a study compares."""
        return {name: named(name, self.methods) for name in self.picked} if self.picked else self.methods

    def telling(self, real: str = "", methods: tuple[str, ...] = (), seed: int = 0) -> Network:
        """The same network with what a study is told: the set that is real OOD data, the methods, what is drawn."""
        if real and real not in self.ood:
            raise InputError(f"{self.name} has no OOD set {real!r}; there are {', '.join(self.ood)}")
        made = replace(self, told=real or self.told, picked=methods, seed=seed)
        _ = made.compared  # refuses a method that is not there
        return made

    @property
    def surrogate(self) -> Features:
        """The surrogates to tune on: the Gaussian ones, or an error that says what is missing."""
        if SURROGATES[0] not in self.surrogates:
            raise InputError(f"{self.name} has no {SURROGATES[0]} surrogates to tune on")
        return self.surrogates[SURROGATES[0]]

    def chosen_by(self) -> tuple[Features, ...]:
        """The proxy, or an error that says what is missing."""
        if not self.proxy:
            raise InputError(
                f"{self.name} has no proxy: put {PROXY}.npz, the features of scrambled ID images, beside its "
                f"features, or --proxy DIR with DIR/{self.name}/{PROXY}.npz"
            )
        return self.proxy

    def describe(self) -> str:
        """The sizes of all sets in a line."""
        sets = {"train": self.train, "ID test": self.inside, **self.ood}
        sizes = ", ".join(f"{name} {len(features):,}" for name, features in sets.items())
        extra = ", ".join(f"{name} {len(features):,}" for name, features in self.surrogates.items())
        proxy = sum(len(features) for features in self.proxy)
        why = "" if self.real == self.told else " (the largest)"
        why = f" (the largest here; {self.told} is not)" if self.told not in ("", self.real) else why
        whose = f"{self.settings} ({self.id_set})" if self.as_coded else self.settings
        return (
            f"{self.name}: {sizes}; surrogates: {extra or 'none'}; proxy: {proxy}; settings: {whose}; "
            f"real OOD data: {self.real}{why}"
        )


def folders_in(paths: Sequence[Path]) -> list[Path]:
    """The folders of feature files: each path itself, or those inside it."""
    found = []
    for path in paths:
        inside = [path] if (path / "head.npz").is_file() else sorted(p.parent for p in path.glob("*/head.npz"))
        if not inside:
            raise InputError(f"{path} holds no features; a network's folder has {LAYOUT}")
        found += inside
    return found


def from_folder(folder: Path, panels: Path | None = None, settings: str = "") -> Network:
    """The network whose feature files lie in a folder; family and settings follow from its name where known.

    The proxy is scrambled.npz there, or in the folder of the same name below `panels`. Without `settings`, methods have
    those of the paper for the ID set of the network, as the folder is named, or general ones.
    """
    arrays = {}
    more = [] if panels is None else [panels / folder.name / f"{PROXY}.npz"]
    for path in [*sorted(folder.glob("*.npz")), *(path for path in more if path.is_file())]:
        arrays[path.stem] = npz_within(path)
    try:
        head = arrays.pop("head")
        pair = (head["weight"], head["bias"])
        sets = {
            name: Features.from_arrays(items["features"], pair, labels=items.get("labels"))
            for name, items in arrays.items()
        }
        train, inside = sets.pop("train"), sets.pop("test" if "test" in sets else "val")
    except KeyError as error:
        raise InputError(f"{folder} lacks {error}; a network's folder has {LAYOUT}") from None
    surrogates = {name: sets.pop(name) for name in SURROGATES if name in sets}
    proxy, held_out = (sets.pop(PROXY),) if PROXY in sets else (), sets.pop(HELD_OUT, None)
    if not sets:
        raise InputError(f"{folder} holds no OOD set; a network's folder has {LAYOUT}")
    family, id_set = _known(folder.name)
    known = id_set if id_set in ID_SETS else ""
    whose = settings or known or "general"
    if whose not in ("general", *ID_SETS, AUTHORS):
        raise InputError(f"methods cannot have the settings {whose!r} on feature files: these are of a benchmark")
    methods = dict(with_settings(whose, known, folder.name))
    said: dict[str, Any] = {"settings": whose, "id_set": known}
    return Network(folder.name, family, train, inside, sets, surrogates, methods, proxy, held_out, **said)


def _known(name: str) -> tuple[str, str]:
    """(family, ID set) of the network of the zoo that a folder is named after: `imagenet_resnet50`."""
    plain = name.replace("_", "-")
    found = [entry for entry in MODELS.values() if plain.endswith(entry.name.replace("_", "-"))]
    if not found:
        return "unknown", ""
    entry = max(found, key=lambda entry: len(entry.name))
    return entry.family, entry.id_set


def _side(model: Model) -> int:
    """The side of the noise images: the paper's, or that of the test images where nothing brings them to one size."""
    way = model.preprocessing
    return 32 if way.resize or way.crop else len(way.pixels(model.sets["test"][0]))


def from_benchmark(benchmark: Benchmark, options: Options) -> Iterator[Network]:
    """The networks of a benchmark one by one; noise images are made where the benchmark has no set of that name."""
    for model in extracted(benchmark, options):
        sets = dict(model.features)
        train, inside = sets.pop("train"), sets.pop("test")
        coded = benchmark.settings == AUTHORS  # then noise is drawn as their code does
        noise = {name: sets.pop(name) for name in SURROGATES if name in sets}
        for name in SURROGATES:
            if name not in noise or coded:
                noise[name] = Features.extract(
                    model.classifier,
                    NoiseSet(name, options.limit or NOISE, side=_side(model), truncated=coded),
                    model.preprocessing,
                    cache=options.cache,
                    **vars(options.run),
                )
        methods = methods_of(benchmark, options.methods)
        proxy = tuple(model.proxy)
        real = CODED_REAL.get(benchmark.of_paper, benchmark.real) if coded else benchmark.real
        said: dict[str, Any] = {"told": real, "settings": benchmark.settings, "id_set": benchmark.of_paper}
        yield Network(model.spec.title, model.family, train, inside, sets, noise, methods, proxy, **said)


def networks(
    benchmark: str,
    features: Sequence[Path],
    models: tuple[str, ...] = (),
    proxy: Path | None = None,
    settings: str = "",
    **how: Any,
) -> list[Network]:
    """The networks that studies look at: from folders of feature files where any is given, else from a benchmark.

    `how` are the other `Options` that a benchmark runs with.
    """
    if features:
        found = [from_folder(folder, proxy, settings) for folder in folders_in(features)]
        missing = set(models) - {network.name for network in found}
        if missing:
            raise InputError(f"no network {sorted(missing)[0]!r}; there are {', '.join(n.name for n in found)}")
        return [network for network in found if not models or network.name in models]
    options = Options(models=models, **how)
    chosen = Benchmark.load(benchmark)
    return list(from_benchmark(chosen.with_settings(settings) if settings else chosen, options))
