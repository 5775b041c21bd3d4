"""How reports group and draw a method, by its row in the table of methods; an unknown name is the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

from oodshape.methods.base import Identity, Recipe
from oodshape.methods.heads import Linear
from oodshape.methods.registry import METHODS, NEWER
from oodshape.methods.shapes.optfs import OptFS
from oodshape.report.palette import INKS, TEXT

# what summaries and figures compare with the other methods: the paper's method, and the usual baseline
FEATURED, BASELINE = "optfs-e", "msp"
PLAIN, SHAPED, OPTFS, SINCE, OWN = range(5)  # the paper's three blocks, those since the paper, one's own


def block(name: str) -> int:
    """The block of a table: without shaping, with shaping, with OptFS, since the paper, one's own.

    >>> block("msp"), block("react"), block("optfs-e+react"), block("vim"), block("mine")
    (0, 1, 2, 3, 4)
    """
    if name not in METHODS:
        return OWN
    if name in NEWER:
        return SINCE
    shape = METHODS[name].shape
    return OPTFS if by_optfs(shape) else PLAIN if isinstance(shape, Identity) else SHAPED


def kind(name: str) -> str:
    """Where a method comes from, in words; whatever shapes by OptFS goes together.

    >>> kind("optfs-e"), kind("auto"), kind("vim"), kind("msp"), kind("mine")
    ('OptFS', 'chooses among them', 'since the paper', "the paper's baselines", 'your own')
    """
    if name in METHODS and METHODS[name].wants_proxy:
        return "chooses among them"
    words = dict.fromkeys((PLAIN, SHAPED), "the paper's baselines")
    return (words | {OPTFS: "OptFS", SINCE: "since the paper", OWN: "your own"})[block(name)]


CHOICE = "choice"
# what a method of each family looks at, as a legend says it
FAMILIES = {
    "logits": "logits alone",
    "shaping": "shaped features or weights",
    "optfs": "OptFS",
    "distance": "distances among features",
    CHOICE: "chooses among them",
    "own": "your own",
}


def family(name: str) -> str:
    """What a method works on: logits, shaped features or weights (OptFS apart), distances; or it chooses.

    >>> [family(name) for name in ("msp", "dice", "optfs-e+react", "optfs", "vim", "auto", "mine")]
    ['logits', 'shaping', 'optfs', 'optfs', 'distance', 'choice', 'own']
    """
    if name not in METHODS:
        return "own"
    method = METHODS[name]
    if method.wants_proxy:
        return CHOICE
    if by_optfs(method.shape):
        return "optfs"
    if not isinstance(method.shape, Identity) or not isinstance(method.head, Linear):
        return "shaping"
    return "distance" if method.score.reads_features else "logits"


def by_optfs(recipe: Recipe) -> bool:
    """Whether OptFS is the shaping function, or a part of it."""
    return isinstance(recipe, OptFS) or any(by_optfs(part) for part in recipe.inside())


# of a family's members, one after the other: they have one colour
DASHES: tuple[Any, ...] = (
    "-",
    (0, (4, 1.5)),
    (0, (1, 1)),
    (0, (8, 1.5)),
    (0, (4, 1, 1, 1)),
    (0, (4, 1, 1, 1, 1, 1)),
    (0, (8, 1, 2, 1)),
    (0, (2, 2)),
    (0, (8, 1, 1, 1, 1, 1)),
    (0, (3, 3)),
    (0, (6, 3)),
    (0, (2, 1, 1, 3)),
    (0, (10, 3)),
    (0, (1, 3)),
    (0, (12, 1.5)),
    (0, (6, 1, 1, 3)),
    (0, (3, 1, 3, 3)),
    (0, (10, 1, 1, 1)),
)
OWN_DASHES = ((0, (5, 1.5, 1, 1.5)), (0, (5, 2.5, 1, 2.5)), (0, (7, 1.5, 1, 1.5)), (0, (7, 2.5, 1, 2.5)))


@dataclass(frozen=True)
class Style:
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

        >>> style("msp").web, style("optfs-e").web, style("auto").web
        (('var(--logits)', ''), ('var(--optfs)', '6 2.25'), ('var(--text)', ''))
        """
        dashes = () if self.dashes == "-" else self.dashes[1]
        name = "text" if self.family == CHOICE else self.family
        return f"var(--{name})", " ".join(f"{1.5 * length:g}" for length in dashes)


@cache
def style(method: str) -> Style:
    """The style of a method: by its family and its place in it, or by its name for a method of one's own.

    >>> style("knn").family, style("knn").color == INKS["distance"].light
    ('distance', True)
    """
    if method not in METHODS:
        return Style(family(method), OWN_DASHES[crc32(method.encode()) % len(OWN_DASHES)])
    own = family(method)
    members = [name for name in METHODS if family(name) == own]
    return Style(own, DASHES[members.index(method) % len(DASHES)])
