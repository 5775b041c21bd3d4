"""The methods for people: in words, and with their settings."""

from __future__ import annotations

from oodshape.core.values import Value
from oodshape.methods import departures
from oodshape.methods.detector import Method
from oodshape.methods.image_rows import IMAGE_ROWS
from oodshape.methods.table import ROWS, named


def method_lines() -> list[tuple[str, ...]]:
    """(name, what it does, what it needs, when it fails, settings) of every method of the table."""
    return [(name, row.what, row.needs, row.fails, _settings(row.method)) for name, row in ROWS.items()]


def told(name: str) -> list[tuple[str, str]]:
    """One method at length, in lines of (what is said, the text)."""
    rows = {**ROWS, **IMAGE_ROWS}
    named(name, {known: row.method for known, row in rows.items()})
    row = rows[name]
    return [
        ("method", name),
        ("does", row.what),
        ("needs", row.needs),
        ("fails", row.fails),
        ("recipe", short_recipe(row.method)),
        ("export", "ONNX and torch.export" if row.method.exportable else "cannot be exported"),
        ("beside its authors' code", departures.told(name)),
        ("paper", row.paper.replace("*", "")),
    ]


def _settings(method: Value) -> str:
    """The pieces of a recipe that differ from the plain ones."""
    plain = type(method)()
    return ", ".join(repr(value) for name, value in method._items() if value != getattr(plain, name)) or "none"


def short_recipe(method: Method) -> str:
    """The recipe in code, without the slots that do nothing: no shaping, the network's own head, no step in the image.

    >>> short_recipe(ROWS["react"].method)
    'Method(shape=ReAct(q=0.9), score=Energy())'
    """
    plain = Method()
    said = {name: value for name, value in method._items() if name == "score" or value != getattr(plain, name)}
    return f"Method({', '.join(f'{name}={value!r}' for name, value in said.items())})"
