"""oodshape methods: calls and prints."""

from __future__ import annotations

from typing import Annotated

import typer

from oodshape.cli.completion import method_names
from oodshape.cli.terminal import console


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", autocompletion=method_names, help="Only this method, at length.")
    ] = None,
) -> None:
    """List the methods, or tell all about one: what it does, what it needs, when it fails, and its settings."""
    from oodshape.methods.describe import describe_method, method_lines
    from oodshape.report.tables.columns import show_columns, show_facts

    out = console()
    if name is not None:
        show_facts(describe_method(name), out)
    elif out.is_terminal:
        show_columns(("method", "what it does"), [line[:2] for line in method_lines()], out)
        out.print("\n`oodshape methods NAME` tells what one needs, when it fails, and its settings.")
    else:
        show_columns(("method", "what it does", "needs", "fails", "settings"), method_lines(), out)
