"""Files that would cost far more than they look: refused by their first bytes, and no others are."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from bombs import png
from dataset_files import idx
from oodshape.core.errors import InputError
from oodshape.images.datasets.catalog import open_dataset
from oodshape.images.datasets.cifar_mnist_svhn import read_idx
from oodshape.images.decode.limits import BUDGET, Limits, _Turns
from oodshape.images.decode.preprocessing import CIFAR, IMAGENET
from oodshape.images.decode.read import Unreadable, open_image


@pytest.fixture(autouse=True)
def _usual_limits() -> Iterator[None]:
    pillow = PIL.Image.MAX_IMAGE_PIXELS
    yield
    Limits().use()
    PIL.Image.MAX_IMAGE_PIXELS = pillow


@pytest.mark.parametrize(
    "text", ["pixels", "pixels=", "pixels=-1", "pixels=1e9", "pixels=1,pixels=2", "size=3", "_now=1", "pixels=٣"]
)
def test_a_text_that_names_no_limits_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InputError, match=r"limits are pixels=N, aspect=N, inflated=N, .* such as pixels=200M"):
        Limits.parse(text)
    assert Limits.parse(" pixels = 200M , aspect=5_0") == Limits(pixels=200 << 20, aspect=50)


def test_the_environment_sets_the_limits_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "from oodshape.images.decode.limits import Limits; print(Limits.now().aspect, Limits.now().pixels)"
    environment = {**os.environ, "OODSHAPE_LIMITS": "aspect=7"}
    found = subprocess.run([sys.executable, "-c", said], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["7", str(Limits().pixels)]
    monkeypatch.setenv("OODSHAPE_LIMITS", "aspect=wide")
    with pytest.raises(InputError, match=r"the environment variable OODSHAPE_LIMITS: limits are .* got 'aspect=wide'"):
        Limits.from_environment()


def test_a_thin_image_is_refused_by_its_name_and_the_limit(tmp_path: Path) -> None:
    thin = png(tmp_path / "thin.png", 60_000, 1)
    assert thin.stat().st_size < 300
    with pytest.raises(Unreadable, match=r"thin\.png is 60000 x 1 pixels, more than 100 times as long as wide"):
        open_image(thin)
    Limits(aspect=60_000).use()
    with pytest.raises(InputError, match="the shorter side made 256 are 15360000 x 256, more than 50,331,648"):
        IMAGENET.pixels(open_image(thin))
    assert CIFAR.pixels(open_image(thin)).shape == (1, 60_000, 3)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_large_image_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    bomb = png(tmp_path / "bomb.png", 13_000, 13_000)
    assert bomb.stat().st_size < 30_000
    with pytest.raises(Unreadable, match="is 13000 x 13000 pixels, more than 50,331,648") as said:
        open_image(bomb)
    assert said.value.reason.startswith("is 13000")
    with pytest.raises(Unreadable, match="cannot be read as an image"):
        open_image(png(tmp_path / "beyond.png", 20_000, 20_000))  # Pillow itself refuses


def test_the_limit_of_pixels_is_exact_and_an_option(tmp_path: Path) -> None:
    small = png(tmp_path / "small.png", 40, 25)
    before = Limits(pixels=1000, aspect=2).use()
    assert before == Limits()
    assert open_image(small).size == (40, 25)
    Limits(pixels=999).use()
    with pytest.raises(Unreadable, match="40 x 25 pixels, more than 999"):
        open_image(small)
    Limits(pixels=10**9).use()
    assert PIL.Image.MAX_IMAGE_PIXELS == 10**9
    with pytest.raises(InputError, match="the limit of aspect must be at least 1, got 0"):
        Limits(aspect=0)


def test_large_images_take_turns() -> None:
    turns, inside, most = _Turns(), [], []

    def work(size: int) -> None:
        with turns.taking():
            turns.wait(size)
            inside.append(size)
            most.append(sum(inside))
            threading.Event().wait(0.002)
            inside.remove(size)

    sizes = [BUDGET // 4, BUDGET // 3, BUDGET, 2 * BUDGET, BUDGET // 2, 1] * 5
    threads = [threading.Thread(target=work, args=(size,)) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(most) == len(sizes)
    assert max(most) == 2 * BUDGET  # alone
    assert max(each for each in most if each != 2 * BUDGET) <= BUDGET
    turns.wait(10 * BUDGET)  # outside of the pipeline nobody waits


def test_a_gzip_bomb_is_not_inflated(tmp_path: Path) -> None:
    header = b"\0\0\x08\x03" + struct.pack(">III", 60_000, 160, 160)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(header + bytes(1 << 20)))
    with pytest.raises(InputError, match=r"bomb\.gz has .* inflates to 1,536,000,000 or more, over the limit"):
        read_idx(tmp_path / "bomb.gz", 3)
    images = np.zeros((40, 8, 8), np.uint8)
    (tmp_path / "long.gz").write_bytes(gzip.compress(idx(images) + bytes(1 << 24)))
    with pytest.raises(InputError, match=r"long\.gz is damaged .*2561 bytes or more of values, .* needs 2560"):
        read_idx(tmp_path / "long.gz", 3)  # no more than a byte over what it announces is looked at
    (tmp_path / "ours.gz").write_bytes(gzip.compress(idx(images)))
    Limits(inflated=2559).use()
    with pytest.raises(InputError, match="--limits inflated=N"):
        read_idx(tmp_path / "ours.gz", 3)
    Limits(inflated=2560).use()
    assert read_idx(tmp_path / "ours.gz", 3).shape == images.shape


def test_an_array_bomb_is_not_inflated(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "set.npz", images=np.zeros((100, 64, 64), np.uint8))
    assert len(open_dataset("array:set.npz", tmp_path)) == 100
    Limits(inflated=100_000).use()
    with pytest.raises(InputError, match=r"set\.npz has .* inflates to 409,"):
        open_dataset("array:set.npz", tmp_path)
