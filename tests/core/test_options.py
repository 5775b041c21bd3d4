"""Options are declared once: verbs, commands, signatures and type hints agree."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

pytest.importorskip("torch", reason="needs torch")
import typer

import oodshape
from oodshape import Features, Guard, InputError
from oodshape.cli.all_commands import app
from oodshape.core import options
from oodshape.core.options import ModelOptions, RunOptions, make_options, takes_options

COMMANDS = typer.main.get_command(app).commands
VERBS = ("fit", "calibrate", "score", "check", "export")
PYTHON_ONLY = {"self", "path", "prepared", "progress", "upright"}  # in memory; --quiet; --preprocessing upright
COMMAND_ONLY = {"guard", "out", "page", "shard", "engine", "json", "help", "provider"}  # files, how the command runs


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_and_its_command_take_the_same_options(verb: str) -> None:
    keywords = set(inspect.signature(getattr(Guard, verb)).parameters)
    flags = {option.name for option in COMMANDS[verb].params}
    assert keywords - PYTHON_ONLY == flags - COMMAND_ONLY


def test_functions_with_a_run_option_take_them_from_the_declaration() -> None:
    run = [(name, found) for name in dir(oodshape) if inspect.isfunction(found := getattr(oodshape, name))]
    run += [
        (f"{each.__name__}.{name}", found) for each in (Guard, Features) for name, found in inspect.getmembers(each)
    ]
    took = {name for name, found in run if callable(found) and "batch_size" in _parameters(found)}
    written = {name for name, found in run if name in took and "batch_size" in _parameters(found, follow=False)}
    assert {"evaluate", "proxy_features", "Guard.fit", "Features.extract"} <= took
    assert written == set()  # a further option would be unknown to them


def _parameters(function: object, follow: bool = True) -> tuple[str, ...]:
    """The parameters that help() shows, or those of the code itself."""
    if follow:
        try:
            return tuple(inspect.signature(function).parameters)  # type: ignore[arg-type]
        except (TypeError, ValueError):  # not a function of Python
            return ()
    code = inspect.unwrap(getattr(function, "__func__", function)).__code__  # type: ignore[arg-type,attr-defined]
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def test_every_option_has_a_help_text() -> None:
    assert [(name, each.name) for name, command in COMMANDS.items() for each in command.params if not each.help] == []


@pytest.mark.parametrize("group", ["Model", "Head", "Image", "Subset", "Cache", "Run"])
def test_type_checkers_see_the_fields_of_each_group(group: str) -> None:
    declared = {each.name for each in fields(getattr(options, f"{group}Options"))}
    assert declared == set(getattr(options, f"{group}Keywords").__annotations__)


def test_a_keyword_that_no_verb_has_is_named_with_the_nearest() -> None:
    @takes_options(ModelOptions, RunOptions)
    def verb(images: str, **keywords: object) -> RunOptions:
        return make_options(RunOptions, keywords)

    assert verb("x", batch_size=8, device="cpu") == RunOptions(batch_size=8)
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'; did you mean batch_size"):
        verb("x", batchsize=8)
    with pytest.raises(InputError, match="batch_size must be at least 1, got 0"):
        verb("x", batch_size=0)
