"""oodshape score: parses, calls, prints."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from oodshape.cli import shared_options as shared
from oodshape.cli.terminal import UNREADABLE, command_line, say, show_json, warnings_as_lines
from oodshape.core.errors import InputError
from oodshape.core.files import check_writable
from oodshape.core.options import ImageOptions, ModelOptions, RunOptions


def score(
    *,
    guard: shared.GuardOption,
    model: shared.ModelOption,
    opening: ModelOptions = shared.ON_ANY_DEVICE,
    images: str,
    out: Path | None = None,
    shard: shared.ShardOption = "",
    reading: ImageOptions,
    page: Path | None = None,
    engine: shared.EngineOption = "local",
    running: RunOptions,
    json: bool = False,
) -> None:
    """Score images: class, score, p-value, accepted or not, in the order given.

    With --out, the same command continues a run that was stopped. Images that cannot be read have a row with the error,
    and the exit status is 3. A decision may depend on --batch-size only if the score lies within rounding error of
    the threshold.

    Args:
        images: The images to score: {IMAGES}.
        out: scores.csv, .jsonl or .parquet [default: CSV on standard output].
        page: An HTML page with a movable threshold, and why each image was accepted or not.
        json: JSON lines on standard output; with --out the summary as JSON.
    """
    from oodshape.guard.scoring.score_formats import check_format

    check_writable(out, page)
    if out is not None:
        check_format(out)
    if shard and page is not None:
        raise InputError("a page shows a whole set of images: leave --shard or --page out")
    if shard and (out is None or out.suffix.lower() != ".parquet"):
        raise InputError("--shard needs a Parquet file, which stores its number: --out scores-03.parquet")
    shared.check_inputs(images, guard=guard, model=model, opening=opening)
    pool = shared.ray_pool(engine)
    from oodshape.core.files import any_names
    from oodshape.guard.guard import Guard
    from oodshape.guard.scoring.resumable_scores import score_to_file, score_to_stream
    from oodshape.images.sources.image_set import Shard
    from oodshape.images.sources.open_images import describe_skipped, in_column, stream_images
    from oodshape.report.pages.scored_page import Origin, ScoredRows, write_scored_page

    if pool is not None and (out is None or shard or page is not None):
        raise InputError("the engine ray needs --out, makes its own shards, and writes no page")
    fitted = Guard.load(guard, trust_code=opening.trust_code)
    with warnings_as_lines():
        source = fitted.open_network(model, shared.resolve_device(opening))
    listing = stream_images(in_column(images, reading.column))
    scored_set = ScoredRows(fitted, listing.name)
    on_row = None if page is None else scored_set.add
    lines: list[str] = []
    if pool is not None:
        from oodshape.engines import ray

        assert out is not None
        tally, speed = ray.score(fitted, listing, source, out, running, pool=pool)
        lines = [speed]
    elif out is None:
        tally = score_to_stream(fitted, source, listing, any_names(sys.stdout), running, json_lines=json, on_row=on_row)
    else:
        mine = Shard.of(shard) if shard else None
        tally = score_to_file(fitted, source, listing, out, running, shard=mine, on_row=on_row)
    if page is not None:
        write_scored_page(fitted, source, listing, scored_set, page, Origin(command_line(), str(guard)))
    if out is not None and json:
        show_json(vars(tally) | {"out": str(out)})
    else:
        wrote = [f"wrote {file}" for file in (out, page) if file is not None]
        say(*tally.lines(), *describe_skipped(listing), *lines, *wrote, err=out is None)
    if tally.unreadable:
        raise typer.Exit(UNREADABLE)
