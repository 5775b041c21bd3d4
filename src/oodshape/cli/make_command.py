"""Make a command from a function: its parameters become options, and `Args:` in its docstring their help.

A parameter that is a dataclass is a group: each of its fields with a help text becomes an option.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
import typer.core
from typer.models import OptionInfo

from oodshape.core.errors import InputError
from oodshape.core.options import Help, ModelOptions
from oodshape.core.progress import set_silent
from oodshape.core.text import printable

# the options of each panel of the help, in whatever command they are
PANELS = {
    ModelOptions.panel: "model",
    "Images": "images parts calibrate id ood classes prompt",
    "Method and threshold": "method alpha per_class fdr",
    "Preprocessing": "preprocessing",
    "Randomness": "seed seeds",
    "OpenOOD": "full_spectrum other_lists",
    "Downloads": "download yes unverified",
    "Scaling": "shard engine",
    "Limits": "max",
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names.split()}
VALUES = {int: "N", float: "NUMBER", Path: "PATH", str: "TEXT", Literal: "KIND"}  # what stands for a value in the help
IMAGES = (
    "a folder, a text or CSV list, a quoted glob, an image, tar or Parquet files, an address such as "
    "s3://bucket/folder, or - for paths on standard input"
)
WRITTEN = ("out", "page", "state")  # options that name a file to write
UsageError: Any = typer.BadParameter.__base__  # of click, or of the copy of click in newer versions of typer


def make_command(function: Callable[..., None]) -> Callable[..., None]:
    """The function as typer takes it, with one option for each field of its groups; required options stand first.

    A group that is the default of its parameter gives its values as the defaults of the options. {IMAGES} in the
    docstring stands for the kinds of images that commands read. With --json no progress is shown.
    """
    hints = get_type_hints(function, include_extras=True)
    about, _, arguments = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", arguments.replace("{IMAGES}", IMAGES), re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in found}
    options: list[Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            options += _expand_group(kind, parameter.default)
        else:
            annotation = kind if kind is typer.Context else _annotate(name, kind, texts.get(name, ""))
            options.append(parameter.replace(annotation=annotation, kind=Parameter.KEYWORD_ONLY))

    @wraps(function)
    def call(**given: Any) -> None:
        if given.get("json"):
            set_silent(True)
        _keep_inputs(function.__name__, given)
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind) if each.name in given})
        function(**given)

    options.sort(key=lambda each: each.default is not Parameter.empty)
    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in options}
    # the help breaks its lines by the width of the terminal, not by that of the source
    call.__doc__ = "\n\n".join(part.replace("\n", " ") for part in about.split("\n\n"))
    return call


def _keep_inputs(command: str, given: dict[str, Any]) -> None:
    """Refuse to write over a file that is read, or twice over one file; `calibrate` alone may replace its guard."""
    paths = [
        (name, os.path.realpath(each))
        for name, value in given.items()
        for each in (value if isinstance(value, (list, tuple)) else [value])
        if isinstance(each, (str, Path)) and (name in WRITTEN or os.path.isfile(each))
    ]
    for (name, path), (other, same) in permutations(paths, 2):
        if path == same and name in WRITTEN and name != other and (command, other) != ("calibrate", "guard"):
            raise InputError(
                f"--{name} would overwrite {given[name]}, which is given for {other} too; name another file"
            )


def _expand_group(group: Any, default: Any) -> list[Parameter]:
    """A parameter for each field that has a help text, with the default of the command's own group or of the field."""
    types = get_type_hints(group, include_extras=True)
    found = []
    for each in fields(group):
        if get_origin(types[each.name]) is Annotated:
            value = each.default if default is Parameter.empty else getattr(default, each.name)
            value = Parameter.empty if value is MISSING else value
            owner = next(base for base in reversed(group.__mro__) if each.name in inspect.get_annotations(base))
            annotation = _annotate(each.name, types[each.name], "", owner.panel)
            found.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=value, annotation=annotation))
    return found


def _annotate(name: str, annotation: Any, text: str, panel: str | None = None) -> Any:
    """The annotation that typer reads, with the option's flag, help and panel, and a short word for its value."""
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    note = copy(notes[0]) if notes else typer.Option()
    if isinstance(note, Help):
        note = typer.Option(help=note.text, min=note.min, metavar=note.metavar, rich_help_panel=panel)
    note.help = (note.help or text).replace("[", "\\[") or None  # rich would read it as a style
    if isinstance(note, OptionInfo):
        kinds = {part for each in (kind, *get_args(kind)) for part in (each, get_origin(each), *get_args(each))}
        note.default = f"--{name.replace('_', '-')}" if note.default is ... else note.default  # the first flag
        note.metavar = note.metavar or next((word for each, word in VALUES.items() if each in kinds), None)
        note.rich_help_panel = note.rich_help_panel or PANEL_OF.get(name)
    return Annotated[kind, note]


# options before the command, and the number of their values
GLOBAL = {"--quiet": 0, "-q": 0, "--offline": 0, "--limits": 1}


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
