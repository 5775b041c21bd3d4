"""Parts add up: whatever their number and order, a guard of parts is that of the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodshape import Guard, InputError
from oodshape.core.options import RunOptions
from oodshape.features.features import Features
from oodshape.guard.fit import parts as module
from oodshape.guard.fit.collect import collect_part, join_part_files
from oodshape.guard.fit.extractor import Extractor
from oodshape.guard.fit.parts import Collected
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.sources.image_set import ArraySet, Shard, Subset, order_shards
from oodshape.methods.registry import find_method
from oodshape.networks.loading import open_model
from oodshape.networks.zoo import MODELS

MODEL = "zoo:digits-convnet"
DIGITS = MODELS["digits-convnet"].native
BATCH = 16
TRAIN = Subset(load_digits_sets()["train"], range(0, 866, 3))  # 289 images


@pytest.fixture(scope="module")
def source() -> Any:
    return open_model(MODEL)


def extractor(source: Any) -> Extractor:
    return Extractor(source.classifier, DIGITS, False, RunOptions(batch_size=BATCH, progress=False))


def write(folder: Path, source: Any, shards: int, images: Any = None, method: str = "auto", **how: Any) -> list[Path]:
    """The parts of the training digits, in files."""
    paths = []
    for number in range(1, shards + 1):
        found = collect_part(
            extractor(source), images or TRAIN, find_method(method), shard=Shard(number, shards), **how
        )
        paths.append(folder / f"part-{number:02}-of-{shards}.safetensors")
        found.save(paths[-1], source.classifier.head)
    return paths


@pytest.mark.parametrize(
    ("method", "calibrate", "shards", "few"), [("auto", True, 16, 8), ("auto", False, 3, 100), ("knn", False, 3, 8)]
)
def test_a_guard_of_parts_scores_as_that_of_the_whole(
    source: Any, tmp_path: Path, method: str, calibrate: bool, shards: int, few: int, monkeypatch: Any, one_thread: None
) -> None:
    """Parts of at most `few` images are kept as rows, larger ones as sums. Filters belong to every `auto`."""
    monkeypatch.setattr(module, "FEW", few)
    monkeypatch.setattr("oodshape.methods.auto.FEW", -1)
    sets = load_digits_sets()
    given = {"calibrate": sets["test"] if calibrate else None, "method": method, "progress": False}
    given |= {"batch_size": BATCH, "preprocessing": DIGITS}
    whole = Guard.fit(source, images=TRAIN, **given)
    paths = write(tmp_path, source, shards, method=method, hold_out=not calibrate)
    made = Guard.fit(source, parts=[*paths[1::2], *paths[::2]], **given)
    assert (made.about.network, made.about.held_out) == (whole.about.network, whole.about.held_out)
    assert made.detector.n_train == whole.detector.n_train
    assert method != "auto" or len(made.detector.scorer.filters) == len(whole.detector.scorer.filters) == 3
    np.testing.assert_allclose(made.about.sanity.scores, whole.about.sanity.scores, rtol=1e-4, atol=1e-5)
    for images in (Subset(sets[name], range(50)) for name in ("test", "letters", "photos")):
        for row, other in zip(*(guard.score(images, source, progress=False) for guard in (whole, made)), strict=True):
            assert row.label == other.label
            assert row.score == pytest.approx(other.score, rel=1e-5, abs=1e-5)
            near = abs(row.score - whole.detector.threshold) <= 2e-5 * max(1, abs(row.score))
            assert row.accepted == other.accepted or near


def test_training_images_cannot_calibrate_a_guard_of_their_parts(
    source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, test = write(tmp_path, source, 2, method="msp"), load_digits_sets()["test"]
    given: dict[str, Any] = {"parts": paths, "method": "msp", "progress": False}
    with pytest.raises(InputError, match="^289 of the 289 calibration images are training images too"):
        Guard.fit(source, calibrate=TRAIN, **given)
    for name in ("images.duplicates", "guard.fit.split"):
        monkeypatch.setattr(f"oodshape.{name}.SKETCH", 32)
    with pytest.raises(InputError, match="^at least 32 of the 289 calibration images are training images too"):
        Guard.fit(source, calibrate=TRAIN, **given)
    with pytest.warns(UserWarning, match="overlap of fewer than about 28 images cannot be detected"):
        Guard.fit(source, calibrate=test, **given)


def test_parts_that_do_not_belong_together_are_named(source: Any, tmp_path: Path) -> None:
    three = write(tmp_path, source, 3, method="msp")
    other = write(tmp_path / ".", source, 1, ArraySet("o", load_digits_sets()["letters"].images), "msp")[0]
    with pytest.raises(
        InputError, match=r"part-01-of-1.safetensors does not belong to .*: it has another list of images"
    ):
        join_part_files([three[0], other])
    net = open_model("zoo:digits-vit")
    found = collect_part(
        Extractor(net.classifier, DIGITS, False, RunOptions(batch_size=BATCH, progress=False)),
        TRAIN,
        find_method("msp"),
    )
    found.save(tmp_path / "vit.safetensors", net.classifier.head)
    with pytest.raises(InputError, match=r"vit.safetensors does not belong to .*: it has another network"):
        join_part_files([three[0], tmp_path / "vit.safetensors"])
    with pytest.raises(InputError, match="vit.safetensors is of the network .*, but got"):
        Guard.fit(source, parts=[tmp_path / "vit.safetensors"], calibrate=load_digits_sets()["test"], progress=False)
    with pytest.raises(InputError, match="were not collected: collect for this method"):
        Guard.fit(source, parts=three, calibrate=load_digits_sets()["test"], method="auto", progress=False)


def test_more_shards_than_batches_and_unreadable_images(source: Any, tmp_path: Path) -> None:
    class Holed(ArraySet):
        def __getitem__(self, index: int) -> Any:
            if index in (3, *range(32, 48)):
                raise InputError(f"image {index} is broken")
            return super().__getitem__(index)

    few = Holed("few", load_digits_sets()["train"].images[:64], load_digits_sets()["train"].labels[:64])
    found = join_part_files(write(tmp_path, source, 16, few, "msp"))
    assert isinstance(found.rows, Features)
    assert (len(found.rows), found.lost) == (47, 17)
    assert "image 3 is broken" in found.reasons
    assert isinstance(Collected.load(tmp_path / "part-16-of-16.safetensors"), Collected)


def test_a_part_that_speaks_of_endless_others_is_refused_at_once() -> None:
    with pytest.raises(InputError, match=r"shard 1, 2, 4, .* 11 and 999,999,999,989 more of 1000000000000 is missing"):
        order_shards({Path("part-3"): Shard(3, 10**12)}, "collect it too")
