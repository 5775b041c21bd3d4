"""oodshape score: parses, calls, prints."""

from __future__ import annotations

import json as encoder
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.cli.options import (
    IMAGES,
    SCORING,
    ColumnOption,
    Costs,
    DetectorOption,
    Engine,
    Network,
    Preparing,
    QuietOption,
    Running,
    opened,
)
from oodshape.cli.terminal import UNREADABLE, check_out, command_line, say, warnings_as_lines


def score(
    *,
    detector: DetectorOption,
    network: Network,
    images: Annotated[str, typer.Option(help=f"The images to score: {IMAGES}.")],
    out: Annotated[
        Path | None, typer.Option(help="scores.csv, .jsonl or .parquet \\[default: CSV on standard output].")
    ] = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Only the I-th of N shards, into a .parquet file for `oodshape merge`.")
    ] = "",
    column: ColumnOption = None,
    page: Annotated[
        Path | None, typer.Option(help="A page with a threshold to move, and why each image was accepted or not.")
    ] = None,
    preparing: Preparing,
    engine: Engine,
    running: Running = SCORING,
    costs: Costs,
    json: Annotated[
        bool, typer.Option("--json", help="JSON lines on standard output; with --out the summary as JSON.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Score images: class, score, p-value, accepted or not, in the order given.

    With --out, a run that was stopped goes on where it was. Images that cannot be read have a row with the error,
    and the exit status is 3. The preprocessing comes from the guard; flags that differ from it are an error.
    """
    from oodshape.core.errors import InputError
    from oodshape.core.reading import any_names
    from oodshape.guard.guard import Guard
    from oodshape.guard.scoring.score_file import score_to_file, score_to_stream
    from oodshape.images.sources.image_set import Shard
    from oodshape.images.sources.listing import in_column, one_by_one
    from oodshape.report.pages.scored_page import Origin, ScoredRows, write_scored

    costs.hold()
    check_out(out, page)
    guard = Guard.load(detector, trust_code=network.trust_code)
    with warnings_as_lines():
        source = opened(guard, network, running, preparing)
    listing = one_by_one(in_column(images, column))
    scored_set = ScoredRows(guard, listing.name)
    how: dict[str, Any] = {**running.feeding(), "on_row": None if page is None else scored_set.add}
    said: list[str] = []
    if shard and page is not None:
        raise InputError("a page shows a whole set of images: leave --shard or --page out")
    if engine.is_ray:
        from oodshape.engines import ray

        if out is None or shard or page is not None:
            raise InputError("the engine ray needs --out, makes its own shards, and writes no page")
        opening = {**network.said(), **running.place()}
        show = False if json or quiet else None
        given = {**running.feeding(), "progress": show}
        tally, took = ray.score(guard, listing, network.model, out, network=opening, pool=engine.pool(), **given)
        said = [took.line()]
    elif out is None:
        if shard:
            raise InputError("--shard needs --out, such as scores-03.parquet")
        tally = score_to_stream(guard, source, listing, any_names(sys.stdout), json_lines=json, **how)
    else:
        show = False if json or quiet else None
        mine = Shard.of(shard) if shard else None
        tally = score_to_file(guard, source, listing, out, progress=show, shard=mine, **how)
    if page is not None:
        write_scored(guard, source, listing, scored_set, page, Origin(command_line(), str(detector)))
    if out is not None and json:
        typer.echo(encoder.dumps(vars(tally) | {"out": str(out)}))
    elif not quiet:
        for line in [*tally.lines(), *said, *(f"wrote {file}" for file in (out, page) if file is not None)]:
            say(line, err=out is None)
    if tally.unreadable:
        raise typer.Exit(UNREADABLE)
