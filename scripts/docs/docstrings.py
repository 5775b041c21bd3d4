"""Docstrings as Markdown: examples in fences, and shapes such as [N, C] kept from looking like links."""

from __future__ import annotations

import ast
import re
from typing import Any

from griffe import Extension, Object

CODE = (ast.Assign, ast.For, ast.With, ast.Import, ast.ImportFrom)


def as_markdown(docstring: str) -> str:
    """The docstring with its examples in fences, and brackets and asterisks of the prose escaped.

    >>> as_markdown("[N]: a * b\\n\\n>>> 1 + 1\\n2").splitlines()
    ['\\\\[N\\\\]: a \\\\* b', '', '```pycon', '>>> 1 + 1', '2', '```']
    >>> as_markdown("A guard.\\n\\nguard = Guard.fit(net)\\nguard.save(path)").splitlines()[2:]
    ['```python', 'guard = Guard.fit(net)', 'guard.save(path)', '```']
    """
    return "\n\n".join(_paragraph(part) for part in docstring.split("\n\n"))


def _paragraph(text: str) -> str:
    if text.startswith(">>> "):
        return f"```pycon\n{text.rstrip()}\n```"
    return f"```python\n{text.rstrip()}\n```" if _is_code(text) else _escaped(text)


def _is_code(text: str) -> bool:
    """Whether a paragraph is a program: prose does not parse."""
    try:
        found = ast.parse(text).body
    except SyntaxError:
        return False
    return any(isinstance(statement, CODE) for statement in found)


def _escaped(prose: str) -> str:
    pieces = re.split(r"(`[^`]*`)", prose)  # code stays as it is
    return "".join(piece if piece.startswith("`") else re.sub(r"([\[\]*|])", r"\\\1", piece) for piece in pieces)


class Docstrings(Extension):
    """Puts every docstring into Markdown before it is rendered."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
