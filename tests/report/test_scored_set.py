"""The numbers and the sample behind the page of judged images, by hand; a large set stays small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oodshape import Guard
from oodshape.core.options import RunOptions
from oodshape.guard.check import check_guard
from oodshape.networks.zoo import MODELS
from oodshape.report.pages import check_page
from oodshape.report.pages import scored_data as scored_page_data
from oodshape.report.pages.check_page import headline, write_check
from oodshape.report.pages.scored_set import ScoredSet, ShownImage, common_folder

MODEL = "zoo:digits-convnet"
QUIET = RunOptions(progress=False)


def item(p: float, path: str = "a.png", label: str = "cat", truth: str = "") -> ShownImage:
    return ShownImage(p, -p, (path, 0), label, truth)


def test_rejected_at_each_tick_by_hand() -> None:
    scored_set = ScoredSet("set", "ood", 10, alpha=0.05)
    for p, softmax in ((0.01, 0.5), (0.05, 0.04), (0.051, 0.9), (1.0, 0.01)):
        scored_set.add(item(p), softmax)
    ticks = np.array([0.001, 0.01, 0.05, 0.051, 0.5])
    assert scored_set.rejected(ticks) == [0, 1, 2, 3, 3]  # a p-value of alpha is rejected, as the threshold does
    assert scored_set.rejected(ticks, softmax=True) == [0, 1, 2, 2, 3]


def test_a_sample_holds_both_ends_and_some_of_all() -> None:
    values = np.random.default_rng(0).permutation(10_000) / 10_000
    scored_set = ScoredSet("set", "new", 30, alpha=0.05)
    for row, p in enumerate(values):
        scored_set.add(item(float(p), f"{row}.png"))
    shown = [each.p_value for each in scored_set.items]
    assert shown == sorted(shown)
    assert len(shown) == 30
    assert shown[:10] == [row / 10_000 for row in range(10)]
    assert shown[-10:] == [row / 10_000 for row in range(9990, 10_000)]
    again = ScoredSet("set", "new", 30, alpha=0.05)
    for row in reversed(range(10_000)):
        again.add(item(float(values[row]), f"{row}.png"))
    assert again.items == scored_set.items  # whatever the order
    few = ScoredSet("set", "new", 30, alpha=0.05)
    for row in range(30):
        few.add(item(0.5, f"{row}.png"))
    assert len(few.items) == 30


def test_groups_stand_out_beyond_chance_only() -> None:
    scored_set = ScoredSet("set", "id", 10, alpha=0.05)
    for row in range(400):
        folder = f"in/{row % 4}"
        # folder 3 rejects half of its images, the others a twentieth
        rejected = row // 4 % (2 if row % 4 == 3 else 20) == 0
        scored_set.add(item(0.01 if rejected else 0.5, f"{folder}/{row}.png", "dog", "dog" if row % 2 else "cat"))
    first, *others = scored_set.folders
    assert (first.name, first.images, first.rejected, first.stands_out) == ("in/3", 100, 50, True)
    assert [group.stands_out for group in others] == [False] * 3
    assert {group.name: group.images for group in scored_set.classes} == {"cat": 200, "dog": 200}
    assert common_folder(group.name for group in scored_set.folders) == "in/"
    assert common_folder(["/a", "b"]) == ""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures as hard to compress as photographs, many times over."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(5):
        coarse = Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).resize((300, 300), Image.BICUBIC)
        noise = rng.normal(0, 12, (300, 300, 3))
        Image.fromarray(np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)).save(root / f"{number}.jpg")
    (root / "many").mkdir()
    for number in range(65):
        (root / "many" / f"{number:04}.jpg").symlink_to(root / f"{number % 5}.jpg")
    return root


def test_five_hundred_photographs_take_under_four_megabytes(
    photos: Path, tmp_path: Path, digits_guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of each: 125 images, 15 of them large, in under a megabyte."""
    assert (scored_page_data.SHOWN, scored_page_data.LARGE, scored_page_data.BIG) == (500, 60, 224)
    monkeypatch.setattr(check_page, "SHOWN", 125)
    monkeypatch.setattr(scored_page_data, "LARGE", 15)
    source = digits_guard.open_network(MODEL)
    check = check_guard(
        digits_guard, source, str(photos / "many"), {"b": str(photos / "many")}, RunOptions(progress=False)
    )
    write_check(check, tmp_path / "check.html", source)
    page = (tmp_path / "check.html").read_text(encoding="utf-8")
    assert page.count('"picture":"data:image/') == 124
    assert "A sample: 124 of 130 images" in page
    assert len(page) < 1_000_000
    assert f"alpha of 5 %, {check.outside[0].guard.accepted} of 65 strange images of b pass" in headline(check)[0]


@pytest.fixture(scope="module")
def digits_guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    from folders_of_digits import write_digits

    folder = write_digits(tmp_path_factory.mktemp("scored_set"), train=120, val=60, test=3, ood=3)
    small = replace(MODELS["digits-convnet"].native, resize=16, crop=16)  # photographs are larger than digits
    given = {"images": folder / "train", "calibrate": folder / "val", "preprocessing": small}
    return Guard.fit(MODEL, method="optfs-e", progress=False, **given)
