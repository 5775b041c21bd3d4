"""The records of the methods, read from records.toml.

This module is light: it is imported without torch. `registry` makes methods of the records, and imports their classes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module, resources
from importlib.metadata import entry_points
from typing import Any

from oodshape.core.errors import unknown

Spec = Mapping[str, Any]  # slots of a Method, each {"use": "module:Class", **settings}, or changes of these
PACKAGE = "oodshape.methods"
GROUP = "oodshape.methods"  # entry points of other packages
OWN = "own"  # family and block of a method that has no record in the package
# the code that tests compare methods with
REFERENCES = {
    "optfs": "the code of OptFS's authors, with the paper's settings: AUROC within 0.05 points on three networks",
    "pytorch-ood": "pytorch-ood 0.4, on the same features",
    "openood": "the formulas of OpenOOD v1.5, with `--settings openood`, on DenseNet-101",
    "steps": "the steps of OpenOOD's implementation, on a small network",
}


@dataclass(frozen=True)
class Deviation:
    """A difference between the reference code and this package, and what it changes."""

    what: str
    theirs: str
    here: str
    difference: str = "not measured"


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """Everything that is known about a method; the header of records.toml explains the fields."""

    id: str
    name: str
    recipe: Spec | Any  # a Method where it is custom
    summary: str = ""
    needs: str = ""
    fails: str = ""
    family: str = OWN
    block: str = OWN
    citation: str = ""
    code: str = ""
    paper: Mapping[str, Spec] = field(default_factory=dict)
    authors: Mapping[str, Spec] = field(default_factory=dict)
    openood: Mapping[str, Any] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    checked_against: tuple[str, ...] = ()
    role: str = ""  # baseline or featured: reports and guards compare other methods with it
    candidate: bool = False  # whether `auto` chooses among it and others
    images_only: bool = False  # whether it cannot score features; a benchmark runs it where it is named


def merge_recipe(spec: Spec, changes: Spec) -> Spec:
    """Return a recipe with changes; a piece with another class replaces the whole piece.

    >>> merge_recipe({"head": {"use": "heads:Dice", "p": 0.7}}, {"head": {"p": 0.9}})
    {'head': {'use': 'heads:Dice', 'p': 0.9}}
    """
    made = dict(spec)
    for key, value in changes.items():
        inner = isinstance(value, Mapping) and "use" not in value
        made[key] = merge_recipe(made.get(key, {}), value) if inner else value
    return made


def _read_records() -> dict[str, Record]:
    tables = tomllib.loads(resources.files(PACKAGE).joinpath("records.toml").read_text(encoding="utf-8"))
    found = {}
    for name, own in tables.items():
        fields = {**tables.get(own.get("like"), {}), **own}
        fields.pop("like", None)
        deviations = tuple(Deviation(**each) for each in fields.pop("deviations", ()))
        against = tuple(fields.pop("checked_against", ()))
        found[name] = Record(id=name, deviations=deviations, checked_against=against, **fields)
    return found


RECORDS = _read_records()
BASELINE, FEATURED = (
    next(record.id for record in RECORDS.values() if record.role == role) for role in ("baseline", "featured")
)


def import_method_types() -> None:
    """Import every class that a record names: files name types, and only known types are made."""

    def modules(spec: Any) -> Iterator[str]:
        if isinstance(spec, Mapping):
            yield from (spec["use"].partition(":")[0],) if isinstance(spec.get("use"), str) else ()
        for inner in spec.values() if isinstance(spec, Mapping) else spec if isinstance(spec, list) else ():
            yield from modules(inner)

    for record in RECORDS.values():
        for spec in (record.recipe, record.paper, record.openood):
            for module in modules(spec):
                import_module(f"{PACKAGE}.{module}")


def find_registered(name: str) -> Record | None:
    """The record of the package with this id or display name."""
    shown = (each for each in RECORDS.values() if name.casefold() in (each.id, each.name.casefold()))
    return RECORDS.get(name) or next(shown, None)


def check_method(name: str) -> None:
    """Refuse a name that is neither registered, nor "package.module:Name", nor an entry point of another package."""
    if find_registered(name) is None and ":" not in name and not entry_points(group=GROUP, name=name):
        raise unknown("method", name, RECORDS, "`oodshape methods` lists them")
