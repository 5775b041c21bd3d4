"""collect: some images through the network, and all that a fit needs of them: a part, of bounded size."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np

import oodshape
from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.features.extraction import Extraction, NoneReadable
from oodshape.features.features import Features
from oodshape.features.panel import panel_features
from oodshape.guard.collected import Collected, Made, made_of, together
from oodshape.guard.recipe import recipe_of
from oodshape.guard.score_shards import refuse_missing
from oodshape.guard.way import Seen, Way, warn_of_lost
from oodshape.images.identity import Keys
from oodshape.images.image_set import ImageSet, Shard, Subset, identities_of, limited
from oodshape.images.listing import Given, classes_of, image_set
from oodshape.images.preprocessing import Preprocessing
from oodshape.methods.detector import Method
from oodshape.networks.opening import Source, prepared

WHOLE = Shard()
PartFiles = str | Path | Iterable[str | Path]  # a glob, a path, or several of them


def collected(way: Way, images: ImageSet, recipe: Method, *, shard: Shard = WHOLE, hold_out: bool = False) -> Collected:
    """All that fitting the recipe needs of one shard of the images; their features stay at hand."""

    def make() -> Made:
        return Made(
            network=way.classifier.fingerprint,
            head=way.classifier.head_name or "",
            preprocessing=way.preprocessing,
            upright=way.upright,
            precision=way.classifier.precision,
            needs=tuple(sorted(recipe.collects)),
            share=recipe.keeps,
            panel=recipe.wants_panel,
            held_out=hold_out,
            images=fingerprint_of(identities_of(images)),
            total=len(images),
            batch_size=way.batch_size,
            classes=classes_of(images),
            shard=shard.number,
            shards=shard.shards,
            version=oodshape.__version__,
        )

    if shard == WHOLE:
        return _of_seen(way, way.read(images), make)
    rows = shard.rows(len(images), way.batch_size)
    try:
        if len(rows):
            return _of_seen(way, way.read(Subset(images, rows)), make)
        lost: tuple[str, ...] = ()
    except NoneReadable as error:
        lost = (str(error),)
    # what a part says of the network needs an image, of another part
    Extraction(way.classifier, images, way.preprocessing, skip=True).find_head()
    return Collected(make, lost=len(rows), reasons=lost)


def _of_seen(way: Way, seen: Seen, make: Callable[[], Made]) -> Collected:
    def panel(fitting: Keys, size: int) -> Features:
        """Scrambled images, by the identities of those they are made from."""
        whole = seen.images
        among = np.flatnonzero(np.isin(identities_of(whole), fitting))
        base = limited(whole if len(among) == len(whole) else Subset(whole, among.tolist()), size)
        [made] = panel_features(way.classifier, base, way.preprocessing, cache=way.cache, size=size, **way.how)
        values = np.concatenate([raw.numpy() for _, raw in made.chunks()])
        return Features.from_arrays(values, made.head, None, made.predictions.numpy(), identities_of(base))

    return Collected(make, seen.features, make_panel=panel, lost=seen.lost, reasons=seen.reasons)


def part_files(given: PartFiles) -> list[Path]:
    """The files that a user named: a glob, a path, or several of them."""
    named = [given] if isinstance(given, (str, Path)) else list(given)
    found = [Path(path) for each in named for path in (sorted(glob.glob(str(each))) or [str(each)])]
    return list(dict.fromkeys(found))


def joined_parts(paths: Sequence[Path]) -> Collected:
    """The parts in these files as one; those that overlap, are missing or do not belong together are named."""
    if not paths:
        raise InputError("there is no part: give the files that `oodshape collect` wrote")
    said = {path: made_of(path) for path in paths}
    first = paths[0]
    shards: dict[int, Path] = {}
    for path, made in said.items():
        different = said[first].difference(made)
        if different:
            raise InputError(f"{path} does not belong to {first}: it has {different}")
        if made.shards != said[first].shards:
            raise InputError(
                f"{path} is one of {made.shards} shards, {first} one of {said[first].shards}: they overlap; collect "
                "all with one number of shards"
            )
        if made.shard in shards:
            raise InputError(f"{path} and {shards[made.shard]} are both shard {made.shard} of {made.shards}")
        shards[made.shard] = path
    refuse_missing(shards, said[first].shards, "collect it too")
    # one after the other: each may take much memory
    parts = (Collected.load(shards[number]) for number in sorted(shards))
    found = reduce(lambda sums, part: together([sums, part]), parts)
    found = together([found])
    if found.rows is None and found.summed is None:
        raise InputError(f"the parts hold no image that could be read; {'; '.join(found.reasons[:3])}")
    return found


def parts_for(source: Source, paths: Sequence[Path], recipe: Method, preprocessing: Preprocessing | None) -> Collected:
    """The parts in these files as one, where they are of this network and hold what the recipe needs."""
    found = joined_parts(paths)
    made, network = found.made, source.classifier.fingerprint
    if made.network != network:
        raise InputError(f"{paths[0]} is of the network {made.network}, but got {source.spec or 'one'} ({network})")
    if preprocessing not in (None, made.preprocessing):
        raise InputError(f"{paths[0]} was collected with the preprocessing {made.preprocessing}, not {preprocessing}")
    if made.precision != source.classifier.precision:
        raise InputError(f"{paths[0]} was collected in {made.precision}, not {source.classifier.precision}")
    missing = sorted(recipe.collects - set(made.needs)) + ["panel"] * (recipe.wants_panel and not made.panel)
    if missing or recipe.keeps not in (0.0, made.share):
        raise InputError(
            f"{', '.join(missing) or 'images to select by'} of the training images were not collected: collect for "
            "this method, with the same --method"
        )
    return found


class Done(NamedTuple):
    """What became of one shard."""

    images: int
    lost: int
    total: int  # of all shards
    shard: int
    shards: int


def collect_shard(
    source: Source,
    images: Given,
    out: Path,
    *,
    shard: Shard = WHOLE,
    method: str | Method = "auto",
    hold_out: bool = False,
    exportable: bool = False,
    preprocessing: Preprocessing | None = None,
    upright: bool = False,
    limit: int | None = None,
    cache: Path | None = None,
    progress: bool | None = None,
    batch_size: int = 64,
    workers: int | None = None,
) -> Done:
    """Write the part of one shard of the images, for `Guard.fit(parts=...)` with the same method."""
    way = Way(
        source.classifier, preprocessing or prepared(source.native), upright, cache, progress, batch_size, workers
    )
    given = limited(image_set(images, upright=upright), limit)
    part = collected(way, given, recipe_of(method, exportable), shard=shard, hold_out=hold_out)
    part.save(out, source.classifier.head)
    mine = len(shard.rows(len(given), batch_size))
    warn_of_lost(f"shard {shard}", mine, part.lost, part.reasons)
    return Done(mine, part.lost, len(given), *shard)
