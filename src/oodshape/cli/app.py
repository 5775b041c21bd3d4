"""The command line: one command per file, put together here; a user's mistake is one line."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from oodshape.cli.bench import bench
from oodshape.cli.bundles import Command, Group, flat
from oodshape.cli.calibrate import calibrate
from oodshape.cli.check import check
from oodshape.cli.collect import collect, merge
from oodshape.cli.compare import compare
from oodshape.cli.data import data
from oodshape.cli.decide import decide
from oodshape.cli.export import export
from oodshape.cli.fit import fit
from oodshape.cli.inspect import inspect
from oodshape.cli.methods import methods
from oodshape.cli.models import models
from oodshape.cli.repeat import repeat
from oodshape.cli.report import report
from oodshape.cli.score import score
from oodshape.cli.serve import serve
from oodshape.cli.study import study
from oodshape.cli.terminal import set_quiet, show_line
from oodshape.cli.watch import watch

app = typer.Typer(
    name="oodshape",
    cls=Group,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Tell which images an image classifier should not trust.\n\n"
    "A classifier answers with confidence even on images that it was never meant to see. oodshape reads the "
    "features of a trained network and gives every image a score: high for images like those it was trained on "
    "(in-distribution, ID), low for others (out-of-distribution, OOD).",
)

STOPPED = 130  # the exit status after Ctrl-C

GUARDS = (fit, collect, calibrate, score, merge, decide, inspect, check, export, serve, watch)
BENCHMARKS = (bench, report, compare, repeat, study)

for command in (*GUARDS, *BENCHMARKS, methods, models, data):
    app.command(cls=Command)(flat(command))


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2."""
    from oodshape.core.errors import InputError

    for name in ("stdout", "stderr"):  # None where the caller has closed it
        setattr(sys, name, getattr(sys, name) or open(os.devnull, "w"))  # noqa: SIM115 (until the process ends)
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # our own limits decide
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # what cannot be written is an error of this command, not of the interpreter
    except InputError as error:
        show_line(f"error: {error}")
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes once more
        sys.exit(0)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(STOPPED)
    except SystemExit as end:
        if end.code == STOPPED:  # typer has caught the interrupt before us, and says nothing
            sys.stderr.write("stopped\n")
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        show_line(f"error: {error}")
        sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        import oodshape

        typer.echo(oodshape.__version__)
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but results and errors.")] = False,
    limits: Annotated[
        str,
        typer.Option(
            envvar="OODSHAPE_LIMITS",
            help="The largest files to read: pixels=50331648,aspect=100,inflated=268435456 (any of them).",
        ),
    ] = "",
) -> None:
    """Options that stand before a command."""
    set_quiet(quiet)
    if limits:
        from oodshape.images.decode.limits import Limits

        before = Limits.parse(limits).use()
        context.call_on_close(before.use)
