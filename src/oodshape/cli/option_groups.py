"""Groups of options: a command takes a dataclass as one parameter, and its fields become options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
import typer.core
from typer.models import OptionInfo

from oodshape.core.options import Help
from oodshape.core.text import printable

PANELS = dict.fromkeys(("images", "parts", "calibrate", "id", "ood", "classes", "prompt"), "Images")
PANELS |= dict.fromkeys(("alpha", "per_class", "fdr"), "Method and threshold")
PANELS |= {"max": "Limits"}
VALUES = {int: "N", float: "NUMBER", Path: "PATH", str: "TEXT"}  # what stands for a value in the help
UsageError: Any = typer.BadParameter.__base__  # of click, or of the copy of click in newer versions of typer


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option for each field of its groups; required options stand first.

    A group that is the default of its parameter gives its values as the defaults of the options.
    """
    hints = get_type_hints(command, include_extras=True)
    options: list[Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            options += _options(kind, parameter.default)
        else:
            options.append(parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))
            _arrange(name, kind)

    @wraps(command)
    def call(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind) if each.name in given})
        command(**given)

    options.sort(key=lambda each: each.default is not Parameter.empty)
    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in options}
    # the help breaks its lines by the width of the terminal, not by that of the source
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    call.__doc__ = "\n\n".join(part.replace("\n", " ") for part in paragraphs)
    return call


def _arrange(name: str, annotation: Any) -> None:
    """Give an option that has none the panel that its name belongs to, and a short word for its value."""
    kind, *notes = get_args(annotation)
    kinds = {kind, *get_args(kind), *(inner for each in get_args(kind) for inner in get_args(each))}
    for note in notes:
        if isinstance(note, OptionInfo):
            note.rich_help_panel = note.rich_help_panel or PANELS.get(name)
            note.metavar = note.metavar or next((word for each, word in VALUES.items() if each in kinds), None)


def _options(group: Any, default: Any) -> list[Parameter]:
    """A parameter for each field that has a help text, with the default of the command's own group or of the field."""
    types = get_type_hints(group, include_extras=True)
    found = []
    for each in fields(group):
        owner = next(base for base in reversed(group.__mro__) if each.name in inspect.get_annotations(base))
        if (kind := _option(types[each.name], each.name, getattr(owner, "panel", None))) is None:
            continue
        value = each.default if default is Parameter.empty else getattr(default, each.name)
        value = Parameter.empty if value is MISSING else value
        found.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=value, annotation=kind))
    return found


def _option(annotation: Any, name: str, panel: str | None) -> Any:
    """The annotation that typer reads; None for a field that only Python has."""
    kind, *notes = get_args(annotation) if hasattr(annotation, "__metadata__") else (annotation,)
    note = next((each for each in notes if isinstance(each, Help)), None)
    if note is None and notes:
        _arrange(name, annotation)
    if note is None:
        return annotation if notes else None
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(flag, help=note.text, min=note.min, metavar=note.metavar, rich_help_panel=panel)
    made: Any = Annotated[kind, option]
    _arrange(name, made)
    return made


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


GLOBAL = {
    "--quiet": 0,
    "-q": 0,
    "--offline": 0,
    "--limits": 1,
}  # options before the command, and the number of their values


class Group(_Flags, typer.core.TyperGroup):
    """All commands; options of the program may also stand after the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        front: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            count = GLOBAL.get(word.partition("=")[0])
            if count is None:
                rest.append(word)
            else:
                front += [word, *([next(words, "")] if count and "=" not in word else [])]
        return super().parse_args(ctx, [*front, *rest])

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
