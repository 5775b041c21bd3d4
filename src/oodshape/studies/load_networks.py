"""Load what studies use: the features of every image set of a network, from feature files or from a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oodshape.benchmark.bench_model import BenchModel, BenchOptions
from oodshape.benchmark.plan import apply_settings, select_methods
from oodshape.benchmark.run import extract_networks
from oodshape.benchmark.spec import AUTHORS, ID_SETS, Benchmark, Settings
from oodshape.core.errors import InputError, unknown
from oodshape.features.features import Features
from oodshape.images.datasets.synthetic import NoiseSet
from oodshape.images.decode.limits import read_limited_npz
from oodshape.images.identity import smallest
from oodshape.methods.detector import Method
from oodshape.methods.registry import find_method
from oodshape.networks.zoo import MODELS

SURROGATES = ("gaussian", "uniform")
PROXY = "scrambled"
PROXIES = (PROXY, "synthetic_noise", "synthetic_constant")  # in the order of `proxy_features`
NOISE = 50_000  # noise images of each kind, without --limit
HELD_OUT = "calibration"  # ID images that are used neither for fitting nor for testing
LAYOUT = "head.npz (weight, bias), train.npz, val.npz or test.npz, and a .npz per OOD set (features, labels)"


@dataclass(frozen=True, eq=False)
class StudyNetwork:
    """The features of one network, the methods to fit, and the options of a study."""

    name: str
    family: str  # ConvNet, transformer or MLP
    train: Features
    id_test: Features
    ood: dict[str, Features]
    surrogates: dict[str, Features]  # noise images, never tested
    methods: dict[str, Method]
    proxy: tuple[Features, ...] = ()  # scrambled ID images: the proxy OOD set that `auto` selects by
    held_out: Features | None = None  # further ID images
    requested_real: str = ""  # the OOD set to use as real OOD data
    only: str = ""  # the one OOD set to compare methods on; empty: all
    settings: str = "general"  # the source of the hyperparameters
    id_set: str = ""  # of the paper, if it is one of them

    @property
    def real(self) -> str:
        """The name of the real OOD set: the requested one, or the largest (the first of equal size)."""
        return self.requested_real if self.requested_real in self.ood else max(self.ood, key=lambda k: len(self.ood[k]))

    def with_options(self, ood: str = "", methods: tuple[str, ...] = ()) -> StudyNetwork:
        """Set the OOD set that stands for real OOD data and that methods are compared on; keep these methods only."""
        if ood and ood not in self.ood:
            raise unknown(f"OOD set of {self.name}", ood, self.ood)
        found = {name: find_method(name, self.methods) for name in methods}
        return replace(self, requested_real=ood or self.requested_real, only=ood, methods=found or self.methods)

    def describe(self) -> str:
        """Return one line with the sizes of all sets and the settings."""
        sets = {"train": self.train, "ID test": self.id_test, **self.ood}
        sizes, extra = (
            ", ".join(f"{name} {len(each):,}" for name, each in group.items()) for group in (sets, self.surrogates)
        )
        missing = f"; {self.requested_real} is not here" if self.requested_real else ""
        why = "" if self.real == self.requested_real else f" (the largest{missing})"
        settings = f"{self.settings} ({self.id_set})" if self.settings == AUTHORS else self.settings
        return (
            f"{self.name}: {sizes}; surrogates: {extra or 'none'}; proxy: {sum(map(len, self.proxy))}; "
            f"settings: {settings}; real OOD data: {self.real}{why}"
        )


def find_folders(paths: Sequence[Path]) -> list[Path]:
    """List the folders of feature files: each path itself, or the folders inside it."""
    found = []
    for path in paths:
        inside = [path] if (path / "head.npz").is_file() else sorted(p.parent for p in path.glob("*/head.npz"))
        if not inside:
            raise InputError(f"{path} holds no features; a network's folder has {LAYOUT}")
        found += inside
    return found


def load_folder(folder: Path, panels: Path | None = None, settings: str = "", limit: int | None = None) -> StudyNetwork:
    """Load a network from a folder of feature files; its family and settings follow from the folder's name.

    The proxy is scrambled.npz in the folder, or in the folder of the same name below `panels`, and the noise and
    constant images of synthetic_noise.npz and synthetic_constant.npz next to it. Without `settings`, the
    methods use those of the paper for the network's ID set, or general ones if that set is unknown.
    """
    more = [] if panels is None else [panels / folder.name / f"{name}.npz" for name in PROXIES]
    found = [*sorted(folder.glob("*.npz")), *(path for path in more if path.is_file())]
    arrays = {path.stem: read_limited_npz(path) for path in found}
    try:
        head = arrays.pop("head")
        pair = (head["weight"], head["bias"])
        sets = {
            name: Features.from_arrays(items["features"], pair, labels=items.get("labels"))
            for name, items in arrays.items()
        }
        if limit is not None:
            sets = {name: each[smallest(each.identities, limit, 0, "subset")] for name, each in sets.items()}
        train, id_test = sets.pop("train"), sets.pop("test" if "test" in sets else "val")
    except KeyError as error:
        raise InputError(f"{folder} lacks {error}; a network's folder has {LAYOUT}") from None
    surrogates = {name: sets.pop(name) for name in SURROGATES if name in sets}
    proxy, held_out = tuple(sets.pop(name) for name in PROXIES if name in sets), sets.pop(HELD_OUT, None)
    if not sets:
        raise InputError(f"{folder} holds no OOD set; a network's folder has {LAYOUT}")
    plain = folder.name.replace("_", "-")
    entries = [entry for entry in MODELS.values() if plain.endswith(entry.name.replace("_", "-"))]
    entry = max(entries, key=lambda entry: len(entry.name), default=None)
    id_set = entry.id_set if entry is not None and entry.id_set in ID_SETS else ""
    settings = settings or id_set or "general"
    if settings not in ("general", *ID_SETS, AUTHORS):
        raise InputError(f"the settings {settings!r} cannot be used on feature files: they need a benchmark")
    name, family = folder.name, "unknown" if entry is None else entry.family
    methods = dict(apply_settings(settings, id_set, name))
    made = StudyNetwork(name, family, train, id_test, sets, surrogates, methods, proxy, held_out)
    return replace(made, settings=settings, id_set=id_set)


def load_benchmark(benchmark: Benchmark, options: BenchOptions) -> Iterator[StudyNetwork]:
    """Yield the networks of a benchmark; noise images are created if the benchmark has no set of that name."""
    for model in extract_networks(benchmark, options):
        sets = dict(model.features)
        train, id_test = sets.pop("train"), sets.pop("test")
        noise = {name: sets.pop(name) for name in SURROGATES if name in sets}
        for name in SURROGATES:
            if name not in noise:
                images = NoiseSet(name, options.limit or NOISE, side=_noise_side(model))
                how = {"cache": options.cache, **vars(options.run)}
                noise[name] = Features.extract(model.classifier, images, model.preprocessing, **how)
        methods, proxy = select_methods(benchmark, options.methods), tuple(model.proxy)
        made = StudyNetwork(model.spec.title, model.family, train, id_test, sets, noise, methods, proxy)
        yield replace(made, requested_real=benchmark.real, settings=benchmark.settings, id_set=benchmark.of_paper)


def _noise_side(model: BenchModel) -> int:
    """Return the side of the noise images: the paper's, or that of the test images if they are not resized."""
    steps = model.preprocessing
    return 32 if steps.resize or steps.crop else len(steps.pixels(model.image_set("test")[0]))


def load_networks(
    benchmark: str, features: Sequence[Path], models: tuple[str, ...] = (), settings: Settings | None = None, **how: Any
) -> list[StudyNetwork]:
    """Load the networks of a study from folders of feature files, or without any from a benchmark.

    `how` are the other `BenchOptions` of a benchmark.
    """
    if features:
        found = [
            load_folder(folder, settings=settings or "", limit=how.get("limit")) for folder in find_folders(features)
        ]
        known = {network.name.casefold(): network for network in found}
        for name in models:
            if name.casefold() not in known:
                raise unknown("network", name, [network.name for network in found])
        return [known[name.casefold()] for name in models] or found
    spec = Benchmark.load(benchmark)
    return list(load_benchmark(spec.with_settings(settings) if settings else spec, BenchOptions(models=models, **how)))
