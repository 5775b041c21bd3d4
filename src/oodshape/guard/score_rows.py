"""Rows of scores as another command wrote them: every value is held to what `score` can write before it is believed.

Text has no checksum. A damaged number that is still one is not seen; one that cannot stand beside the others is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from oodshape.core.errors import InputError
from oodshape.core.reading import one_line

P_VALUE = ("p_value", "p-value", "p")
OURS = frozenset(["score", "p_value", "accepted", "error"])  # a table with these columns is one of `score`
SAID = {"true": True, "false": False, True: True, False: False}
EMPTY = (None, "")


class Decided(NamedTuple):
    """A p-value and the row that has it."""

    p_value: float
    where: str


class RowCheck:
    """Rows by the names of their columns, one after the other: the p-value of each, None for an unreadable image.

    In a table of `score` an image has a finite score, a p-value and a decision, or an error and none of them; and no
    image is accepted whose p-value is below that of a rejected one. Other tables need no more than p-values.

    >>> RowCheck()({"p": "0.25", "note": "any"}, "line 2 of mine.csv")
    0.25
    """

    def __init__(self) -> None:
        """Before the first row."""
        self._rejected, self._accepted = Decided(0.0, ""), Decided(math.inf, "")

    def __call__(self, row: Mapping[str, Any], where: str) -> float | None:
        """The p-value of a row; a row that `score` cannot have written is refused by its place and its value."""
        value = next((row[name] for name in P_VALUE if name in row), None)
        p = None if value in EMPTY else _p_value(value, where)
        if row.keys() >= OURS:
            self._hold(row, p, where)
        return p

    def _hold(self, row: Mapping[str, Any], p: float | None, where: str) -> None:
        score, accepted, error = row["score"], row["accepted"], row["error"]
        if p is None or math.isnan(p):
            if score not in EMPTY or accepted not in (*EMPTY, False) or error in EMPTY:  # 0.1.0 wrote False in JSON
                said = f"score {_shown(score)}, accepted {_shown(accepted)}, error {_shown(error)}"
                raise InputError(f"{where} has no p-value, but {said}: an unreadable image has an error alone")
            return
        if error not in EMPTY:
            raise InputError(f"{where} has the p-value {p:g} and the error {_shown(error)}: only one can be true")
        if not math.isfinite(_number(score)):
            raise InputError(f"{where}: {_shown(score)} is no score, which is a finite number")
        decided = SAID.get(accepted) if isinstance(accepted, (str, bool)) else None
        if decided is None:
            raise InputError(f"{where}: {_shown(accepted)} is no decision, which is true or false")
        self._keep_order(p, decided, where)

    def _keep_order(self, p: float, accepted: bool, where: str) -> None:
        """Refuse decisions that no one threshold gives."""
        here = Decided(p, where)
        if accepted:
            self._accepted = min(self._accepted, here, key=lambda each: each.p_value)
        else:
            self._rejected = max(self._rejected, here, key=lambda each: each.p_value)
        if self._accepted.p_value < self._rejected.p_value:
            raise InputError(
                f"{self._accepted.where} is accepted with the p-value {self._accepted.p_value:g}, "
                f"{self._rejected.where} rejected with {self._rejected.p_value:g}: one is damaged, or two guards wrote "
                "the file; score the images again, into a file for each guard"
            )


def _p_value(value: Any, where: str) -> float:
    number = _number(value)
    if number <= 0 or number > 1:  # NaN is an image that could not be read
        raise InputError(f"{where}: {_shown(value)} is no p-value, which lies in (0, 1]")
    return number


def _number(value: Any) -> float:
    """The number that a cell holds; -inf, which is neither a p-value nor a score, where it holds none."""
    try:
        return -math.inf if isinstance(value, bool) else float(str(value))
    except ValueError:
        return -math.inf


def _shown(value: Any) -> str:
    return one_line(repr(value), 40)
