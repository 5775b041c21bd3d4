"""A chunk of a cache that is not as it was written is not used; caches of before have no checksums and stay valid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oodshape.features.disk_cache import Entry

VALUES = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
CLASSES = np.arange(40) % 4


def filled(folder: Path, rows: int = 40) -> Entry:
    folder.mkdir(exist_ok=True)
    entry = Entry(folder, VALUES.shape, 4, "float32")  # type: ignore[arg-type]
    for first in range(0, rows, 10):
        entry.put(first, VALUES[first : first + 10], CLASSES[first : first + 10])
    if rows == 40:
        entry.finish()
    return entry


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["features.npy", "predictions.npy", "features.sums"])
def test_a_changed_byte_makes_a_cache_unusable(tmp_path: Path, name: str) -> None:
    entry = filled(tmp_path)
    assert entry.load() is not None
    flip(tmp_path / name, (tmp_path / name).stat().st_size - 3)
    assert entry.load() is None


def test_a_cache_without_checksums_is_made_again(tmp_path: Path) -> None:
    entry = filled(tmp_path)
    for path in tmp_path.glob("*.sums"):
        path.unlink()
    assert entry.load() is None
    assert entry.start({}, 10) == 0


def test_a_run_goes_on_before_the_first_chunk_that_changed(tmp_path: Path) -> None:
    entry = filled(tmp_path, 30)
    assert entry.start({}, 10) == 30
    flip(tmp_path / "features.part", len(entry.features.header) + 15 * 24)
    assert entry.start({}, 10) == 10
    for first in (10, 20, 30):
        entry.put(first, VALUES[first : first + 10], CLASSES[first : first + 10])
    entry.finish()
    kept = entry.load()
    assert kept is not None
    np.testing.assert_array_equal(kept[0], VALUES)


def test_rows_that_no_checksum_covers_yet_are_made_again(tmp_path: Path) -> None:
    entry = filled(tmp_path, 20)
    with (tmp_path / "features.part").open("ab") as file:
        file.write(bytes(10 * 24))  # killed before the checksum
    with (tmp_path / "predictions.part").open("ab") as file:
        file.write(bytes(10 * 8))
    assert entry.start({}, 10) == 20
