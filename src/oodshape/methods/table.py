"""The table of methods: a name, a recipe, its sentences. Contract tests, benchmarks and docs go over every row."""

from __future__ import annotations

from oodshape.core.errors import InputError
from oodshape.methods.auto import Auto
from oodshape.methods.detector import Method
from oodshape.methods.odin import AUTHORS_STD, Odin
from oodshape.methods.rows.catalogue import METHODS, ROWS, named
from oodshape.methods.rows.newer import NEWER_ROWS
from oodshape.methods.rows.paper import paper_rows
from oodshape.methods.rows.row import Row
from oodshape.methods.shapes.clipping import VraP

__all__ = ["METHODS", "NEWER", "ROWS", "named", "paper_methods"]

# The last row chooses among the others, so it stands to the right of them. It joins them in one dict: a method that
# is put into METHODS is then a candidate too.
ROWS["auto"] = Row(
    Method(score=Auto()),
    "the methods that best tell ID images from scrambled ones, fused; no OOD data, any architecture",
    "80 training images, and 500 scrambled ones through the network",
    "where unknowns are much like known images: check on your own",
    "Our own; p-values are fused as Fisher did.",
)
METHODS["auto"] = ROWS["auto"].method

# what came after the paper
NEWER: dict[str, Method] = {name: row.method for name, row in NEWER_ROWS.items()}

# the paper's table of hyperparameters; ASH-Rand's is the authors' code's
_PAPER = {
    "imagenet": paper_rows(odin=Odin(eps=0.0, std=AUTHORS_STD), vra=VraP(low=0.5, high=1.0, absolute=True)),
    "cifar10": paper_rows(odin=Odin(eps=0.004, std=AUTHORS_STD), dice=0.9, ash_p=0.9, ash_b=0.95, ash_s=0.95),
    "cifar100": paper_rows(odin=Odin(eps=0.004, std=AUTHORS_STD), dice=0.9, ash_p=0.8, ash_b=0.85, ash_s=0.9),
}


def paper_methods(id_set: str) -> dict[str, Method]:
    """The methods with the paper's hyperparameters for `imagenet`, `cifar10` or `cifar100`.

    The methods since the paper follow with their general settings.

    >>> paper_methods("cifar10")["ash-s"].shape
    AshS(p=0.95)
    """
    if id_set not in _PAPER:
        raise InputError(f"the paper has no settings for {id_set!r}; choose one of {', '.join(_PAPER)}")
    return {name: row.method for name, row in {**ROWS, **_PAPER[id_set]}.items()}
