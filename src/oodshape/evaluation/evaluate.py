"""evaluate: methods on networks and images of any kind, in memory or on disk, by the engine of the benchmarks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from torch.utils.data import DataLoader

from oodshape.benchmark.bench_model import BenchOptions, Images, TensorSet
from oodshape.benchmark.plan import Plan, PlannedNetwork, apply_settings
from oodshape.benchmark.run import run_plan
from oodshape.benchmark.spec import ID_SETS, Benchmark, ModelSpec, OodSpec, Settings
from oodshape.core.errors import InputError
from oodshape.core.files import compute_fingerprint
from oodshape.core.machine import default_cache
from oodshape.core.options import (
    EvaluateKeywords,
    HeadOptions,
    ImageOptions,
    ModelOptions,
    RunOptions,
    SubsetOptions,
    make_options,
    takes_options,
)
from oodshape.core.values import reseed
from oodshape.evaluation.printable_results import Results
from oodshape.features.features import Features, check_integers
from oodshape.images import identity
from oodshape.images.datasets.catalog import open_dataset
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import Subset, limit_images
from oodshape.images.sources.memory import check_prepared
from oodshape.images.sources.open_images import LISTS, Given, in_column, open_images
from oodshape.methods.detector import Method
from oodshape.methods.records import find_registered
from oodshape.methods.registry import as_method, find_record, make_method
from oodshape.networks.head import Head
from oodshape.networks.hugging_face import PROMPT
from oodshape.networks.loading import Model

DEFAULT = "default"  # in place of a folder: the user's cache
KINDS = ("near", "far")
UNNAMED = "in memory"  # in place of the images of a benchmark file
SETTINGS = ("general", *ID_SETS)


@takes_options(ModelOptions, HeadOptions, ImageOptions, SubsetOptions, RunOptions)
def evaluate(
    model: Model | Head | tuple[Any, Any] | Mapping[str, Model],
    *,
    train: Given,
    id: Given,
    ood: Mapping[str, Given] | Mapping[str, Mapping[str, Given]],
    methods: Sequence[Any] | str = (),
    labels: Any = None,
    preprocessing: Preprocessing | Mapping[str, Preprocessing] | None = None,
    classes: tuple[str, ...] = (),
    prompt: str = PROMPT,
    settings: Settings = "general",
    name: str = "evaluation",
    seed: int = 0,
    resamples: int = 200,
    cache: str | Path | None = DEFAULT,
    **options: Unpack[EvaluateKeywords],
) -> Results:
    """Compare OOD detection methods on a network and images of your own.

    Sets of images are what `Guard.fit` takes: DataLoaders and, with `prepared`, any batches of tensors go through the
    network as they are; folders, lists, data sets, pictures and arrays are prepared as the model or `preprocessing`
    says. With a head in place of the network, each set is an array of features [N, M], a pair (features, labels), or
    `Features`. A method that fails does not end the run: `results.failed` and the notes of the table say why.

    Args:
        model: A torch network, a spec such as `timm:NAME`, a Classifier, or several of them by name; or the head
            (weight [C, M], bias [C] or None) of features.
        train: In-distribution images to fit on: the training set.
        id: In-distribution images to test on.
        ood: OOD images by name, or names by kind: `{"near": {...}, "far": {...}}`.
        methods: Names (`oodshape methods` lists them), `package.module:Name`, and methods or recipes of your own;
            default: all methods.
        labels: True classes of the `id` images for the accuracy, where the images do not come with them.
        preprocessing: Preprocessing of the images in place of the model's own; for several networks, by name.
        classes: Class names for a model that compares images with texts (CLIP, SigLIP).
        prompt: The sentence around such a name, which stands for {}.
        settings: Hyperparameters: `general`, or the paper's for `imagenet`, `cifar10` or `cifar100`.
        name: Name of the results in tables.
        seed: Seed of whatever is drawn at random.
        resamples: Bootstrap resamples behind each interval.
        cache: Folder that keeps features between runs; `default` is the user's cache folder, None keeps none. Tensors
            are known by their content.

    Returns:
        The results: `print` shows the table; `save`, `page`, `to_latex` and `to_pandas` give other forms.

    Raises:
        InputError: If a network, images or an option cannot be used, or if no method could be run.

    >>> data = {"train": [[2.0, 0.5], [0.5, 3.0], [3.0, 1.0]], "id": [[4.0, 0.0], [0.2, 2.0]]}
    >>> head = ([[1.0, 0.0], [0.0, 1.0]], None)
    >>> results = evaluate(head, **data, ood={"far": [[0.1, 0.1]]}, methods=["msp", "energy"], progress=False)
    >>> [(row.method, row.ood, row.metrics["auroc"].value) for row in results.rows]
    [('msp', 'far', 1.0), ('energy', 'far', 1.0)]
    """
    reading, run = make_options(ImageOptions, options), make_options(RunOptions, options)
    limit, opening = make_options(SubsetOptions, options).limit, make_options(ModelOptions, options)
    layer = make_options(HeadOptions, options)
    head = _head(model)
    groups = _groups(ood)
    networks: dict[str, Any] = {"features": head} if head is not None else _by_name(model)
    given = {"train": train, "id": id} | {each: images for each, (_, images) in groups.items()}
    sets = {
        "test" if each == "id" else each: _read_set(images, each, head, reading, limit, seed)
        for each, images in given.items()
    }
    numbers = None if labels is None else _class_numbers(labels, sets["test"], limit)
    prepared = all(isinstance(images, (TensorSet, Features)) for images in sets.values())
    chosen = _choose_methods(methods, settings)
    made: dict[str, PlannedNetwork] = {}
    for title, each in networks.items():
        spec = ModelSpec(name=str(each) if isinstance(each, (str, Path)) else title, label=title)
        steps = preprocessing.get(title) if isinstance(preprocessing, Mapping) else preprocessing
        made[title] = PlannedNetwork(spec, each, opening.weights, steps, prepared, layer, tuple(classes), prompt)
    oods = tuple(OodSpec(name=each, group=kind, images=UNNAMED) for each, (kind, _) in groups.items())
    models = tuple(network.spec for network in made.values())
    benchmark = Benchmark(name=name, settings=settings, train=UNNAMED, test=UNNAMED, ood=oods, models=models)
    unsaid = {"labels": labels, "preprocessing": preprocessing, "classes": classes or None}
    unsaid |= {"column": reading.column, "num_classes": layer.num_classes}
    in_memory = _in_memory(networks, given, methods)
    in_memory += [f"{what}=..." for what, value in unsaid.items() if value is not None]
    if not in_memory:
        text = _as_file(benchmark, made, given)
        benchmark = replace(benchmark, text=text, hash=compute_fingerprint(text))
    where = None if cache is None else default_cache() if cache == DEFAULT else Path(cache)
    asked = BenchOptions(methods=tuple(chosen), seed=seed, resamples=resamples, limit=limit, cache=where)
    asked = replace(asked, **vars(opening) | vars(run) | {"weights": None})
    recipes = {each: reseed(method, seed) for each, method in chosen.items()}
    plan = Plan(benchmark, asked, recipes, made, sets, [], in_memory=tuple(in_memory), labels=numbers)
    return Results.of(*run_plan(plan))


def _choose_methods(methods: Sequence[Any] | str, settings: Settings = "general") -> dict[str, Method]:
    """The methods by name: ids of the package, and names of methods of a user's own, which differ from these.

    >>> from oodshape.methods.shapes.clipping import ReAct
    >>> list(_choose_methods(["MSP", ReAct(q=0.9), ReAct(q=0.5), Method(shape=ReAct(q=0.4))]))
    ['msp', 'react', 'ReAct(q=0.5)', 'Method(shape=ReAct(q=0.4))']
    """
    if settings not in SETTINGS:
        raise InputError(f"settings must be one of {', '.join(SETTINGS)}, got {settings!r}")
    table = apply_settings(settings, "", "evaluate")
    chosen: dict[str, Method] = {}
    for each in [methods] if isinstance(methods, str) else methods:
        if isinstance(each, str):
            record = find_record(each)
            chosen[record.id] = table.get(record.id) or make_method(record)
            continue
        made = as_method(each)
        known = next((name for name, method in table.items() if method == made), "")
        name = known or _short_name(each)
        if chosen.get(name, made) != made or (not known and find_registered(name)):
            name = f"{getattr(each, '__module__', '')}:{name}"
        chosen[name] = made
    return chosen or table


def _short_name(recipe: Any) -> str:
    """The call that makes a method or a recipe, without settings that have their default."""
    if isinstance(recipe, type):
        return recipe.__name__
    told = [f"{each.name}={getattr(recipe, each.name)!r}" for each in fields(recipe)]
    told = [text for text, each in zip(told, fields(recipe), strict=True) if text != f"{each.name}={each.default!r}"]
    return type(recipe).__name__ + (f"({', '.join(told)})" if told else "")


def _head(model: Any) -> Head | None:
    """The head that is given in place of a network; None where it is a network."""
    return Head.of(model) if isinstance(model, (Head, tuple)) else None


def _by_name(model: Any) -> dict[str, Any]:
    """The networks by the names that tables show."""
    if isinstance(model, Mapping):
        if not model:
            raise InputError("give at least one network")
        if any(_head(each) is not None for each in model.values()):
            raise InputError("several heads have features of their own: evaluate them one by one")
        return {str(title): each for title, each in model.items()}
    if isinstance(model, (str, Path)):
        return {str(model): model}
    return {type(getattr(model, "net", model)).__name__: model}


def _groups(ood: Any) -> dict[str, tuple[Any, Given]]:
    """OOD set -> (near, far or "", images)."""
    if not isinstance(ood, Mapping) or not ood:
        raise InputError(
            'ood is a mapping from names to images, such as {"svhn": svhn_loader}, or {"near": {...}, "far": {...}}; '
            f"got {'an empty one' if isinstance(ood, Mapping) else type(ood).__name__}"
        )
    kinds = all(kind in KINDS and isinstance(sets, Mapping) for kind, sets in ood.items())
    nested = ood if kinds else {"": ood}
    pairs = [(kind, str(name), given) for kind, sets in nested.items() for name, given in sets.items()]
    found = {name: (kind, given) for kind, name, given in pairs}
    wrong = next((name for name in ("train", "test", "id") if name in found), None)
    if wrong is not None or len(found) < len(pairs):
        raise InputError(f"an OOD set cannot be called {wrong}" if wrong else "two OOD sets have the same name")
    return found


def _read_set(
    given: Given, name: str, head: Head | None, reading: ImageOptions, limit: int | None, seed: int
) -> Images:
    """A set of a run: features with a head, tensors where they are prepared, or a set of images."""
    try:
        if head is not None:
            return _read_features(given, head, limit, seed)
        if isinstance(given, (Features, tuple)):
            raise InputError("features need their head in place of the network: evaluate((weight, bias), ...)")
        if reading.prepared or isinstance(given, DataLoader):
            check_prepared(given)
            if limit is not None:
                raise InputError("limit chooses among images; of prepared tensors give fewer batches")
            return TensorSet(name, given)
        named = _source(given)  # opened as a benchmark file's, so that a run can be repeated
        images = open_dataset(named, Path()) if named else open_images(in_column(given, reading.column))
        return limit_images(images, limit, seed)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _read_features(given: Any, head: Head, limit: int | None, seed: int) -> Features:
    if isinstance(given, Features):
        made = given
        if given.head.fingerprint != head.fingerprint:
            raise InputError("these features have another head than the one given")
    else:
        pair = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        made = Features.from_arrays(pair[0], head, pair[1])
    if limit is None or len(made) <= limit:
        return made
    return made[identity.smallest(made.identities, limit, seed, "subset")]


def _class_numbers(labels: Any, images: Images, limit: int | None) -> torch.Tensor | None:
    """Check the true classes given, one per image."""
    if isinstance(images, TensorSet):
        raise InputError("labels: a loader gives its labels with the images, as pairs (images, labels)")
    if isinstance(images, Features) and limit is not None:
        raise InputError("labels with limit: give them with the features, as a pair (features, labels)")
    if not isinstance(images, Subset):
        return check_integers(labels, "labels", len(images))
    every = check_integers(labels, "labels", len(images.base))  # `limit` chose from these
    return None if every is None else every[list(images.indices)]


def _in_memory(networks: Mapping[str, Any], sets: Mapping[str, Any], methods: Any) -> list[str]:
    """What no file can bring back."""
    found = [f"network {t} ({type(m).__name__})" for t, m in networks.items() if not isinstance(m, (str, Path))]
    found += [f"images {name} ({type(given).__name__})" for name, given in sets.items() if not _source(given)]
    named = all(isinstance(each, str) for each in methods)
    return found if named else [*found, "methods given as objects"]


def _source(given: Any) -> str:
    """The images of a folder or a list as a benchmark file names them; empty for anything else."""
    if not isinstance(given, (str, Path)):
        return ""
    path = os.path.abspath(given)
    if os.path.isdir(path):
        return f"folder:{path}"
    return f"list:{path}" if path.lower().endswith(LISTS) and os.path.isfile(path) else ""


def _as_file(benchmark: Benchmark, networks: Mapping[str, PlannedNetwork], sets: Mapping[str, Given]) -> str:
    """The benchmark file that does the same."""

    def table(title: str, values: dict[str, str]) -> list[str]:
        said = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value]
        return [title, *said, ""]

    lines = table("", {"name": benchmark.name, "settings": benchmark.settings})
    lines += table("[id]", {"train": _source(sets["train"]), "test": _source(sets["id"])})
    for spec in benchmark.ood:
        lines += table("[[ood]]", {"name": spec.name, "group": spec.group, "images": _source(sets[spec.name])})
    for title, network in networks.items():
        weights = str(network.weights.resolve()) if network.weights else ""
        head = network.layer.head or ""
        lines += table("[[models]]", {"name": str(network.model), "label": title, "weights": weights, "head": head})
    return "\n".join(lines).lstrip()
