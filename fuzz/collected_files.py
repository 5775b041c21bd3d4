"""The parts that `collect` writes: what a fit makes of one."""

from __future__ import annotations

from pathlib import Path

import own_files
from kind import Kind, equal
from oodshape import METHODS, Features
from oodshape.core.files import compute_fingerprint
from oodshape.guard.fit.collect import join_part_files
from oodshape.guard.fit.parts import FEW, Collected, Made
from oodshape.images.decode.preprocessing import Preprocessing

METHOD = "auto"  # it takes rows, sums, a proxy and a share to select by


def _part(rows: Features, *, held_out: bool) -> Collected:
    recipe = METHODS[METHOD]
    made = Made(
        network="f" * 16,
        head="fc",
        preprocessing=Preprocessing((0.5,), (0.5,), 8, 8),
        upright=False,
        precision="float32",
        needs=tuple(sorted(recipe.collects)),
        share=recipe.keeps,
        proxy=True,
        held_out=held_out,
        list_of_images=compute_fingerprint(rows.identities),
        total=len(rows),
        batch_size=64,
        classes=("a", "b", "c", "d"),
    )
    scrambled = own_files.features(len(rows), 8)
    return Collected(made, rows, make_proxy=lambda _, size: scrambled[:size], reasons=("a.png: truncated",))


def parts_of_a_fit() -> Kind:
    """Parts of few images, kept as rows, and of many, kept as sums: what is fitted on them decides about some."""
    test = own_files.features(8, 3)
    made = [_part(own_files.features(n, 7), held_out=held) for n, held in ((90, False), (FEW + 90, True))]
    seeds = tuple(
        own_files.written("p.safetensors", lambda path, part=part: part.save(path, test.head)) for part in made
    )

    def read(folder: Path) -> bytes:
        found = join_part_files([folder / "p.safetensors"])
        train = found.rows if found.summed is None else found.summed
        assert train is not None
        proxy = found.proxy_of(train.identities if isinstance(train, Features) else None)
        detector = METHODS[METHOD].fit(train, proxy=[] if proxy is None else [proxy])
        held_out = found.rows if found.held_out is None else found.held_out
        return repr((found.made, found.lost, found.reasons)).encode() + b"".join(
            detector.score(each).numpy().tobytes() for each in (test, held_out) if each is not None
        )

    return Kind("collected", seeds, read, equal, own_files.forged)
