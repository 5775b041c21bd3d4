"""What the fields of a value may hold, said once where they are declared and checked where the value is made.

A field's annotation is its rule: numbers are finite, arrays have their type and hold finite numbers, values, tuples,
literals and None are what the annotation says. `Annotated` adds to it: the sizes of an array by letters, each the same
in all fields of a value, and limits.

    means: Annotated[NDArray[np.float32], Sizes("C M")]
    k: Annotated[int, AtLeast(1)]
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

import numpy as np

from oodshape.core.errors import InputError


class Sizes(NamedTuple):
    """The sizes of an array: a letter for each axis. M is the number of features, C that of classes."""

    letters: str


class AtLeast(NamedTuple):
    """The smallest value that a number, or each number of an array, may have."""

    least: float


class Ascending(NamedTuple):
    """Each number of an array is at least the one before it; more than it where `strictly`."""

    strictly: bool = False


def check_fields(value: Any) -> None:
    """Refuse a dataclass with a field that does not hold what its annotation says."""
    letters: dict[str, int] = {}
    for name, (hint, rules) in rules_of(type(value)).items():
        item = getattr(value, name)
        where = f"{type(value).__name__}.{name}"
        _check(item, hint, where)
        if item is not None:
            for rule in rules:
                _hold(item, rule, where, letters)


def sizes_inside(value: Any) -> Iterator[tuple[str, str, int]]:
    """(type, letter, size) for the arrays of a value, and of all values inside it, in its tuples too."""
    if isinstance(value, tuple):
        for item in value:
            yield from sizes_inside(item)
        return
    for name, (_, rules) in rules_of(type(value)).items():
        item = getattr(value, name)
        for rule in rules:
            if isinstance(rule, Sizes) and item is not None:
                sizes = zip(rule.letters.split(), item.shape, strict=True)
                yield from ((type(value).__name__, letter, size) for letter, size in sizes)
        yield from sizes_inside(item)


Rules = dict[str, tuple[Any, tuple[Any, ...]]]
_known: WeakKeyDictionary[type, Rules] = WeakKeyDictionary()  # a class of a cell that runs again goes away


def rules_of(kind: type) -> Rules:
    """For each field of a dataclass its annotation without `Annotated`, and what `Annotated` adds."""
    if kind not in _known:
        _known[kind] = _rules(kind)
    return _known[kind]


def _rules(kind: type) -> Rules:
    if not dataclasses.is_dataclass(kind):
        return {}
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError:  # a class of a user's own, whose annotations only a type checker can resolve
        return {}
    return {field.name: _split(hints[field.name]) for field in dataclasses.fields(kind)}


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(hint) is Annotated:
        plain, *rules = get_args(hint)
        return plain, tuple(rules)
    if get_origin(hint) in (Union, types.UnionType):  # Annotated[...] | None
        parts = [_split(part) for part in get_args(hint)]
        return Union[tuple(plain for plain, _ in parts)], tuple(rule for _, rules in parts for rule in rules)  # noqa: UP007
    return hint, ()


def _check(item: Any, hint: Any, where: str) -> None:
    """Refuse an item that is not what an annotation says; annotations that say nothing of use here are passed over."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        _check_union(item, arguments, where)
    elif origin is Literal:
        if not any(item == each and type(item) is type(each) for each in arguments):
            raise InputError(f"{where} must be one of {', '.join(map(str, arguments))}, got {_shown(item)}")
    elif origin is tuple:
        _check_tuple(item, arguments, where)
    elif origin is np.ndarray:
        _check_array(item, arguments, where)
    elif origin is dict:
        _must(isinstance(item, dict), where, "a table", item)
    elif hint is bool:
        _must(isinstance(item, (bool, np.bool_)), where, "true or false", item)
    elif hint is int:
        _must(isinstance(item, Integral) and not isinstance(item, bool), where, "a whole number", item)
    elif hint is float:
        _must(isinstance(item, Real) and not isinstance(item, bool) and _finite(item), where, "a finite number", item)
    elif isinstance(hint, type):
        _must(isinstance(item, hint), where, f"a {hint.__name__}", item)


def _check_union(item: Any, choices: tuple[Any, ...], where: str) -> None:
    refusals = []
    for choice in choices:
        try:
            return _check(item, choice, where)
        except InputError as error:
            refusals += [error] if choice is not type(None) else []
    raise refusals[0]


def _check_tuple(item: Any, kinds: tuple[Any, ...], where: str) -> None:
    many = len(kinds) == 2 and kinds[1] is Ellipsis
    _must(isinstance(item, tuple) and (many or len(item) == len(kinds)), where, "a list of the right length", item)
    for place, each in enumerate(item):
        _check(each, kinds[0] if many else kinds[place], f"{where}[{place}]")


def _check_array(item: Any, arguments: tuple[Any, ...], where: str) -> None:
    _must(isinstance(item, np.ndarray), where, "an array", item)
    wanted = get_args(arguments[1])[0] if get_args(arguments[1]) else Any
    if isinstance(wanted, type) and item.dtype != np.dtype(wanted):
        raise InputError(f"{where} must hold {np.dtype(wanted)}, got {item.dtype}")
    if item.dtype.kind not in "biuf":
        raise InputError(f"{where} must hold numbers, got {item.dtype}")
    if item.dtype.kind == "f" and not np.isfinite(item).all():
        raise InputError(f"{where} holds a NaN or infinite value")


def _hold(item: Any, rule: Any, where: str, letters: dict[str, int]) -> None:
    """Refuse an item that breaks a rule."""
    if isinstance(rule, Sizes):
        names = rule.letters.split()
        if item.ndim != len(names) or 0 in item.shape:
            raise InputError(f"{where} must have {len(names)} axes ({rule.letters}), got shape {list(item.shape)}")
        for letter, size in zip(names, item.shape, strict=True):
            if letters.setdefault(letter, size) != size:
                raise InputError(f"{where} has {size} for {letter}, another field has {letters[letter]}")
    elif isinstance(rule, AtLeast):
        lowest = item if not isinstance(item, np.ndarray) else item.min() if item.size else rule.least
        if not lowest >= rule.least:
            raise InputError(f"{where} must be at least {rule.least:g}, got {lowest}")
    elif isinstance(rule, Ascending):
        sound = (item[1:] > item[:-1]) if rule.strictly else (item[1:] >= item[:-1])
        if not sound.all():
            raise InputError(f"{where} must ascend; number {int(np.argmin(sound)) + 1} does not")


def _finite(item: Any) -> bool:
    try:
        return math.isfinite(item)
    except OverflowError:  # a whole number beyond all floats
        return False


def _must(sound: bool, where: str, wanted: str, item: Any) -> None:
    if not sound:
        raise InputError(f"{where} must be {wanted}, got {_shown(item)}")


def _shown(item: Any) -> str:
    text = f"{item.dtype}{list(item.shape)}" if isinstance(item, np.ndarray) else repr(item)
    return text if len(text) <= 60 else f"{text[:60]} ..."
