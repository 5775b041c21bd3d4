"""Every public name is documented: its arguments, what it returns and raises, and an example that the doctests run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import oodshape

NAMES = [
    name for name in oodshape._HOMES if inspect.isroutine(each := getattr(oodshape, name)) or inspect.isclass(each)
]


def parts(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A function itself, or a class's constructor and public methods."""
    found = getattr(oodshape, name)
    if not inspect.isclass(found):
        yield name, found
        return
    for member, each in vars(found).items():
        function = getattr(each, "__func__", each)
        if inspect.isfunction(function) and (not member.startswith("_") or member == "__call__"):
            yield f"{name}.{member}", function


def entries(text: str, *sections: str) -> set[str]:
    """The names that the sections of a docstring describe."""
    blocks = re.findall(rf"^(?:{'|'.join(sections)}):\n((?:    .*\n?)+)", text, re.MULTILINE)
    return set(re.findall(r"^    (\w+):", "\n".join(blocks), re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_documented(name: str) -> None:
    found = getattr(oodshape, name)
    text = inspect.getdoc(found) or ""
    assert re.search(r"^>>> ", text, re.MULTILINE), "an example"
    if inspect.isclass(found):
        own = vars(found).get("__annotations__", {})
        built = inspect.signature(found.__init__).parameters if "__init__" in vars(found) else {}
        wanted = {each.name for each in fields(found)} & set(own) if is_dataclass(found) else set(built) - {"self"}
        described = entries(text, "Args", "Attributes") | entries(inspect.getdoc(found.__init__) or "", "Args")
        assert {each for each in wanted if not each.startswith("_")} <= described
    for label, function in parts(name):
        text, signature = inspect.getdoc(function) or "", inspect.signature(function)
        assert set(signature.parameters) - {"self", "cls"} == entries(text, "Args"), label
        assert (signature.return_annotation in ("None", "Iterator[None]")) != ("\nReturns:\n" in text), label
        assert "raise InputError" not in inspect.getsource(function) or "\nRaises:\n" in text, label
