"""The work on one shard, independent of the engine: reading, decoding and sums."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.options import HeadOptions, ModelOptions, RunOptions
from oodshape.guard.fit.collect import collect_part
from oodshape.guard.fit.extractor import Extractor
from oodshape.guard.fit.parts import Collected, merge_parts
from oodshape.guard.guard import Guard
from oodshape.guard.scoring.resumable_scores import ScoresInUse, score_to_file
from oodshape.guard.scoring.score_formats import Counts
from oodshape.images.decode.limits import Limits
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import ImageSet, Shard
from oodshape.methods.detector import Method
from oodshape.networks.head import Head
from oodshape.networks.loading import OpenNet, open_model

PATIENCE = 60.0  # seconds that a shard which another process writes is waited for


@dataclass(frozen=True)
class Job:
    """The job of a worker; the images were listed once, on the driver."""

    model: str
    shards: int
    opening: ModelOptions
    layer: HeadOptions
    run: RunOptions
    limits: Limits = field(default_factory=Limits.now)

    @classmethod
    def of(cls, source: OpenNet, shards: int, run: RunOptions) -> Job:
        """The job of workers that open the network of `source` by its spec, with the head that was found."""
        if not source.spec:
            raise InputError(
                "workers open the network by its name: give a spec such as timm:NAME or package.module:function"
            )
        layer = replace(source.layer, head=source.classifier.head_name or source.layer.head)
        opening = replace(source.opening, precision=source.classifier.precision)
        return cls(source.spec, shards, opening, layer, replace(run, progress=False))

    def open_network(self) -> OpenNet:
        """Open the network, once per worker."""
        self.limits.use()
        return open_model(self.model, **vars(self.opening), **vars(self.layer))


class Collector:
    """Makes parts: one per shard, as the bytes of its file."""

    def __init__(
        self, job: Job, images: ImageSet, recipe: Method, preprocessing: Preprocessing, upright: bool, hold_out: bool
    ) -> None:
        """Load the network."""
        self.job, self.images, self.recipe, self.hold_out = job, images, recipe, hold_out
        classifier = job.open_network().classifier
        self.extractor = Extractor(classifier, preprocessing, upright, job.run)

    def __call__(self, number: int) -> dict[str, Any]:
        """The row of a shard: its number, the part, and how many images were lost."""
        shard = Shard(number, self.job.shards)
        part = collect_part(self.extractor, self.images, self.recipe, shard=shard, hold_out=self.hold_out)
        data = _pack_part(part, part.head or self.extractor.classifier.head)
        return {"part": data, "lost": part.lost}


class ShardScorer:
    """Scores shards, each into a file of its own; one that is there already is not scored again."""

    def __init__(self, job: Job, guard: Guard, listing: Any, folder: Path) -> None:
        """Load the network."""
        self.job, self.guard, self.listing, self.folder = job, guard, listing, folder
        self.source = job.open_network()

    def __call__(self, number: int) -> dict[str, Any]:
        """The row of a shard: its counts. A worker of a run that was killed a moment ago may still be at it."""
        until, shard = time.time() + PATIENCE, Shard(number, self.job.shards)
        out = self.folder / name_shard_file(number, self.job.shards)
        while not out.exists():
            try:
                tally = score_to_file(self.guard, self.source, self.listing, out, self.job.run, shard=shard)
                return {"tally": tally}
            except ScoresInUse:
                if time.time() > until:
                    raise
                time.sleep(0.1)
        return {"tally": Counts()}


def name_shard_file(shard: int, shards: int) -> str:
    """The file of one shard's scores."""
    return f"shard-{shard:05}-of-{shards:05}.parquet"


def _pack_part(part: Collected, head: Head) -> bytes:
    """A part as the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.safetensors"
        part.save(path, head)
        return path.read_bytes()


def unpack_part(data: bytes) -> Collected:
    """The part that `_pack_part` gave."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.safetensors"
        path.write_bytes(data)
        return Collected.load(path)


def merge_packed_parts(*parts: bytes) -> bytes:
    """Some parts as one, all as bytes."""
    whole = merge_parts([unpack_part(data) for data in parts])
    assert whole.head is not None
    return _pack_part(whole, whole.head)
