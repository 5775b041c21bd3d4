"""Collected: all that a fit needs of some training images, in a file of bounded size; files of parts add up.

Few images are kept as rows of features, since what becomes of them (to fit on, to select by, to hold out) may depend on
how many there are in all. Of many each decides for itself, by its identity, and sums are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import oodshape
from oodshape.core import files
from oodshape.core.errors import InputError
from oodshape.core.files import reading
from oodshape.core.values import AtLeast, Value, decode_value, encode_value
from oodshape.features import training_sums as sums
from oodshape.features.features import Features
from oodshape.features.proxy import SIZE
from oodshape.images import identity
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.duplicates import join_sketches
from oodshape.methods.held_out_classes import FEWEST_CLASSES, hold_out_classes
from oodshape.networks.head import Head

HELD_OUT = 0.2  # the share of the training images that sets the threshold where there are no others
FEW = 512  # images that a file keeps as rows: among more, more than enough decide each way for themselves
# Rows of many small parts, above which they are summed too: below it sums over rows are float64 in any case
# (`sum_kernels.exact`), so that they are those of fewer and larger parts.
MANY = 5_000
KIND = "part"
Count = Annotated[int, AtLeast(0)]


class Made(Value):
    """The origin of a part: parts that can be added differ only in their shard."""

    network: str  # fingerprint of all weights
    head: str  # the layer's name
    preprocessing: Preprocessing
    upright: bool
    precision: str
    needs: tuple[str, ...]  # the moments that were collected
    share: float  # of the images, kept to select methods by
    proxy: bool  # whether scrambled images went through the network too
    held_out: bool  # whether a share of the images was kept to set the threshold
    list_of_images: str  # a hash of all images' identities in their order
    total: Annotated[int, AtLeast(1)]  # images in all, before any was read
    batch_size: Annotated[int, AtLeast(1)]
    classes: tuple[str, ...] = ()  # the names behind the labels
    shard: Annotated[int, AtLeast(1)] = 1
    shards: Annotated[int, AtLeast(1)] = 1
    version: str = ""  # of oodshape

    def __post_init__(self) -> None:
        if self.shard > self.shards:
            raise InputError(f"there is no shard {self.shard} of {self.shards}")

    def difference(self, other: Made) -> str:
        """The first thing that keeps two parts from adding up, in words; empty where nothing does."""
        for (name, mine), (_, theirs) in zip(self._items(), other._items(), strict=True):
            if mine != theirs and name not in ("shard", "shards", "version"):
                return f"another {name.replace('_', ' ')}: {theirs or 'none'}, not {mine or 'none'}"
        return ""


@dataclass(frozen=True, eq=False)
class Collected:
    """A part: rows or sums, what is held out for the threshold, and the proxy."""

    made: Made  # what it is a part of
    rows: Features | None = None  # as they are; what becomes of them is decided when all parts are known
    summed: sums.TrainingSums | None = None
    held_out: Features | None = None  # of those that were summed
    proxy: Features | None = None  # scrambled images, each with the identity of the image that it was made from
    make_proxy: Callable[[identity.Keys, int], Features] | None = None  # in place of it, where the images are at hand
    lost: int = 0  # images that could not be read
    reasons: tuple[str, ...] = ()  # of the first of them
    sizes: tuple[tuple[int, int], ...] = ()  # (height, width) of prepared images, each once
    head: Head | None = None  # where it comes from a file
    make_sketch: Callable[[], identity.Keys] = lambda: np.empty(
        0, np.uint64
    )  # the images' content, to find copies among others

    def proxy_of(self, fitting: identity.Keys | None, size: int = SIZE) -> Features | None:
        """At most `size` scrambled images, made from those to fit on (None: all there are)."""
        if self.make_proxy is not None:
            assert fitting is not None
            return self.make_proxy(fitting, size)
        if self.proxy is None or fitting is None:
            return sums.keep_smallest(self.proxy, size, "subset")
        chosen = np.flatnonzero(np.isin(self.proxy.identities, fitting))
        return sums.keep_smallest(self.proxy[chosen], size, "subset") if len(chosen) else None

    def bounded(self) -> Collected:
        """The same part as a file holds it: many images as sums, and the proxy as features."""
        if self.rows is None:
            return self
        if len(self.rows) <= FEW:
            every = self.proxy_of(self.rows.identities, FEW) if self.made.proxy else None
            return replace(self, proxy=every, make_proxy=None)
        summed, held_out = _split_rows(self.rows, self.made)
        fitting = ~_held(self.rows.identities, self.made)
        proxy = self.proxy_of(self.rows.identities[fitting]) if self.made.proxy else None
        return replace(self, rows=None, summed=summed, held_out=held_out, proxy=proxy, make_proxy=None)

    def save(self, path: str | Path, head: Head) -> None:
        """Write the part to one safetensors file."""
        part, arrays = self.bounded(), dict[str, Any]()
        arrays |= {"head.weight": head.weight.cpu().numpy(), "head.bias": head.bias.cpu().numpy()}
        for name in ("rows", "held_out", "proxy"):
            sums.pack_rows(getattr(part, name), name, arrays)
        arrays["sketch"] = self.make_sketch()
        said = {
            "summed": sums.pack_training_sums(part.summed, arrays),
            "lost": part.lost,
            "reasons": part.reasons,
            "sizes": part.sizes,
        }
        header = {"made": json.dumps(encode_value(part.made, arrays)), "part": json.dumps(said)}
        files.save_file(path, KIND, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Collected:
        """The part that `save` wrote."""
        header, arrays = files.load_file(path, KIND)
        with reading(path, files.WAY_OUT[KIND]):
            made, said = _decode_made(header), json.loads(header["part"])
            head = Head.of((arrays["head.weight"], arrays["head.bias"]))
            summed = sums.unpack_training_sums(said["summed"], arrays, head, _choose_left_out(head, made))
            if summed is not None and summed.share != made.share:
                raise InputError(f"a share of {summed.share} is kept to select by, not {made.share}")
            each = (sums.unpack_rows(name, arrays, head) for name in ("rows", "held_out", "proxy"))
            rows, held_out, proxy = each
            lost, reasons = int(said["lost"]), tuple(map(str, said["reasons"]))
            sizes = tuple((int(height), int(width)) for height, width in said["sizes"])
            sketch = join_sketches([identity.check(arrays["sketch"], len(arrays["sketch"]))])
            return cls(made, rows, summed, held_out, proxy, None, lost, reasons, sizes, head, lambda: sketch)


def read_origin(path: str | Path) -> Made:
    """Read the origin from a part's file, without its sums."""
    header = files.read_header(path, KIND)
    with reading(path, files.WAY_OUT[KIND]):
        return _decode_made(header)


