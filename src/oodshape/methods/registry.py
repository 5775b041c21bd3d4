"""The records of the methods (records.toml), the tables made from them, and the resolver of method names.

This module is light: it is imported without torch, and a recipe's classes are imported when the recipe is used.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module, resources
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from oodshape.core.errors import InputError, no_such
from oodshape.core.own_code import import_object

if TYPE_CHECKING:
    from oodshape.methods.detector import Method

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


@dataclass(frozen=True, kw_only=True)
class Record:
    """Everything that is known about a method; the header of records.toml explains the fields."""

    id: str
    name: str
    recipe: Spec | Method
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

    @cached_property
    def method(self) -> Method:
        """The recipe with its general settings."""
        return self.changed({})

    def changed(self, *changes: Spec) -> Method:
        """Return the recipe with changed settings, or with another class in a slot."""
        if not isinstance(self.recipe, Mapping):
            return self.recipe
        from oodshape.methods.detector import Method

        spec: Spec = self.recipe
        for change in changes:
            spec = merge(spec, change)
        return Method(**{slot: _build(piece) for slot, piece in spec.items()})


def merge(spec: Spec, changes: Spec) -> Spec:
    """Return a recipe with changes; a piece with another class replaces the whole piece.

    >>> merge({"head": {"use": "heads:Dice", "p": 0.7}}, {"head": {"p": 0.9}})
    {'head': {'use': 'heads:Dice', 'p': 0.9}}
    """
    made = dict(spec)
    for key, value in changes.items():
        inner = isinstance(value, Mapping) and "use" not in value
        made[key] = merge(made.get(key, {}), value) if inner else value
    return made


def _build(spec: Any) -> Any:
    if isinstance(spec, list):
        return tuple(map(_build, spec))
    if not isinstance(spec, Mapping):
        return spec
    module, _, name = spec["use"].partition(":")
    settings = {key: _build(value) for key, value in spec.items() if key != "use"}
    return getattr(import_module(f"{PACKAGE}.{module}"), name)(**settings)


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


class Methods(Mapping[str, "Method"]):
    """The methods that score features, by id, with general settings; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Method:
        if RECORDS[name].images_only:
            raise KeyError(name)
        return RECORDS[name].method

    def __iter__(self) -> Iterator[str]:
        return (name for name, record in RECORDS.items() if not record.images_only)

    def __len__(self) -> int:
        return sum(1 for _ in self)


METHODS: Mapping[str, Method] = Methods()


def import_types() -> None:
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


def paper_methods(id_set: str) -> dict[str, Method]:
    """The methods with the paper's hyperparameters for `imagenet`, `cifar10` or `cifar100`.

    Methods that the paper does not have keep their general settings.

    >>> paper_methods("cifar10")["ash-s"].shape
    AshS(p=0.95)
    """
    _check_id_set(id_set)
    return {name: RECORDS[name].changed(RECORDS[name].paper.get(id_set, {})) for name in METHODS}


def authors_methods(id_set: str) -> dict[str, Method]:
    """The methods as the paper's published code runs them, where that differs from the paper.

    theta has the norm 1000, and VRA-P's limits on CIFAR are values, not percentiles.

    >>> authors_methods("cifar10")["vra-p"].shape
    VraP(low=0.6, high=0.95, absolute=True)
    """
    _check_id_set(id_set)
    records = {name: RECORDS[name] for name in METHODS}
    return {
        name: each.changed(each.paper.get(id_set, {}), each.authors.get(id_set, {})) for name, each in records.items()
    }


def _check_id_set(id_set: str) -> None:
    known = dict.fromkeys(each for record in RECORDS.values() for each in record.paper)
    if id_set not in known:
        raise InputError(f"the paper has no settings for {id_set!r}; choose one of {', '.join(known)}")


def registered(name: str) -> Record | None:
    """The record of the package with this id or display name."""
    shown = (each for each in RECORDS.values() if name.casefold() in (each.id, each.name.casefold()))
    return RECORDS.get(name) or next(shown, None)


def find_record(name: str) -> Record:
    """Find a method by its id or display name, as "package.module:Name", or as an entry point of another package.

    "package.module:Name" is a Method, a recipe for one of its slots, or the class of one; modules of the working
    directory are found too. Only give names that you trust: the module is imported.

    >>> find_record("OptFS (E)").id
    'optfs-e'
    >>> find_record("raect")
    Traceback (most recent call last):
    oodshape.core.errors.InputError: no method is called 'raect'; did you mean react? `oodshape methods` lists them
    """
    known = registered(name)
    if known is not None:
        return known
    if ":" in name:
        return _own_record(name, import_object(name, "a method is package.module:Name, a Method or a recipe class"))
    for point in entry_points(group=GROUP, name=name):
        return _own_record(name, point.load())
    raise no_such("method", name, RECORDS, "`oodshape methods` lists them")


def find_method(name: str, table: Mapping[str, Method] = METHODS) -> Method:
    """Find a method in a table, such as `paper_methods("cifar10")`, or with general settings as `find_record` does.

    >>> find_method("react").shape
    ReAct(q=0.9)
    """
    return table[name] if name in table else find_record(name).method


def _own_record(name: str, found: Any) -> Record:
    """The record of a method that is defined elsewhere; its summary is the first line of its docstring."""
    method = as_method(found, name)
    summary, *_ = (getattr(found, "__doc__", None) or "").strip().splitlines() or [""]
    return Record(id=name, name=name.rpartition(":")[2], recipe=method, summary=summary.rstrip("."))


def as_method(value: Any, name: str = "") -> Method:
    """Return the method that a Method, a recipe for one slot, or the class of one stands for.

    >>> from oodshape.methods.shapes.clipping import ReAct
    >>> as_method(ReAct(q=0.9)) == as_method(ReAct) == METHODS["react"]
    True
    """
    from oodshape.methods.base import HeadRecipe, ScoreRecipe, Shaper
    from oodshape.methods.detector import Method
    from oodshape.methods.perturb.none import Step

    try:
        made = value() if isinstance(value, type) else value
    except Exception as error:
        raise InputError(f"{name or value.__name__}() failed: {error}; its settings need defaults") from error
    if isinstance(made, Method):
        return made
    slots: dict[str, Any] = {"shape": Shaper, "head": HeadRecipe, "score": ScoreRecipe, "perturb": Step}
    for slot, kind in slots.items():
        if isinstance(made, kind):
            return Method(**{slot: made})
    found = type(made).__name__
    raise InputError(f"{name or 'a method'} must be a Method, or a recipe for one of its slots, got {found}")
