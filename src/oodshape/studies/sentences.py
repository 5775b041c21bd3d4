"""Parts of a study's sentence: differences by network, who leads and who is tied, as printed and no finer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oodshape.studies.printing import rounded

if TYPE_CHECKING:
    from pandas import DataFrame

FEW = 3  # names in a row; of more, some are counted


def joined(words: Sequence[str]) -> str:
    """Words in a row.

    >>> joined(["a"]), joined(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def signed(fraction: float, digits: int) -> str:
    """A difference in points, with its sign; a tie has none.

    >>> signed(0.0123, 1), signed(-0.0123, 1), signed(0.0001, 1)
    ('+1.2', '-1.2', '0.0')
    """
    text = rounded(100 * fraction, digits)
    return f"+{text}" if float(text) > 0 else text


def changes(by_network: Mapping[str, float], digits: int) -> str:
    """Differences in points network by network, or the range of many.

    >>> changes({"a": 0.012, "b": -0.1}, 1)
    '+1.2 (a) and -10.0 (b) points'
    """
    shown = dict(by_network)
    if len(shown) > FEW:
        ends = [min(shown, key=lambda name: shown[name]), max(shown, key=lambda name: shown[name])]
        return f"{' to '.join(f'{signed(shown[name], digits)} ({name})' for name in ends)} points"
    return f"{joined([f'{signed(value, digits)} ({name})' for name, value in shown.items()])} points"


def won(values: Sequence[float], digits: int, of: str = "networks") -> str:
    """How often differences are gains, as printed: no gain is claimed that the figures do not show.

    >>> won([0.02, 0.0001, -0.3], 1)
    'better on 1 of 3 networks, tied on 1'
    >>> won([0.02], 1)
    'better on 1 of 1'
    """
    shown = [float(rounded(100 * value, digits)) for value in values]
    better, tied = sum(value > 0 for value in shown), shown.count(0.0)
    whole = f"{len(shown)} {of}" if len(shown) > 1 else "1"
    return f"better on {better} of {whole}" + (f", tied on {tied}" if tied else "")


def leaders(values: Mapping[str, float], digits: int) -> list[str]:
    """The names with the highest value, and those that print the same; the highest first.

    >>> leaders({"a": 0.9301, "b": 0.9304, "c": 0.9}, 1)
    ['b', 'a']
    """
    ranked = sorted(values, key=lambda name: -values[name])
    best = rounded(100 * values[ranked[0]], digits)
    return [name for name in ranked if rounded(100 * values[name], digits) == best]


def led(values: Mapping[str, float], digits: int) -> str:
    """Who leads, and with whom it is tied; nothing of nobody.

    >>> led({"a": 0.9301, "b": 0.9304, "c": 0.9}, 1), led({}, 1)
    ('b 93.0, tied with a', '')
    """
    if not values:
        return ""
    first, *others = leaders(values, digits)
    more = [*others[:FEW], f"{len(others) - FEW} more"] if len(others) > FEW else others
    tied = f", tied with {joined(more)}" if others else ""
    return f"{first} {rounded(100 * values[first], digits)}{tied}"


def means(frame: DataFrame, column: str) -> dict[Any, dict[str, float]]:
    """By a column's value and network: the mean AUROC over OOD sets."""
    table: dict[Any, dict[str, float]] = {}
    rows = frame.groupby([column, "network"], sort=False)["auroc"].mean().reset_index()
    for name, network, value in rows.itertuples(index=False, name=None):
        table.setdefault(name, {})[str(network)] = float(value)
    return table


def less(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """One less the other, on networks that have both."""
    return {name: one[name] - other[name] for name in one if name in other}
