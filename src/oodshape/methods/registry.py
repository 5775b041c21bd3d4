"""Methods from their records, and the resolver of method names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.user_code import import_object
from oodshape.methods.detector import Method
from oodshape.methods.perturb.step import Step
from oodshape.methods.records import GROUP, PACKAGE, RECORDS, Record, Spec, check_method, find_registered, merge_recipe
from oodshape.methods.slots import HeadRecipe, ScoreRecipe, Shaper


def make_method(record: Record, *changes: Spec) -> Method:
    """Make the method of a record, with changed settings or another class in a slot.

    >>> make_method(RECORDS["dice"], {"head": {"p": 0.9}}).head
    Dice(p=0.9)
    """
    spec = record.recipe
    if isinstance(spec, Method):
        return spec
    for change in changes:
        spec = merge_recipe(spec, change)
    return Method(**{slot: _build(piece) for slot, piece in spec.items()})


_general = cache(make_method)  # records are compared by identity


def _build(spec: Any) -> Any:
    if isinstance(spec, list):
        return tuple(map(_build, spec))
    if not isinstance(spec, Mapping):
        return spec
    module, _, name = spec["use"].partition(":")
    settings = {key: _build(value) for key, value in spec.items() if key != "use"}
    return getattr(import_module(f"{PACKAGE}.{module}"), name)(**settings)


class Methods(Mapping[str, Method]):
    """The methods that score features, by id, with general settings; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Method:
        if RECORDS[name].images_only:
            raise KeyError(name)
        return _general(RECORDS[name])

    def __iter__(self) -> Iterator[str]:
        return (name for name, record in RECORDS.items() if not record.images_only)

    def __len__(self) -> int:
        return sum(1 for _ in self)


METHODS: Mapping[str, Method] = Methods()


def paper_methods(id_set: str) -> dict[str, Method]:
    """Return the methods with the paper's hyperparameters; methods that it does not have keep the general settings.

    Args:
        id_set: imagenet, cifar10 or cifar100.

    Returns:
        Methods by id.

    >>> paper_methods("cifar10")["ash-s"].shape
    AshS(p=0.95)
    """
    return _make_for(id_set, "paper")


def authors_methods(id_set: str) -> dict[str, Method]:
    """Return the methods as the paper's published code runs them, where that differs from the paper.

    theta has the norm 1000, and VRA-P's limits on CIFAR are values, not percentiles.

    Args:
        id_set: imagenet, cifar10 or cifar100.

    Returns:
        Methods by id.

    >>> authors_methods("cifar10")["vra-p"].shape
    VraP(low=0.6, high=0.95, absolute=True)
    """
    return _make_for(id_set, "paper", "authors")


@dataclass(frozen=True)
class OpenOODSetting:
    """A method as OpenOOD runs it, and the set it is fitted on (train or val)."""

    method: Method
    fit: str = "train"


def openood_settings(std: tuple[float, ...] = (1.0,)) -> dict[str, OpenOODSetting]:
    """Return the methods as OpenOOD v1.5 runs them, by our ids; it has no settings for others.

    The records have them from its source (github.com/Jingkang50/OpenOOD at 3c35632, configs/postprocessors).

    Args:
        std: That of the preprocessing, which scales the step of a perturbation.

    Returns:
        The settings by id.

    >>> openood_settings()["ash-b"].method.shape, openood_settings()["react"].fit
    (AshB(p=0.9), 'val')
    """
    found = {}
    for name, record in RECORDS.items():
        if record.openood:
            method = make_method(record, record.openood.get("settings", {}))
            method = replace(method, perturb=method.perturb.with_std(std))
            found[name] = OpenOODSetting(method, record.openood.get("fit", "train"))
    return found


def _make_for(id_set: str, *settings: str) -> dict[str, Method]:
    """The methods with these settings of their records for an ID set."""
    known = dict.fromkeys(each for record in RECORDS.values() for each in record.paper)
    if id_set not in known:
        raise InputError(f"the paper has no settings for {id_set!r}; choose one of {', '.join(known)}")
    records = {name: RECORDS[name] for name in METHODS}
    changes = {name: [getattr(each, kind).get(id_set, {}) for kind in settings] for name, each in records.items()}
    return {name: make_method(each, *changes[name]) for name, each in records.items()}


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
    known = find_registered(name)
    if known is not None:
        return known
    if ":" in name:
        return _own_record(name, import_object(name, "a method is package.module:Name, a Method or a recipe class"))
    check_method(name)
    [point, *_] = entry_points(group=GROUP, name=name)
    return _own_record(name, point.load())


def find_method(name: str, table: Mapping[str, Method] = METHODS) -> Method:
    """Find a method by its id or display name.

    Args:
        name: An id, a display name, "package.module:Name", or an entry point of another package.
        table: Where to look first, such as `paper_methods("cifar10")`.

    Returns:
        The method.

    Raises:
        InputError: If there is no such method; the message names the nearest.

    >>> find_method("react").shape
    ReAct(q=0.9)
    """
    return table[name] if name in table else _general(find_record(name))


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
