"""`main` runs the command line: it imports only the command that was asked for, and a user's mistake is one line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from oodshape.cli.make_command import Command, Group, make_command
from oodshape.cli.terminal import set_quiet, show_line
from oodshape.core.errors import InputError, missing_extra
from oodshape.core.machine import OFFLINE, is_offline

# the commands in the order of the help, by panel
PANELS = {
    "Guard": "fit calibrate check score inspect decide review watch export serve",
    "Benchmark": "bench report compare repeat study",
    "Scaling": "collect merge",
    "Reference": "methods models data",
}
COMMANDS = {name: panel for panel, names in PANELS.items() for name in names.split()}
MODULES = {"merge": "collect"}  # of commands that have no module of their own name
STOPPED = 130  # the exit status after Ctrl-C


def make_app(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """Make the program with some of its commands."""
    app = typer.Typer(
        name="oodshape",
        cls=Group,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        help="Detect out-of-distribution (OOD) images with a trained image classifier.\n\n"
        "Start with `oodshape fit`, then `oodshape check` and `oodshape score`. Without data: `oodshape bench`.",
    )
    app.callback()(make_command(common))
    for name in commands:
        module = import_module(f"oodshape.cli.{MODULES.get(name, name)}")
        app.command(cls=Command, rich_help_panel=COMMANDS[name])(make_command(getattr(module, name)))
    return app


def find_command(words: Iterable[str]) -> str | None:
    """Return the command that some words begin with, after flags of the program; None where it is not known.

    >>> find_command(["--limits=pixels=9", "-q", "fit", "--help"]), find_command(["--help"])
    ('fit', None)
    """
    first = next((word for word in words if not word.startswith("-")), None)
    return first if first in COMMANDS else None


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2."""
    for name in ("stdout", "stderr"):  # None where the caller has closed it
        setattr(sys, name, getattr(sys, name) or open(os.devnull, "w"))  # noqa: SIM115 (until the process ends)
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # our own limits decide
    try:
        try:
            command = find_command(sys.argv[1:])
            make_app(COMMANDS if command is None else [command])()
        finally:
            sys.stdout.flush()  # what cannot be written is an error of this command, not of the interpreter
    except (ModuleNotFoundError, InputError) as error:
        show_line(f"error: {missing_extra(error) if isinstance(error, ModuleNotFoundError) else error}")
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes once more
        sys.exit(0)
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != STOPPED:  # typer turns an interrupt into this status
            raise
        sys.stderr.write("stopped\n")
        sys.exit(STOPPED)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        show_line(f"error: {error}")
        sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        import oodshape

        typer.echo(oodshape.__version__)
        raise typer.Exit


def common(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
    offline: bool = False,
    limits: Annotated[str, typer.Option(envvar="OODSHAPE_LIMITS", metavar="LIMITS")] = "",
) -> None:
    """Options that stand before a command.

    Args:
        version: Print the version and stop.
        quiet: Print nothing but results and errors.
        offline: Never use the network; OODSHAPE_OFFLINE=1 does the same.
        limits: The largest files to read [default: pixels=48M,aspect=100,inflated=256M; K, M, G: powers of 1024].
    """
    set_quiet(quiet)
    context.call_on_close(lambda: set_quiet(False))
    if offline and not is_offline():
        os.environ[OFFLINE] = "1"  # processes that are started have it too
        context.call_on_close(lambda: os.environ.pop(OFFLINE))
    if limits:
        from oodshape.images.decode.limits import Limits

        before = Limits.parse(limits).use()
        context.call_on_close(before.use)
