"""Frozen values: recipes and fitted things that print, compare, hash, save, and check their fields.

A field's annotation is its rule: numbers are finite, arrays have their type and hold finite numbers, values, tuples,
literals and None are what the annotation says. `Annotated` adds to it: the sizes of an array by letters, each the same
in all fields of a value, and limits.

    means: Annotated[NDArray[np.float32], Sizes("C M")]
    k: Annotated[int, AtLeast(1)]
    q: Annotated[float, Fraction()]
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import types
import warnings
from collections import UserString
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)
from weakref import WeakKeyDictionary

import numpy as np

from oodshape.core import files
from oodshape.core.errors import InputError, check_fraction, check_trust
from oodshape.core.files import reading
from oodshape.core.user_code import import_object

if TYPE_CHECKING:  # a service reads values without it
    import torch

V = TypeVar("V", bound="Value")
Json = Any
PACKAGE = __name__.partition(".")[0]
LARGEST = sys.float_info.max  # NaN, infinity and larger whole numbers are no finite numbers


class Sizes(NamedTuple):
    """The sizes of an array: a letter for each axis. M is the number of features, C that of classes."""

    letters: str


class AtLeast(NamedTuple):
    """The smallest value that a number, or each number of an array, may have."""

    least: float


class Positive(NamedTuple):
    """A number above 0."""


class Fraction(NamedTuple):
    """A number between 0 and 1, these limits excluded unless said otherwise."""

    zero: bool = False
    one: bool = False


class Ascending(NamedTuple):
    """Each number of an array is at least the one before it; more than it where `strictly`."""

    strictly: bool = False


def check_fields(value: Any) -> None:
    """Refuse a dataclass with a field that does not hold what its annotation says."""
    letters: dict[str, int] = {}
    for name, (hint, rules) in _field_rules(type(value)).items():
        item = getattr(value, name)
        where = f"{type(value).__name__}.{name}"
        _check(item, hint, where)
        if item is not None:
            for rule in rules:
                _hold(item, rule, where, letters)


class Checked:
    """The base of dataclasses that refuse a field which does not hold what its annotation says."""

    def __post_init__(self) -> None:
        check_fields(self)


def list_sizes(value: Any) -> Iterator[tuple[str, str, int]]:
    """(type, letter, size) for the arrays of a value, and of all values inside it, in its tuples too."""
    if isinstance(value, tuple):
        for item in value:
            yield from list_sizes(item)
        return
    for name, (_, rules) in _field_rules(type(value)).items():
        item = getattr(value, name)
        for rule in rules:
            if isinstance(rule, Sizes) and item is not None:
                sizes = zip(rule.letters.split(), item.shape, strict=True)
                yield from ((type(value).__name__, letter, size) for letter, size in sizes)
        yield from list_sizes(item)


Rules = dict[str, tuple[Any, tuple[Any, ...]]]
_known: WeakKeyDictionary[type, Rules] = WeakKeyDictionary()  # a class of a cell that runs again goes away


def _field_rules(kind: type) -> Rules:
    """For each field of a dataclass its annotation without `Annotated`, and what `Annotated` adds."""
    if kind not in _known:  # no functools.cache: a tracer cannot enter it
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
            raise InputError(
                f"{where} must be one of {', '.join(filter(None, map(str, arguments)))}, got {_brief(item)}"
            )
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
        number: Any = item if isinstance(item, Real) and not isinstance(item, bool) else np.nan
        _must(abs(number) <= LARGEST, where, "a finite number", item)
    elif isinstance(hint, type):
        _must(isinstance(item, hint), where, f"a {hint.__name__}", item)
        _must(not isinstance(item, str) or _is_text(item), where, "text", item)


def _is_text(item: str) -> bool:
    """Whether a file can hold it: names of files may be any bytes, but halves of other characters are damage."""
    try:
        item.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


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
        check_sizes(item, rule.letters.split(), where, letters)
    elif isinstance(rule, AtLeast):
        lowest = item if not isinstance(item, np.ndarray) else item.min() if item.size else rule.least
        if not lowest >= rule.least:
            raise InputError(f"{where} must be at least {rule.least:g}, got {lowest}")
    elif isinstance(rule, Positive):
        if not item > 0:
            raise InputError(f"{where} must be positive, got {item:g}")
    elif isinstance(rule, Fraction):
        check_fraction(where, item, zero=rule.zero, one=rule.one)
    elif isinstance(rule, Ascending):
        sound = (item[1:] > item[:-1]) if rule.strictly else (item[1:] >= item[:-1])
        if not sound.all():
            raise InputError(f"{where} must ascend; number {int(np.argmin(sound)) + 1} does not")


def check_sizes(item: Any, names: Sequence[str], where: str, letters: dict[str, int]) -> None:
    """Refuse an array that is empty or has other axes; `letters` keeps the size of each axis by its name."""
    if item.ndim != len(names) or 0 in item.shape:
        raise InputError(f"{where} must have {len(names)} axes ({' '.join(names)}), got shape {list(item.shape)}")
    for letter, size in zip(names, item.shape, strict=True):
        if letters.setdefault(letter, size) != size:
            raise InputError(f"{where} has {size} for {letter}, another field has {letters[letter]}")


def _must(sound: bool, where: str, wanted: str, item: Any) -> None:
    if not sound:
        raise InputError(f"{where} must be {wanted}, got {_brief(item)}")


def _then_checked(own: Callable[[Any], None]) -> Callable[[Any], None]:
    """A class's own __post_init__, with the check of all fields after the last of them."""

    @wraps(own)
    def post_init(self: Any) -> None:
        own(self)
        if type(self).__post_init__ is post_init:
            check_fields(self)

    return post_init


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(dataclasses.field,))
class Value:
    """The base of all that a detector is made of: each subclass is a frozen dataclass, unless it is `abstract`.

    Equality, hash and repr come from here and know arrays. Each subclass is known by its name, so that files name types
    and never hold code.
    """

    known: ClassVar[dict[str, type[Value]]] = {}  # by `_name_type`
    later: ClassVar[list[Callable[[], None]]] = []  # imports of further types, for a file that names an unknown one
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        """Make the subclass known by its name; a cell or module that runs again replaces its own classes only."""
        super().__init_subclass__(**kwargs)
        name = _name_type(cls)
        other = Value.known.get(name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{name} of {cls.__module__} has the name of a type of {other.__module__}: rename it")
        Value.known[name] = cls
        if "__post_init__" in cls.__dict__:
            cls.__post_init__ = _then_checked(cls.__dict__["__post_init__"])  # type: ignore[method-assign]
        if not abstract:
            dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
            del cls.__setattr__, cls.__delattr__  # those below do: the decorator may be there, too

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    @_then_checked
    def __post_init__(self) -> None:
        """Nothing by itself: fields that do not hold what they are declared to are refused after it."""

    def _items(self) -> list[tuple[str, Any]]:
        fields = dataclasses.fields(cast(Any, self))
        return [(field.name, getattr(self, field.name)) for field in fields]

    def traced(self: V) -> V:
        """An equal value for a graph: plain torch alone, and no cached tensor shared with this one."""
        return type(self)(**{name: _traced(value) for name, value in self._items()})

    def __eq__(self, other: object) -> bool:
        """Whether both have the same type and equal fields, arrays element by element."""
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Value)
        pairs = zip(self._items(), other._items(), strict=True)
        return all(_equal(mine, theirs) for (_, mine), (_, theirs) in pairs)

    def __hash__(self) -> int:
        """A hash that equal values share."""
        return hash((type(self), *(_hashable(value) for _, value in self._items())))

    def __repr__(self) -> str:
        """The call that makes this value; arrays by type and shape."""
        inside = ", ".join(f"{name}={_shown(value)}" for name, value in self._items())
        return f"{type(self).__name__}({inside})"


