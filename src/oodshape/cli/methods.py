"""oodshape methods: list the methods, or describe one."""

from __future__ import annotations

from typing import Annotated

import typer

from oodshape.cli.terminal import console


def methods(name: Annotated[str | None, typer.Argument(metavar="NAME")] = None) -> None:
    """List the methods, or describe one: summary, needs, failures, settings, deviations, paper and code.

    Args:
        name: Describe this method, or package.module:Name of yours.
    """
    from oodshape.core.text import print_columns
    from oodshape.methods.describe import describe_method, method_rows

    out = console()
    if name is not None:
        print_columns((), [fact for fact in describe_method(name) if fact[1]], out)
    elif out.is_terminal:
        print_columns(("method", "name", "summary"), [line[:3] for line in method_rows()], out)
        out.print("\n`oodshape methods NAME` describes one: needs, failures, settings, paper and code.")
    else:
        print_columns(("method", "name", "summary", "needs", "fails", "recipe"), method_rows(), out)
