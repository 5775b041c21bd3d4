"""oodshape check: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import IMAGES, SCORING, Costs, DetectorOption, Network, QuietOption, Running, opened
from oodshape.cli.terminal import UNREADABLE, check_out, command_line, say, warnings_as_lines


def check(
    *,
    detector: DetectorOption,
    network: Network,
    id: Annotated[str, typer.Option(help=f"Images that the network should accept: {IMAGES}.")],
    ood: Annotated[list[str], typer.Option(help="Images that it should reject; may be given several times.")],
    out: Annotated[Path | None, typer.Option(help="The page to write, such as check.html.")] = None,
    running: Running = SCORING,
    costs: Costs,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Check a guard on images of your own: how many of each set it accepts, beside a threshold on the softmax."""
    from rich.console import Console

    from oodshape.guard.check import check_guard
    from oodshape.guard.guard import Guard
    from oodshape.guard.scoring.score import Feed
    from oodshape.images.sources.listing import one_by_one
    from oodshape.report.pages.check_page import HEAD, NOTE, check_rows, headline, right_line, verdict, write_check
    from oodshape.report.pages.scored_page import Origin
    from oodshape.report.tables.columns import show_columns

    costs.hold()
    check_out(out)
    guard = Guard.load(detector)
    names = [one_by_one(each).name for each in ood]
    sets = dict(zip(names if len(set(names)) == len(names) else ood, ood, strict=True))
    show = False if json or quiet else None
    with warnings_as_lines():
        source = opened(guard, network, running)
        found = check_guard(guard, source, id, sets, Feed(progress=show, **running.feeding()))
    if out is not None:
        write_check(found, out, source, Origin(command_line(), str(detector)))
    if json:
        said = {"rejected_id": found.rejected, "promised": found.promised, "sets": found.rows()}
        sanity = None if guard.about.sanity is None else guard.about.sanity.accepted(guard.detector)
        right = None if found.selective is None else asdict(found.selective)
        typer.echo(encoder.dumps(said | {"selective": right, "unreadable": found.unreadable, "sanity": sanity}))
    elif not quiet:
        show_columns(HEAD, check_rows(found), Console(highlight=False))
        say(NOTE)
        for line in (*headline(found), verdict(found), *right_line(found)):
            say(line)
        if guard.sanity:
            say(f"sanity: the guard {guard.sanity}")
        for path, why in list(found.unreadable.items())[:1]:
            say(f"{len(found.unreadable):,} could not be read; {path}: {why}")
        if out is not None:
            say(f"page: {out}")
    if found.unreadable:
        raise typer.Exit(UNREADABLE)
