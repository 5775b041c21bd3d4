"""Which methods a study is of, and what of its rows is left where only some of them are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oodshape.core.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

OPTFS = "optfs-v"  # what a study is of that says nothing else


@dataclass(frozen=True)
class Picks:
    """The rows of each method: the values that they have in a column. Rows with a value that is `kept` are of all."""

    column: str
    rows: Mapping[str, tuple[str, ...]]
    kept: tuple[str, ...] = field(default=())

    @classmethod
    def named(cls, column: str, *methods: str, kept: tuple[str, ...] = ()) -> Picks:
        """Rows that bear the method's name."""
        return cls(column, {name: (name,) for name in methods}, kept)

    def of(self, frame: DataFrame, methods: tuple[str, ...]) -> DataFrame:
        """The rows of these methods, all of them where none is named."""
        if not methods:
            return frame
        wanted = {value for name in methods for value in self.rows[name]} | set(self.kept)
        return frame[frame[self.column].isin(wanted)].reset_index(drop=True)


def picked(study: str, methods: tuple[str, ...], known: Picks | None, *, any_method: bool) -> tuple[str, ...]:
    """Those of the methods that the study has; none is an error that says what it is of."""
    if any_method or not methods:
        return methods
    names = (OPTFS,) if known is None else tuple(known.rows)
    found = tuple(name for name in methods if name in names)
    if not found:
        raise InputError(f"the study {study} is of {', '.join(names)}, not of {', '.join(methods)}")
    return found
