"""The methods by name, and the one way to look a name up. `table.py` adds the method that chooses among them."""

from __future__ import annotations

from collections.abc import Mapping

from oodshape.core.errors import InputError
from oodshape.methods.detector import Method
from oodshape.methods.rows.newer import NEWER_ROWS
from oodshape.methods.rows.paper import paper_rows
from oodshape.methods.rows.row import Row

ROWS: dict[str, Row] = {**paper_rows(), **NEWER_ROWS}
METHODS: dict[str, Method] = {name: row.method for name, row in ROWS.items()}


def named(name: str, table: Mapping[str, Method] = METHODS) -> Method:
    """The method of that name, or an error that lists those there are.

    >>> named("react").shape
    ReAct(q=0.9)
    >>> named("raect", {"react": named("react")})
    Traceback (most recent call last):
    oodshape.core.errors.InputError: no method is called 'raect'; there are react
    """
    if name not in table:
        raise InputError(f"no method is called {name!r}; there are {', '.join(table)}")
    return table[name]
