"""Docstrings as Markdown: examples in fences, shapes such as [N, C] kept from looking like links, options listed."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from dataclasses import is_dataclass
from typing import Any

from griffe import Class, Decorator, ExprName, Extension, Function, Object, Parameter, ParameterKind

from oodshape.core.values import Value

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


def _imported(of: Object) -> Any:
    """The class or function itself."""
    found: Any = importlib.import_module(of.module.canonical_path)
    for name in of.canonical_path.removeprefix(f"{of.module.canonical_path}.").split("."):
        found = getattr(found, name)
    return found


def list_options(function: Function) -> None:
    """Give a function that takes groups of options the keywords and the text that `takes_options` gives it."""
    found = _imported(function)
    shown = inspect.signature(found).parameters
    if "options" in shown or function.docstring is None:
        return
    del function.parameters["options"]
    for each in shown.values():
        if each.name not in function.parameters and each.name not in ("self", "cls"):
            said = inspect.formatannotation(each.annotation).replace("pathlib.", "")
            kind, default = ParameterKind.keyword_only, repr(each.default)
            function.parameters.add(Parameter(each.name, annotation=said, kind=kind, default=default))
    function.docstring.value = inspect.getdoc(found) or ""


class Docstrings(Extension):
    """Puts every docstring into Markdown before it is rendered."""

    def on_class_instance(self, *, cls: Class, **_: Any) -> None:
        """Show the fields of a `Value` as parameters: it is a dataclass without the decorator."""
        if cls.bases and issubclass(found := _imported(cls), Value) and is_dataclass(found):
            cls.decorators.append(Decorator(ExprName("dataclasses.dataclass"), lineno=None, endlineno=None))

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        if isinstance(obj, Function) and "options" in obj.parameters:
            list_options(obj)
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
