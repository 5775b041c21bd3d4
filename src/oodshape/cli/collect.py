"""oodshape collect and merge: parts of one fit, or of one scoring, made on many machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli import shared_options as shared
from oodshape.cli.terminal import say, warnings_as_lines
from oodshape.core.files import check_writable
from oodshape.core.options import CacheOptions, HeadOptions, ImageOptions, ModelOptions, RunOptions, SubsetOptions
from oodshape.core.text import format_count


def collect(
    *,
    model: shared.ModelOption,
    opening: ModelOptions = shared.ON_ANY_DEVICE,
    layer: HeadOptions,
    images: str,
    out: Path,
    shard: shared.ShardOption = "1/1",
    method: str = "auto",
    hold_out: bool = False,
    preprocessing: shared.PreprocessingOption = "",
    reading: ImageOptions,
    subset: SubsetOptions,
    keeping: CacheOptions,
    running: RunOptions,
) -> None:
    """Collect what a fit needs from some images: one shard on each machine, then `oodshape fit --parts`.

    The size of a part does not grow with its images. All parts of a fit take the same options except --shard. With
    --cache, the same command continues a collection that was stopped.

    Args:
        images: Images like those it was trained on: {IMAGES}.
        out: The file to write, such as part-03.safetensors.
        method: The method that fit will use; auto collects what all methods need.
        hold_out: Keep a fifth of the images to set the threshold: fit needs no others.
    """
    check_writable(out)
    shared.check_inputs(images, model=model, opening=opening, method=method)
    from oodshape.guard.fit.collect import collect_shard
    from oodshape.images.sources.image_set import Shard
    from oodshape.images.sources.open_images import in_column
    from oodshape.networks.loading import open_model, override

    mine = Shard.of(shard)
    with warnings_as_lines():
        where = shared.resolve_device(opening)
        source = open_model(model, **vars(where), **vars(layer))
        given, (settings, upright) = in_column(images, reading.column), shared.parse_preprocessing(preprocessing)
        part = collect_shard(
            source,
            given,
            out,
            shard=mine,
            method=method,
            hold_out=hold_out,
            preprocessing=override(source.native, **settings),
            upright=upright,
            limit=subset.limit,
            cache=keeping.cache,
            run=running,
        )
    lost = f", {part.lost:,} of them unreadable" if part.lost else ""
    which = "this part" if mine.shards == 1 else f"all {mine.shards} parts"
    say(f"shard {mine}: {part.images:,} of {format_count(part.total, 'image')}{lost}")
    say(f"part: {out} ({out.stat().st_size / 1e6:.1f} MB)")
    say(f"next, with {which}: oodshape fit --parts FILES --model {model} ...")


def merge(*, files: Annotated[list[Path], typer.Argument(metavar="FILE")], out: Path) -> None:
    """Merge the scores of all shards into the file that one machine would have written.

    Args:
        files: The files of `oodshape score --shard`.
        out: scores.csv, .jsonl or .parquet.
    """
    from oodshape.guard.scoring.score_formats import Counts, check_format, merge_shards, write_scores

    check_writable(out)
    check_format(out)
    rows, named = merge_shards(files)
    counts = Counts()
    write_scores(out, counts.count(rows), named=named)
    say(*counts.lines(), f"wrote {out}")
