"""oodshape collect and merge: what many machines do of one fit, and of one scoring."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.cli.completion import method_names
from oodshape.cli.options import (
    IMAGES,
    ColumnOption,
    Costs,
    Engine,
    ExportableOption,
    LimitOption,
    Network,
    Preparing,
    QuietOption,
    Running,
    UprightOption,
)
from oodshape.cli.terminal import check_out, say, warnings_as_lines
from oodshape.core.text import format_count


def collect(
    *,
    network: Network,
    images: Annotated[str, typer.Option(help=f"Images like those it was trained on: {IMAGES}.")],
    out: Annotated[Path, typer.Option(help="The file to write, such as part-03.safetensors.")],
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="The I-th of N runs of whole batches of the images; I from 1 to N.")
    ] = "1/1",
    column: ColumnOption = None,
    method: Annotated[
        str, typer.Option(autocompletion=method_names, help="The method that fit will be told; auto has what all need.")
    ] = "auto",
    hold_out: Annotated[
        bool, typer.Option("--hold-out", help="Keep a fifth of the images to set the threshold: fit needs no others.")
    ] = False,
    exportable: ExportableOption = False,
    preparing: Preparing,
    upright: UprightOption = False,
    limit: LimitOption = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where features are kept: a collect that was stopped goes on there.")
    ] = None,
    engine: Engine,
    running: Running,
    costs: Costs,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Collect what a fit needs of some images: one shard on each machine, then `oodshape fit --parts`.

    A part's size does not grow with its images. All parts of a fit take the same options but --shard.
    """
    from oodshape.core.errors import InputError
    from oodshape.guard.fit.collect import collect_shard
    from oodshape.images.sources.image_set import Shard
    from oodshape.images.sources.listing import in_column
    from oodshape.networks.loading import open_model, prepared

    costs.hold()
    check_out(out)
    mine = Shard.of(shard)
    with warnings_as_lines():
        source = open_model(network.model, **network.said(), **running.place())
        given = in_column(images, column)
        how: dict[str, Any] = {
            "method": method,
            "hold_out": hold_out,
            "exportable": exportable,
            "preprocessing": prepared(source.native, **preparing.said()),
            "upright": upright,
            "limit": limit,
            "progress": False if json or quiet else None,
            **running.feeding(),
        }
        if engine.is_ray:
            from oodshape.engines import ray

            if mine.shards > 1 or cache is not None:
                raise InputError(
                    "the engine ray makes its own shards and keeps no features: leave --shard, --cache out"
                )
            opening = {**network.said(), **running.place()}
            took = ray.collect(source, given, out, network=opening, pool=engine.pool(), **how)
            made, lines = vars(took), [took.line()]
        else:
            part = collect_shard(source, given, out, shard=mine, cache=cache, **how)
            lost = f", {part.lost:,} of them unreadable" if part.lost else ""
            made, lines = (
                part._asdict(),
                [f"shard {mine}: {part.images:,} of {format_count(part.total, 'image')}{lost}"],
            )
    if json:
        typer.echo(encoder.dumps(made | {"out": str(out)}))
    elif not quiet:
        which = "this part" if mine.shards == 1 else f"all {mine.shards} parts"
        lines.append(f"part: {out} ({out.stat().st_size / 1e6:.1f} MB)")
        for line in [*lines, f"next, with {which}: oodshape fit --parts FILES --model {network.model} ..."]:
            say(line)


def merge(
    *,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The files of `oodshape score --shard`.")],
    out: Annotated[Path, typer.Option(help="scores.csv, .jsonl or .parquet.")],
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Merge the scores of all shards into the file that one machine would have written."""
    from oodshape.core.files import replacing
    from oodshape.guard.scoring.score_table import Counter, merge_shards, writer

    check_out(out)
    write = writer(out)
    rows, named = merge_shards(files)
    counter = Counter(rows)
    with replacing(out) as temporary:
        write(temporary, counter, named, "")
    if json:
        typer.echo(encoder.dumps(vars(counter.tally) | {"out": str(out)}))
    elif not quiet:
        for line in [*counter.tally.lines(), f"wrote {out}"]:
            say(line)
