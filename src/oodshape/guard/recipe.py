"""The recipe of a method that a user named, or gave."""

from __future__ import annotations

from dataclasses import replace

from oodshape.core.errors import InputError
from oodshape.methods.auto import Auto
from oodshape.methods.detector import Method
from oodshape.methods.table import METHODS, named


def recipe_of(method: str | Method, exportable: bool) -> Method:
    """The recipe; where it must be `exportable`, with such candidates alone."""
    recipe = named(method) if isinstance(method, str) else method
    if not exportable:
        return recipe
    if isinstance(recipe.score, Auto):
        names = tuple(name for name, candidate in recipe.score.methods().items() if candidate.exportable)
        recipe = replace(recipe, score=replace(recipe.score, candidates=names))
    if not recipe.exportable:
        those = ", ".join(name for name, each in METHODS.items() if each.exportable)
        raise InputError(f"{method} cannot be exported; these can: {those}")
    return recipe
