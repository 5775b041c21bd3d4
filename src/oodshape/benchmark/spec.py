"""Benchmark: what is compared on what, read from a TOML file whose every key is checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from oodshape.core.errors import InputError, unknown
from oodshape.core.files import compute_fingerprint, one_line, read_short_text, reading
from oodshape.core.values import Checked

PaperSet = Literal["imagenet", "cifar10", "cifar100"]
Settings = Literal["general", "imagenet", "cifar10", "cifar100", "authors-code", "openood"]
ID_SETS: tuple[PaperSet, ...] = get_args(PaperSet)
AUTHORS = "authors-code"
UNCROPPED = "uncropped"

NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,100}")
MAX_DOTS = 1000  # in a line: time and memory of tomllib grow with the square of the dots in a key


@dataclass(frozen=True, kw_only=True)
class OodSpec(Checked):
    """An OOD set: its name in tables, where its images come from, and whether they are near or far."""

    name: str
    images: str
    group: Literal["near", "far", ""] = ""


@dataclass(frozen=True, kw_only=True)
class ShiftedSpec(Checked):
    """ID images of another look, which a full spectrum counts as ID.

    `preprocessing = "uncropped"`: they have their final size already.
    """

    name: str
    images: str
    preprocessing: Literal["uncropped", ""] = ""


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Checked):
    """A network: a zoo name or what `--model` accepts, and its name in tables, weights, family, head.

    `checkpoints` is a pattern of files below the folder of weights, each a training run of the same network. `classes`
    is a file of class names and `prompt` the sentence around them, for a model that compares images with texts.
    """

    name: str
    label: str = ""
    weights: str = ""
    checkpoints: str = ""
    family: str = ""
    preprocessing: Literal["native", "paper", ""] = ""
    head: str = ""  # the layer that gives the logits, where it is not found
    classes: str = ""
    prompt: str = ""

    @property
    def title(self) -> str:
        """The name in tables."""
        return self.label or self.name


@dataclass(frozen=True, kw_only=True)
class Benchmark(Checked):
    """An ID set, OOD sets, networks and hyperparameters.

    >>> Benchmark.load("digits").name
    'digits'

    Attributes:
        name: Name in tables.
        title: Title of the report.
        settings: Hyperparameters: general, the paper's for an ID set, or its published code's.
        id_set: The paper's ID set, if neither settings nor catalogued images say it.
        preprocessing: Preprocessing of all networks; native: each network's own.
        real: The OOD set that studies use as real OOD data; empty: the largest.
        train: ID images to fit on.
        test: ID images to test on.
        ood: OOD sets.
        models: Networks.
        val: ID images that are neither trained nor tested on.
        ood_val: OOD images by which settings may be chosen on request.
        shifted: Covariate-shifted ID sets.
        spectrum: fs: the shifted sets count as ID.
        base: Folder that relative paths start from.
        hash: Hash of the text.
        text: The TOML text, if any.
        shipped: Whether it comes with the package.
    """

    name: str
    title: str = ""
    settings: Settings = "general"  # whose hyperparameters: general, the paper's for an ID set, its published code's
    id_set: PaperSet | Literal[""] = ""  # the paper's ID set, where neither settings nor catalogued images say it
    preprocessing: Literal["native", "paper"] = "native"
    real: str = ""  # the OOD set that studies take for real OOD data; "": the largest
    train: str
    test: str
    ood: tuple[OodSpec, ...]
    models: tuple[ModelSpec, ...]
    val: str = ""  # ID images that are neither trained nor tested on
    shifted: tuple[ShiftedSpec, ...] = ()
    spectrum: str = ""  # fs: the shifted sets are ID too
    base: Path = Path()  # paths in the file are relative to this folder
    hash: str = ""
    text: str = ""  # the TOML that it was read from, if any
    shipped: bool = False  # comes with the package

    @staticmethod
    def names() -> list[str]:
        """List the benchmarks that come with the package.

        Returns:
            Their names.
        """
        found = [file.name.removesuffix(".toml") for file in files("oodshape.benchmark.specs").iterdir()]
        return sorted(name for name in found if not name.startswith("_"))

    @classmethod
    def load(cls, name_or_file: str | Path) -> Benchmark:
        """Load a benchmark.

        Args:
            name_or_file: A name from `names`, or a TOML file.

        Returns:
            The benchmark.

        Raises:
            InputError: If there is no such benchmark, or the file is wrong.
        """
        path, shipped = Path(name_or_file), cls.names()
        if str(name_or_file) in shipped:
            text = (files("oodshape.benchmark.specs") / f"{name_or_file}.toml").read_text(encoding="utf-8")
            return replace(cls.parse(text, where=f"benchmark {name_or_file}", base=Path.cwd()), shipped=True)
        if path.suffix != ".toml" or not path.is_file():
            there = f"there are {', '.join(shipped)}, or give a .toml file"
            raise unknown("benchmark", str(name_or_file), shipped, there)
        with reading(path):
            text = read_short_text(path)
        return cls.parse(text, where=str(path), base=path.resolve().parent)

    @classmethod
    def parse(cls, text: str, *, where: str, base: Path) -> Benchmark:
        """Read a benchmark from a TOML text.

        Args:
            text: The text.
            where: Where it comes from, for messages.
            base: Folder that relative paths start from.

        Returns:
            The benchmark.

        Raises:
            InputError: If a key or value is wrong; the message names it.
        """
        with reading(where, "it must be a benchmark in TOML"):
            if any(line.count(".") > MAX_DOTS for line in text.splitlines()):
                raise InputError(f"a line has more than {MAX_DOTS} dots; split it")
            data = tomllib.loads(text)
            inside = _table(data.pop("id", None), "[id]", ("train", "test", "val"), ("train", "test"))
            kinds = {"ood": OodSpec, "models": ModelSpec} | ({"shifted": ShiftedSpec} if "shifted" in data else {})
            items: dict[str, Any] = {key: _list(data, key, kind) for key, kind in kinds.items()}
            _table(data, "the file", ("name", "title", "settings", "id_set", "preprocessing", "real"), ("name",))
            if not NAME.fullmatch(data["name"]):  # results go to a folder of this name
                raise InputError(
                    f"name must be 1 to 100 letters, digits, '.', '_' or '-', and not start with '.', got "
                    f"{one_line(data['name'], 60)!r}"
                )
            made = cls(**data, **inside, **items, base=base, hash=compute_fingerprint(text), text=text)
            oods = [ood.name for ood in made.ood]
            if made.real not in ("", *oods):
                raise InputError(f"real must be one of {', '.join(oods)}, got {made.real!r}")
            oods += [look.name for look in made.shifted]
            for kind, names in (("OOD set", oods), ("model", [model.title for model in made.models])):
                twice = [name for name in names if names.count(name) > 1]
                if twice:
                    raise InputError(f"two entries for the {kind} {twice[0]!r}; rename one")
            return made

    def full_spectrum(self) -> Benchmark:
        """Count the covariate-shifted images as ID.

        Returns:
            The benchmark under another name.

        Raises:
            InputError: If it has no shifted images.
        """
        if not self.shifted:
            raise InputError(f"{self.name} has no shifted ID images, and so no full spectrum")
        return replace(self, name=f"{self.name}-fs", title=f"{self.title}, full spectrum (fs)", spectrum="fs")

    @property
    def of_paper(self) -> PaperSet | Literal[""]:
        """Which of the paper's ID sets this is, as its settings, its file or its catalogued images say; or nothing."""
        catalogued = self.train.removeprefix("catalog:").partition("/")[0]
        said = (self.settings, self.id_set, catalogued)
        return next((known for name in said for known in ID_SETS if known == name), "")

    def with_settings(self, settings: Settings) -> Benchmark:
        """Use other hyperparameters.

        Args:
            settings: general, imagenet, cifar10, cifar100, or those of the published code.

        Returns:
            The benchmark with the same ID set.
        """
        return replace(self, id_set=self.of_paper, settings=settings)

    @property
    def pooled(self) -> tuple[ShiftedSpec, ...]:
        """The shifted sets that count as ID."""
        return self.shifted if self.spectrum else ()

    def chosen(self, models: list[str]) -> tuple[ModelSpec, ...]:
        """Select networks.

        Args:
            models: Ids or display names, in any case; empty: all.

        Returns:
            The networks.

        Raises:
            InputError: If there is no such network.
        """
        known = {name.casefold(): spec for spec in self.models for name in (spec.name, spec.title)}
        known |= {spec.name.partition(":")[2].casefold(): spec for spec in self.models if ":" in spec.name}
        for name in models:
            if name.casefold() not in known:
                titles = ", ".join(spec.title for spec in self.models)
                raise InputError(f"{self.name} has no model {name!r}; there are {titles}")
        asked = {known[name.casefold()] for name in models}
        return tuple(spec for spec in self.models if not models or spec in asked)


def _list(data: dict[str, Any], key: str, kind: type[Any]) -> tuple[Any, ...]:
    """The values of a kind from a list of tables."""
    items = data.pop(key, None)
    if not isinstance(items, list) or not items:
        raise InputError(f"at least one [[{key}]] is needed")
    names = [field.name for field in fields(kind)]
    needed = [field.name for field in fields(kind) if field.default is MISSING]
    return tuple(kind(**_table(item, f"[[{key}]]", names, needed)) for item in items)


def _table(item: Any, where: str, names: Sequence[str], needed: Sequence[str]) -> dict[str, Any]:
    """The table itself, once its keys and values are what they should be."""
    if not isinstance(item, dict):
        raise InputError(f"{where} must be a table with {', '.join(needed)}")
    for key in item:
        if key not in names:
            raise unknown(f"key of {where}", key, names)
    for key in needed:
        if not item.get(key):
            raise InputError(f"{where} needs {key!r}")
    return item
