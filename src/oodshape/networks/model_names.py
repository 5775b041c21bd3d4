"""What can be said of the name of a network without torch: the forms of names, and the zoo, from `model_names.csv`."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from oodshape.core.errors import InputError
from oodshape.core.files import read_short_text, reading

Family = Literal["ConvNet", "transformer", "MLP"]


class KnownModel(NamedTuple):
    """Facts about a network that need no building."""

    family: Family
    id_set: str
    classes: int
    made_by: str  # the library, or `own`, and its name there
    paper: str  # the preprocessing behind the paper's tables: normalisation, resize, crop, interpolation
    native: str  # that which the weights were made for
    authors: str  # the file of weights among the checkpoints of the paper's authors


_TEXT = (files("oodshape.networks") / "model_names.csv").read_text(encoding="utf-8")
KNOWN: dict[str, KnownModel] = {
    row.pop("name"): KnownModel(**row | {"classes": int(row["classes"])})  # type: ignore[arg-type]  # a table of ours
    for row in csv.DictReader(_TEXT.splitlines())
}
FORMS = (
    "timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, zoo:NAME, package.module:function (returns a network, or "
    "(network, Preprocessing)), or a torch.export archive FILE.pt2 that you trust"
)
WEIGHTS = (".pt", ".pth", ".safetensors", ".ckpt", ".bin")  # how files of weights end


@cache
def imagenet_classes() -> dict[str, str]:
    """Return ImageNet's 1,000 classes in the order of its networks: WordNet id -> name."""
    text = (files("oodshape.networks") / "imagenet_classes.tsv").read_text(encoding="utf-8")
    return dict(line.split("\t") for line in text.splitlines())


def readable_names(classes: Iterable[str]) -> tuple[str, ...]:
    """Replace WordNet ids, the names of ImageNet's class folders, by names.

    >>> readable_names(["n01440764", "my class"])
    ('tench', 'my class')
    """
    known = imagenet_classes()
    return tuple(known.get(each, each) for each in classes)


def check_spec(spec: str) -> None:
    """Refuse a text that names no network."""
    kind, _, name = spec.partition(":")
    if kind == "zoo" and name:
        check_zoo_name(name)
    elif not (name or spec.lower().endswith(".pt2") or Path(spec).is_file()):
        raise no_model_error(spec)


def no_model_error(spec: str) -> InputError:
    """The error for a text that names no network."""
    if Path(spec).suffix.lower() in WEIGHTS:
        return InputError(
            f"{spec} is a file of weights: give it with --weights (weights=...); --model names the network that "
            f"they belong to: {FORMS}"
        )
    hint = f"did you mean zoo:{spec}?" if spec in KNOWN else f"a model is {FORMS}"
    return InputError(f"{spec!r} names no model; {hint}")


def check_zoo_name(name: str) -> None:
    """Refuse a name that the zoo does not have, with those like it."""
    if name in KNOWN:
        return
    asked = name.lower()
    part = [known for known in KNOWN if len(asked) > 2 and (asked in known or known in asked)]
    close = difflib.get_close_matches(asked, KNOWN, n=4, cutoff=0.5)
    like = ", ".join(dict.fromkeys([*part, *close]))
    way_out = f"did you mean {like}?" if like else f"there are {', '.join(KNOWN)}"
    raise InputError(f"no network is called {name!r}; {way_out}")


def read_class_names(path: Path) -> tuple[str, ...]:
    """The names of the classes in a text file, one a line, in the network's order."""
    if not path.is_file():  # a pipe would be waited for, a device has no end
        raise InputError(f"cannot read the class names {path}: there is no such file")
    with reading(path, "class names are a text file with one name per line"):
        lines = read_short_text(path, "utf-8-sig").splitlines()
    return tuple(line.strip() for line in lines if line.strip())
