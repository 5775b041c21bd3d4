"""The colour and the dashes of a method: the same in every figure and on the page, and told apart by all readers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

from oodshape.methods.table import METHODS

TEXT = "#010203"  # stands for the colour of the text, which depends on the page
# Okabe and Ito's colours for all readers; black is the text's colour, and gray replaces yellow, too pale on white.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", TEXT, "#888888")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (4, 1.5)),
    (0, (1, 1)),
    (0, (8, 1.5)),
    (0, (4, 1, 1, 1, 1, 1)),
    (0, (5, 1.5, 1, 1.5)),  # methods of one's own
)


@dataclass(frozen=True)
class Style:
    """How the lines of a method look, in matplotlib's terms."""

    color: str
    dashes: Any

    @property
    def web(self) -> tuple[str, str]:
        """The same in SVG's terms: colour, and dashes in pixels.

        >>> style("msp").web, style("dice").web, style("optfs-msp").web
        (('#E69F00', ''), ('#D55E00', ''), ('currentColor', '6 2.25'))
        """
        dashes = () if self.dashes == "-" else self.dashes[1]
        return self.color.replace(TEXT, "currentColor"), " ".join(f"{1.5 * length:g}" for length in dashes)


@cache
def style(method: str) -> Style:
    """The style of a method: by its place in the table of methods, or by its name for a method of one's own.

    >>> style("msp").color, style("optfs-e").color
    ('#E69F00', '#CC79A7')
    """
    if method not in METHODS:
        return Style(PALETTE[crc32(method.encode()) % len(PALETTE)], DASHES[-1])
    turn, place = divmod(list(METHODS).index(method), len(PALETTE))
    return Style(PALETTE[place], DASHES[turn % (len(DASHES) - 1)])
