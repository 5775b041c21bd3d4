"""How reports group and draw a method, by its record; a method without one is custom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

from oodshape.methods.records import OWN, RECORDS
from oodshape.report.palette import INKS, TEXT

CHOICE = "choice"
# what a method of each family looks at, as a legend says it
FAMILIES = {
    "logits": "logits alone",
    "shaping": "shaped features or weights",
    "optfs": "OptFS",
    "distance": "distances among features",
    CHOICE: "chooses among them",
    OWN: "custom",
}
# where the methods of a block of the tables come from
BLOCKS = {
    **dict.fromkeys(("plain", "shaping"), "the paper's baselines"),
    "optfs": "OptFS",
    "later": "since the paper",
    CHOICE: "chooses among them",
    OWN: "custom",
}


def display_name(name: str) -> str:
    """The name of a method in prose.

    >>> display_name("optfs-e"), display_name("mine")
    ('OptFS (E)', 'mine')
    """
    return RECORDS[name].name if name in RECORDS else name


def table_block(name: str) -> str:
    """The block of a table: the paper's three, methods since the paper, methods that choose, custom methods.

    >>> table_block("msp"), table_block("react"), table_block("optfs-e+react"), table_block("vim"), table_block("mine")
    ('plain', 'shaping', 'optfs', 'later', 'own')
    """
    return RECORDS[name].block if name in RECORDS else OWN


def method_family(name: str) -> str:
    """Return the family of a method: logits, shaping, optfs, distance, or choice.

    >>> [method_family(name) for name in ("msp", "dice", "optfs-e+react", "optfs", "vim", "auto", "mine")]
    ['logits', 'shaping', 'optfs', 'optfs', 'distance', 'choice', 'own']
    """
    return RECORDS[name].family if name in RECORDS else OWN


def _dashed(*lengths: str) -> tuple[Any, ...]:
    return tuple((0, tuple(map(float, each.split()))) for each in lengths)


# of a family's members, one after the other: they have one colour
DASHES = (
    "-",
    *_dashed("4 1.5", "1 1", "8 1.5", "4 1 1 1", "4 1 1 1 1 1", "8 1 2 1", "2 2", "8 1 1 1 1 1", "3 3", "6 3"),
    *_dashed("2 1 1 3", "10 3", "1 3", "12 1.5", "6 1 1 3", "3 1 3 3", "10 1 1 1"),
)


@dataclass(frozen=True)
class MethodStyle:
    """How the lines of a method look, in matplotlib's terms; its family gives the colour."""

    family: str
    dashes: Any

    @property
    def color(self) -> str:
        """The colour on paper; the text's own for the method that chooses."""
        return TEXT if self.family == CHOICE else INKS[self.family].light

    @property
    def web(self) -> tuple[str, str]:
        """The same in SVG's terms: colour, and dashes in pixels.

        >>> method_style("msp").web, method_style("optfs-e").web, method_style("auto").web
        (('var(--logits)', ''), ('var(--optfs)', '6 2.25'), ('var(--text)', ''))
        """
        dashes = () if self.dashes == "-" else self.dashes[1]
        name = "text" if self.family == CHOICE else self.family
        return f"var(--{name})", " ".join(f"{1.5 * length:g}" for length in dashes)


def method_style(method: str) -> MethodStyle:
    """The style of a method: by its family and its place in it, or by its name for a custom method.

    >>> method_style("knn").family, method_style("knn").color == INKS["distance"].light
    ('distance', True)
    """
    own = method_family(method)
    if method not in RECORDS:
        return MethodStyle(own, DASHES[crc32(method.encode()) % len(DASHES)])
    members = [name for name in RECORDS if method_family(name) == own]
    return MethodStyle(own, DASHES[members.index(method) % len(DASHES)])
