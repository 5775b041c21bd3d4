"""Frozen values: recipes and fitted things that print, compare, hash and save."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Callable
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

from oodshape.core import files
from oodshape.core.errors import InputError
from oodshape.core.fields import check_fields
from oodshape.core.reading import reading

if TYPE_CHECKING:  # a service reads values without it
    import torch

V = TypeVar("V", bound="Value")
Json = Any
ALIGNED = 64  # bytes: a cache line, and torch's own alignment
PACKAGE = __name__.partition(".")[0]


def _then_checked(own: Callable[[Any], None]) -> Callable[[Any], None]:
    """A class's own __post_init__, with the check of all fields after the last of them."""

    @wraps(own)
    def post_init(self: Any) -> None:
        own(self)
        if type(self).__post_init__ is post_init:
            check_fields(self)

    return post_init


class Value:
    """The base of every frozen dataclass that a detector is made of.

    Declare subclasses with `@dataclass(frozen=True, eq=False, repr=False)`: equality, hash and repr come from
    here and know arrays. Each subclass is known by its name, so that files name types and never hold code.
    """

    known: ClassVar[dict[str, type[Value]]] = {}  # by `type_name`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the subclass known by its name; a cell or module that runs again replaces its own classes only."""
        super().__init_subclass__(**kwargs)
        name = type_name(cls)
        other = Value.known.get(name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"{name} of {cls.__module__} has the name of a type of {other.__module__}: rename it")
        Value.known[name] = cls
        if "__post_init__" in cls.__dict__:
            cls.__post_init__ = _then_checked(cls.__dict__["__post_init__"])  # type: ignore[method-assign]

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


def reseeded(value: V, seed: int) -> V:
    """The same value with the seed of everything inside it that has one moved on by `seed`; 0 changes nothing."""

    def moved(item: Any) -> Any:
        if isinstance(item, tuple):
            return tuple(map(moved, item))
        return reseeded(item, seed) if isinstance(item, Value) else item

    fields = {name: item + seed if name == "seed" else moved(item) for name, item in value._items()}
    changed = {name: item for name, item in fields.items() if not _equal(item, getattr(value, name))}
    return dataclasses.replace(cast(Any, value), **changed) if changed else value


# Old name -> new name, for types of the package that were renamed: their files are read for ever.
RENAMED: dict[str, str] = {}


def type_name(kind: type[Value]) -> str:
    """What files call a type: its own name in the package, "module:qualified.name" elsewhere.

    >>> type_name(ArrayValue)
    'ArrayValue'
    """
    inside = kind.__module__.partition(".")[0] == PACKAGE
    return kind.__name__ if inside else f"{kind.__module__}:{kind.__qualname__}"


def type_named(name: str) -> type[Value]:
    """The known type that a file calls by this name."""
    name = RENAMED.get(name, name)
    if name in Value.known:
        return Value.known[name]
    module, mark, inner = name.rpartition(":")
    if mark and module != "__main__":
        raise InputError(f"unknown type {name!r}; import {module or 'the module'}, which defines it, before loading")
    # 0.1.0 wrote no modules, and a script that wrote the file may be a module to the program that reads it
    found = [known for known in Value.known if ":" in known and known.rpartition(":")[2] == inner]
    if len(found) > 1:
        raise InputError(f"the file's type {inner!r} may be any of {', '.join(found)}; import only the one it is")
    if found:
        return Value.known[found[0]]
    if mark:
        raise InputError(
            f"the file holds the type {inner!r} of the program that wrote it; import the module that defines it "
            "before loading"
        )
    raise InputError(
        f"unknown type {name!r}; where it is your own, import the module that defines it before loading; "
        "else the file was written by a newer oodshape"
    )


class ArrayValue(Value):
    """A value whose array fields are frozen as float32 and at hand as tensors."""

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name, value in self._items():
            if isinstance(value, (np.ndarray, list)):
                object.__setattr__(self, name, frozen_array(value, np.float32))

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


def frozen_array(values: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """A read-only copy of `values` as a numpy array that begins at a multiple of 64 bytes.

    What the type cannot hold becomes infinite or is refused. Matrix products may round differently by where their
    arrays lie: what is loaded must score as what was saved. What was frozen before is itself: nobody can change it.
    """
    given = np.asarray(values)
    if _frozen(given) and given.dtype == dtype:
        return given
    if np.dtype(dtype).kind == "i" and given.size:
        limits = np.iinfo(dtype)
        if given.dtype.kind not in "iu" or given.min() < limits.min or given.max() > limits.max:
            raise InputError(f"an array must hold {np.dtype(dtype)}, got {given.dtype}{list(given.shape)}")
    array = aligned(given.shape, dtype)
    with np.errstate(over="ignore"):
        array[...] = given
    return freeze(array)


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An array to be filled that begins at a multiple of 64 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    array: np.ndarray[Any, Any] = memory[start : start + size].view(dtype).reshape(shape)
    return array


def freeze(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An `aligned` array, read-only from now on, so that a value takes it without a copy."""
    array.flags.writeable = False  # its memory stays as it is: torch's tracer asks for it
    return array


def _frozen(array: np.ndarray[Any, Any]) -> bool:
    """Whether it is all of an array that `frozen_array` made, so that no one holds its memory to write to."""
    memory = array.base
    return (
        isinstance(memory, np.ndarray)
        and memory.dtype == np.uint8
        and memory.nbytes == array.nbytes + ALIGNED
        and not array.flags.writeable
        and array.flags.c_contiguous
    )


def encode(value: Any, tensors: dict[str, np.ndarray[Any, Any]], name: str = "value") -> Json:
    """The value as JSON, its arrays put into `tensors` under dotted names."""
    if isinstance(value, Value):
        fields = {key: encode(item, tensors, f"{name}.{key}") for key, item in value._items()}
        return {"type": type_name(type(value)), **fields}
    if isinstance(value, np.ndarray):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, (tuple, list)):
        return [encode(item, tensors, f"{name}.{i}") for i, item in enumerate(value)]
    return value


def decode(data: Json, tensors: dict[str, np.ndarray[Any, Any]]) -> Any:
    """The value that `encode` wrote; only known types are made, nothing is executed."""
    if isinstance(data, list):
        return tuple(decode(item, tensors) for item in data)
    if not isinstance(data, dict):
        return data
    if "tensor" in data:
        return tensors[data["tensor"]]
    if not isinstance(data.get("type"), str):
        raise InputError(f"the file is damaged: {data.get('type')!r} is no name of a type")
    fields = {key: decode(item, tensors) for key, item in data.items() if key != "type"}
    return type_named(data["type"])(**fields)


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


def load_values(path: str | Path, kind: str, *names: str) -> list[Any]:
    """What a file of the given kind holds under each name; None where it does not hold it."""
    header, tensors = files.load(path, kind)
    with reading(path, files.WAY_OUT.get(kind, "")):
        return [decode(json.loads(header.get(name, "null")), tensors) for name in names]
