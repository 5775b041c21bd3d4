"""oodshape score: parses, calls, prints."""

from __future__ import annotations

import json as encoder
import sys
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import (
    IMAGES,
    ON_ANY_DEVICE,
    EngineOption,
    GuardOption,
    ModelOption,
    ShardOption,
    ray_pool,
    resolve_device,
)
from oodshape.cli.terminal import UNREADABLE, check_out, command_line, say, show_progress, warnings_as_lines
from oodshape.core.errors import InputError
from oodshape.core.options import ImageOptions, ModelOptions, RunOptions


def score(
    *,
    guard: GuardOption,
    model: ModelOption,
    opening: ModelOptions = ON_ANY_DEVICE,
    images: Annotated[str, typer.Option(help=f"The images to score: {IMAGES}.")],
    out: Annotated[
        Path | None, typer.Option(help="scores.csv, .jsonl or .parquet \\[default: CSV on standard output].")
    ] = None,
    shard: ShardOption = "",
    reading: ImageOptions,
    page: Annotated[
        Path | None,
        typer.Option(help="An HTML page with a movable threshold, and why each image was accepted or not."),
    ] = None,
    engine: EngineOption = "local",
    running: RunOptions,
    json: Annotated[
        bool, typer.Option("--json", help="JSON lines on standard output; with --out the summary as JSON.")
    ] = False,
) -> None:
    """Score images: class, score, p-value, accepted or not, in the order given.

    With --out, a run that was stopped goes on where it was. Images that cannot be read have a row with the error,
    and the exit status is 3. A decision may depend on --batch-size only where the score lies within rounding error of
    the threshold.
    """
    from oodshape.core.reading import any_names
    from oodshape.guard.guard import Guard
    from oodshape.guard.score import Scored
    from oodshape.guard.score_file import score_to_file, score_to_stream
    from oodshape.images.listing import in_column, one_by_one
    from oodshape.images.shards import Shard
    from oodshape.report.judged_page import Origin
    from oodshape.report.score_page import ScoredCrowd, write_scored

    check_out(out, page)
    pool = ray_pool(engine)
    if shard and page is not None:
        raise InputError("a page shows a whole set of images: leave --shard or --page out")
    if shard and out is None:
        raise InputError("--shard needs --out, such as scores-03.parquet")
    if pool is not None and (out is None or shard or page is not None):
        raise InputError("the engine ray needs --out, makes its own shards, and writes no page")
    fitted = Guard.load(guard)
    with warnings_as_lines():
        source = fitted.opened(model, **vars(resolve_device(opening)))
    listing = one_by_one(in_column(images, reading.column))
    crowd = ScoredCrowd(fitted, listing.name)

    def watch(row: Scored) -> None:
        if page is not None:
            crowd.add(row)

    lines: list[str] = []
    how = {"batch_size": running.batch_size, "workers": running.workers}
    if pool is not None:
        from oodshape.engines import ray

        assert out is not None
        tally, took = ray.score(fitted, listing, source, out, pool=pool, progress=show_progress(json), **how)
        lines = [took.line()]
    elif out is None:
        tally = score_to_stream(fitted, source, listing, any_names(sys.stdout), json_lines=json, watch=watch, **how)
    else:
        mine = Shard.of(shard) if shard else None
        show = show_progress(json)
        tally = score_to_file(fitted, source, listing, out, progress=show, shard=mine, watch=watch, **how)
    if page is not None:
        write_scored(fitted, source, listing, crowd, page, Origin(command_line(), str(guard)))
    if out is not None and json:
        typer.echo(encoder.dumps(vars(tally) | {"out": str(out)}))
    else:
        for line in [*tally.lines(), *lines, *(f"wrote {file}" for file in (out, page) if file is not None)]:
            say(line, err=out is None)
    if tally.unreadable:
        raise typer.Exit(UNREADABLE)