def reseed(value: V, seed: int) -> V:
    """Return the value with `seed` added to every seed inside it."""

    def moved(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple(map(moved, item))
        return reseed(item, seed) if isinstance(item, Value) else item

    fields = {name: item + seed if name == "seed" else moved(item) for name, item in value._items()}
    changed = {name: item for name, item in fields.items() if not _equal(item, getattr(value, name))}
    return dataclasses.replace(cast(Any, value), **changed) if changed else value


def _name_type(kind: type[Value]) -> str:
    """What files call a type: its own name in the package, "module:qualified.name" elsewhere.

    >>> _name_type(ArrayValue)
    'ArrayValue'
    """
    inside = kind.__module__.partition(".")[0] == PACKAGE
    return kind.__name__ if inside else f"{kind.__module__}:{kind.__qualname__}"


def _find_type(name: str, *, trust_code: bool = False) -> type[Value]:
    """Return the type that a file calls by this name; a module that is not imported yet is code that the file names."""
    if name not in Value.known:
        for import_more in Value.later:
            import_more()
    module, mark, inner = name.rpartition(":")
    if name not in Value.known and not mark:
        raise InputError(f"unknown type {name!r}; the file was written by a newer oodshape")
    if name not in Value.known and module != "__main__":
        check_trust(f"the file names code, the type {name!r} of a module that is not imported", trust_code)
        import_object(name, "the file holds a value of this type")
    if name in Value.known:
        return Value.known[name]
    # the script that wrote the file may be a module to the program that reads it
    found = [known for known in Value.known if ":" in known and known.rpartition(":")[2] == inner]
    if len(found) > 1:
        raise InputError(f"the file's type {inner!r} may be any of {', '.join(found)}; import only the one it is")
    if not found:
        raise InputError(
            f"the file holds the type {inner!r} of the program that wrote it; import the module that defines it "
            "before loading"
        )
    return Value.known[found[0]]


class ArrayValue(Value, abstract=True):
    """A value with frozen float32 array fields that are also available as tensors."""

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name, value in self._items():
            if isinstance(value, (np.ndarray, list)):
                object.__setattr__(self, name, copy_frozen(value, np.float32))

    @cached_property
    def _tensors(self) -> dict[str, torch.Tensor]:
        import torch

        with warnings.catch_warnings():  # the arrays are frozen, and only ever read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return {name: torch.from_numpy(value) for name, value in self._items() if isinstance(value, np.ndarray)}

    def tensor(self, name: str, like: torch.Tensor) -> torch.Tensor:
        """An array field as a tensor on the device of `like`: float64 where `like` is, else float32."""
        tensor = self._tensors[name].to(like.device)
        return tensor.double() if like.is_floating_point() and like.element_size() == 8 else tensor

    def keep(self, name: str, like: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What `make` computes of array fields alone: kept for each device and type of `like`, but not in a graph."""
        import torch

        if torch.compiler.is_compiling():
            return make()
        place = f"{name} {like.device} {like.dtype}"
        if place not in self._tensors:
            with torch.inference_mode(mode=False), torch.no_grad():  # a tensor that any later computation may use
                self._tensors[place] = make()
        return self._tensors[place]


def copy_frozen(values: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """A read-only copy of `values` as a numpy array; one that is read-only and its own already is not copied.

    What the type cannot hold becomes infinite or is refused.
    """
    given = np.asarray(values)
    if given.dtype == dtype and given.flags.owndata and given.flags.c_contiguous and not given.flags.writeable:
        return given
    if np.dtype(dtype).kind == "i" and given.size:
        limits = np.iinfo(dtype)
        if given.dtype.kind not in "iu" or given.min() < limits.min or given.max() > limits.max:
            raise InputError(f"an array must hold {np.dtype(dtype)}, got {given.dtype}{list(given.shape)}")
    with np.errstate(over="ignore"):
        return freeze_array(np.array(given, dtype, order="C"))


def freeze_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Make an array read-only, so that a value can use it without a copy."""
    array.flags.writeable = False
    return array


def encode_value(value: Any, tensors: dict[str, np.ndarray[Any, Any]], name: str = "value") -> Json:
    """The value as JSON, its arrays put into `tensors` under dotted names."""
    if isinstance(value, Value):
        fields = {key: encode_value(item, tensors, f"{name}.{key}") for key, item in value._items()}
        return {"type": _name_type(type(value)), **fields}
    if isinstance(value, np.ndarray):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, (tuple, list)):
        return [encode_value(item, tensors, f"{name}.{i}") for i, item in enumerate(value)]
    return str(value) if isinstance(value, UserString) else value


def decode_value(data: Json, tensors: dict[str, np.ndarray[Any, Any]], *, trust_code: bool = False) -> Any:
    """Restore a value that `encode_value` wrote; nothing is imported without `trust_code`."""
    if isinstance(data, list):
        return tuple(decode_value(item, tensors, trust_code=trust_code) for item in data)
    if not isinstance(data, dict):
        return data
    if "tensor" in data:
        return tensors[data["tensor"]]
    if not isinstance(data.get("type"), str):
        raise InputError(f"the file is damaged: {data.get('type')!r} is no name of a type")
    fields = {key: decode_value(item, tensors, trust_code=trust_code) for key, item in data.items() if key != "type"}
    kind = _find_type(data["type"], trust_code=trust_code)
    if not dataclasses.is_dataclass(kind):
        raise InputError(f"the file is damaged: the type {data['type']} is abstract")
    return kind(**fields)


def _traced(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_traced(item) for item in value)
    return value.traced() if isinstance(value, Value) else value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return hashlib.sha256(value.tobytes()).digest()
    return value


def _shown(value: Any) -> str:
    return f"<{value.dtype}{list(value.shape)}>" if isinstance(value, np.ndarray) else repr(value)


def _brief(value: Any) -> str:
    text = _shown(value)
    return text if len(text) <= 60 else f"{text[:60]} ..."


def load_values(path: str | Path, kind: str, *names: str, trust_code: bool = False) -> list[Any]:
    """Load named values from a file of the given kind; None for a name that it does not have."""
    header, tensors = files.load_file(path, kind)
    with reading(path, files.WAY_OUT.get(kind, "")):
        return [decode_value(json.loads(header.get(name, "null")), tensors, trust_code=trust_code) for name in names]
