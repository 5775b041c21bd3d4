"""collect: some images through the network, and all that a fit needs of them: a part, of bounded size."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np

import oodshape
from oodshape.core.errors import InputError
from oodshape.core.files import compute_fingerprint
from oodshape.core.options import RunOptions
from oodshape.features.extraction import Extraction, NoReadableImage
from oodshape.features.features import Features, check_labels
from oodshape.guard.fit.extractor import Extractor, warn_of_unreadable
from oodshape.guard.fit.parts import Collected, Made, merge_parts, read_origin
from oodshape.images.datasets.synthetic import Scrambled
from oodshape.images.decode.prefetch import sample_sizes
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.duplicates import make_sketch
from oodshape.images.identity import Keys
from oodshape.images.sources.image_set import ImageSet, Shard, Subset, find_identities, limit_images, order_shards
from oodshape.images.sources.open_images import Given, find_classes, open_images
from oodshape.methods.detector import Method
from oodshape.methods.registry import find_method
from oodshape.networks.loading import OpenNet, override

WHOLE = Shard()
PartFiles = str | Path | Iterable[str | Path]  # a glob, a path, or several of them


def collect_part(
    extractor: Extractor, images: ImageSet, recipe: Method, *, shard: Shard = WHOLE, hold_out: bool = False
) -> Collected:
    """Collect everything that fitting the recipe needs from one shard of the images; their features stay available."""

    rows, seen, lost = shard.rows(len(images), extractor.run.batch_size), None, tuple[str, ...]()
    try:
        if len(rows):
            seen = extractor.read(images if shard == WHOLE else Subset(images, rows))
    except NoReadableImage as error:
        if shard == WHOLE:
            raise
        lost = (str(error),)
    if seen is None:  # what a part says of the network needs an image, of another part
        Extraction(extractor.classifier, images, extractor.preprocessing, skip=True).find_head()
    made = Made(
        network=extractor.classifier.fingerprint,
        head=extractor.classifier.head_name or "",
        preprocessing=extractor.preprocessing,
        upright=extractor.upright,
        precision=extractor.classifier.precision,
        needs=tuple(sorted(recipe.collects)),
        share=recipe.keeps,
        proxy=recipe.wants_proxy,
        held_out=hold_out,
        list_of_images=compute_fingerprint(find_identities(images)),
        total=len(images),
        batch_size=extractor.run.batch_size,
        classes=find_classes(images),
        shard=shard.number,
        shards=shard.shards,
        version=oodshape.__version__,
    )
    if seen is None:
        return Collected(made, lost=len(rows), reasons=lost)
    check_labels(seen.features.labels, seen.features.head.classes, find_classes(seen.images))
    return Collected(
        made,
        seen.features,
        make_proxy=partial(_scramble, extractor, seen.images),
        lost=seen.lost,
        reasons=seen.reasons,
        sizes=sample_sizes(seen.images, extractor.preprocessing),
        make_sketch=partial(make_sketch, seen.images),
    )


def _scramble(extractor: Extractor, whole: ImageSet, fitting: Keys, size: int) -> Features:
    """The features of scrambled images, by the identities of those they are made from."""
    among = np.flatnonzero(np.isin(find_identities(whole), fitting))
    base = limit_images(whole if len(among) == len(whole) else Subset(whole, among.tolist()), size)
    how = {"cache": extractor.cache, **vars(extractor.run)}
    made = Features.extract(extractor.classifier, Scrambled(base), extractor.preprocessing, **how)
    values = np.concatenate([raw.numpy() for _, raw in made.chunks()])
    return Features.from_arrays(values, made.head, None, made.predictions.numpy(), find_identities(base))


def list_part_files(given: PartFiles) -> list[Path]:
    """The files that a user named: a glob, a path, or several of them."""
    named = [given] if isinstance(given, (str, Path)) else list(given)
    found = [Path(path) for each in named for path in (sorted(glob.glob(str(each))) or [str(each)])]
    return list(dict.fromkeys(found))


def join_part_files(paths: Sequence[Path]) -> Collected:
    """The parts in these files as one; those that overlap, are missing or do not belong together are named."""
    if not paths:
        raise InputError("there is no part: give the files that `oodshape collect` wrote")
    said = {path: read_origin(path) for path in paths}
    first = paths[0]
    for path, made in said.items():
        different = said[first].difference(made)
        if different:
            raise InputError(f"{path} does not belong to {first}: it has {different}")
    ordered = order_shards({path: Shard(made.shard, made.shards) for path, made in said.items()}, "collect it too")
    # one after the other: each may take much memory
    parts = map(Collected.load, ordered)
    found = reduce(lambda sums, part: merge_parts([sums, part]), parts, merge_parts([next(parts)]))
    if found.rows is None and found.summed is None:
        raise InputError(f"the parts hold no image that could be read; {'; '.join(found.reasons[:3])}")
    return found


def load_parts(
    source: OpenNet, paths: Sequence[Path], recipe: Method, preprocessing: Preprocessing | None
) -> Collected:
    """The parts in these files as one, where they are of this network and hold what the recipe needs."""
    found = join_part_files(paths)
    made, network = found.made, source.classifier.fingerprint
    if made.network != network:
        raise InputError(f"{paths[0]} is of the network {made.network}, but got {source.spec or 'one'} ({network})")
    if preprocessing not in (None, made.preprocessing):
        raise InputError(f"{paths[0]} was collected with the preprocessing {made.preprocessing}, not {preprocessing}")
    if made.precision != source.classifier.precision:
        raise InputError(f"{paths[0]} was collected in {made.precision}, not {source.classifier.precision}")
    missing = sorted(recipe.collects - set(made.needs)) + ["proxy"] * (recipe.wants_proxy and not made.proxy)
    if missing or recipe.keeps not in (0.0, made.share):
        raise InputError(
            f"{', '.join(missing) or 'images to select by'} of the training images were not collected: collect for "
            "this method, with the same --method"
        )
    return found


class CollectedShard(NamedTuple):
    """The outcome of one shard."""

    images: int
    lost: int
    total: int  # of all shards
    shard: int
    shards: int


def collect_shard(
    source: OpenNet,
    images: Given,
    out: Path,
    *,
    shard: Shard = WHOLE,
    method: str | Method = "auto",
    hold_out: bool = False,
    preprocessing: Preprocessing | None = None,
    upright: bool = False,
    limit: int | None = None,
    cache: Path | None = None,
    run: RunOptions = RunOptions(),
) -> CollectedShard:
    """Write the part of one shard of the images, for `Guard.fit(parts=...)` with the same method."""
    extractor = Extractor(source.classifier, preprocessing or override(source.native), upright, run, cache)
    given = limit_images(open_images(images, upright=upright), limit)
    part = collect_part(extractor, given, resolve_recipe(method), shard=shard, hold_out=hold_out)
    part.save(out, source.classifier.head)
    mine = len(shard.rows(len(given), run.batch_size))
    warn_of_unreadable(f"shard {shard}", mine, part.lost, part.reasons)
    return CollectedShard(mine, part.lost, len(given), *shard)


def resolve_recipe(method: str | Method) -> Method:
    """The recipe that a name stands for, or the recipe itself."""
    return find_method(method) if isinstance(method, str) else method
