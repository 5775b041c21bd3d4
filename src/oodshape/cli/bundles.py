"""Bundles: dataclasses of options that several commands share; a command takes one whole."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints

import typer
import typer.core

from oodshape.core.text import printable

UsageError: Any = typer.BadParameter.__base__  # of click, or of the copy of click in newer versions of typer


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option for each field of its bundles; what must be given stands first.

    A bundle that is the default of its parameter gives its values as the defaults of the options.
    """
    hints = get_type_hints(command, include_extras=True)
    options: list[Parameter] = []
    bundles: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            bundles[name] = kind
            options += _fields(kind, parameter.default)
        else:
            options.append(parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def call(**given: Any) -> None:
        for name, kind in bundles.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    options.sort(key=lambda each: each.default is not Parameter.empty)
    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in options}
    # the help cuts its lines by the width of the terminal, not by that of the source
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    call.__doc__ = "\n\n".join(part.replace("\n", " ") for part in paragraphs)
    return call


def _fields(bundle: Any, default: Any) -> list[Parameter]:
    """A parameter for each field, with the default of the command's own bundle or else of the field."""
    types = get_type_hints(bundle, include_extras=True)
    found = []
    for each in fields(bundle):
        value = each.default if default is Parameter.empty else getattr(default, each.name)
        value = Parameter.empty if value is MISSING else value
        found.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=value, annotation=types[each.name]))
    return found


class _Flags:
    """Flags take no value, so the help shows no type for them."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


class Command(_Flags, typer.core.TyperCommand):
    """A command."""


class Group(_Flags, typer.core.TyperGroup):
    """The commands together."""

    def make_context(self, *words: Any, **more: Any) -> Any:
        with _escaped_errors():
            return super().make_context(*words, **more)

    def invoke(self, ctx: Any) -> Any:
        with _escaped_errors():
            return super().invoke(ctx)


@contextmanager
def _escaped_errors() -> Iterator[None]:
    """Escape what a terminal would obey in a wrong word: a shell puts the names of files there too."""
    try:
        yield
    except UsageError as error:
        vars(error)["message"] = printable(error.message)
        raise
