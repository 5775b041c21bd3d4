"""Docstrings as Markdown: examples in fences, and shapes such as [N, C] kept from looking like links."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", flags=re.DOTALL | re.MULTILINE)


def as_markdown(docstring: str) -> str:
    """The docstring with doctests fenced, and brackets and asterisks of the prose escaped.

    >>> as_markdown("[N]: a * b\\n\\n>>> 1 + 1\\n2").splitlines()
    ['\\\\[N\\\\]: a \\\\* b', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    parts, last = [], 0
    for found in EXAMPLE.finditer(docstring):
        parts += [_escaped(docstring[last : found.start()]), f"```pycon\n{found[0].rstrip()}\n```"]
        last = found.end()
    return "".join([*parts, _escaped(docstring[last:])])


def _escaped(prose: str) -> str:
    pieces = re.split(r"(`[^`]*`)", prose)  # code stays as it is
    return "".join(piece if piece.startswith("`") else re.sub(r"([\[\]*|])", r"\\\1", piece) for piece in pieces)


class Docstrings(Extension):
    """Puts every docstring into Markdown before it is rendered."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