def _decode_made(header: dict[str, Any]) -> Made:
    made = decode_value(json.loads(header["made"]), {})
    if not isinstance(made, Made):
        raise InputError(f"it says nothing of its images, but {type(made).__name__}")
    return made


def _choose_left_out(head: Head, made: Made) -> sums.LeftOut | None:
    """The classes that a proxy leaves out, where one is made and enough stay."""
    found = hold_out_classes(head)
    return found if made.share > 0 and int((~found).sum()) >= FEWEST_CLASSES else None


def _split_rows(rows: Features, made: Made) -> tuple[sums.TrainingSums | None, Features | None]:
    """Return the sums over rows to fit on, and the rows held out for the threshold, split by identity."""
    last = _held(rows.identities, made)
    held_out = rows[np.flatnonzero(last)] if last.any() else None
    if last.all():
        return None, held_out
    fitting = rows[np.flatnonzero(~last)]
    return sums.TrainingSums.of(fitting, frozenset(made.needs), made.share, _choose_left_out(rows.head, made)), held_out


def _held(identities: identity.Keys, made: Made) -> np.ndarray[Any, np.dtype[np.bool_]]:
    share = HELD_OUT if made.held_out else 0.0
    return identity.pick_share(identities, share, purpose="calibration")


def merge_parts(parts: list[Collected]) -> Collected:
    """All parts as one; their order does not matter."""
    parts = sorted(parts, key=lambda part: part.made.shard)
    rows = sums.concatenate_rows(part.rows for part in parts)
    summed, held_out = [part.summed for part in parts], [part.held_out for part in parts]
    if rows is not None and (any(each is not None for each in summed) or len(rows) > MANY):
        more, held = _split_rows(rows, parts[0].made)
        summed, held_out, rows = [*summed, more], [*held_out, held], None
    total, proxy = sums.add_if_present(*summed), sums.concatenate_rows(part.proxy for part in parts)
    if proxy is not None and total is not None:  # small parts keep those of images that turn out to be held out
        fitting = np.flatnonzero(~_held(proxy.identities, parts[0].made))
        proxy = proxy[fitting] if len(fitting) else None
    made = replace(parts[0].made, shard=1, shards=1, version=oodshape.__version__)
    sketch = join_sketches([part.make_sketch() for part in parts])
    return Collected(
        made,
        rows,
        total,
        sums.concatenate_rows(held_out),
        proxy,
        None,
        sum(part.lost for part in parts),
        tuple(reason for part in parts for reason in part.reasons),
        tuple(dict.fromkeys(size for part in parts for size in part.sizes)),
        parts[0].head,
        lambda: sketch,
    )
