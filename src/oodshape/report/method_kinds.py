"""Where a method of a report belongs, by its row in the table of methods; a name that is not there is one's own."""

from __future__ import annotations

from oodshape.methods.heads import Linear
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.slots import Identity, Recipe
from oodshape.methods.table import METHODS, NEWER

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
    if name in METHODS and METHODS[name].wants_panel:
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
    if method.wants_panel:
        return CHOICE
    if by_optfs(method.shape):
        return "optfs"
    if not isinstance(method.shape, Identity) or not isinstance(method.head, Linear):
        return "shaping"
    return "distance" if method.score.reads_features else "logits"


def by_optfs(recipe: Recipe) -> bool:
    """Whether OptFS is the shaping function, or a part of it."""
    return isinstance(recipe, OptFS) or any(by_optfs(part) for part in recipe.inside())
