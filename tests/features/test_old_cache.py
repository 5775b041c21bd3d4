"""Features that 0.1.0 kept are found, and used without running the network again."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from extraction_tools import Counted, extract, values
from folders_of_digits import write_digits
from oodshape.features.extraction import PROBED
from oodshape.images.folders import ImageFiles
from oodshape.images.listing import image_set

KEPT = Path(__file__).parents[1] / "golden" / "0.1.0" / "cache_entry"
KEY = "45f86859cd95aec5"  # the name of its folder in the cache
pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Stamped:
    """Images under the fingerprint that their files had: it holds the times at which they were written."""

    base: ImageFiles
    fingerprint: str

    def __getattr__(self, name: str) -> object:
        return getattr(self.base, name)

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> object:
        return self.base[index]


def test_features_of_the_first_release_are_found(tmp_path: Path) -> None:
    shutil.copytree(KEPT, tmp_path / "cache" / KEY)
    images = image_set(write_digits(tmp_path / "digits", train=120) / "train")
    meta = json.loads((KEPT / "meta.json").read_text())
    counted = Counted()
    found = extract(counted, Stamped(images, meta["fingerprints"]["images"]), tmp_path / "cache", batch_size=64)
    assert counted.images == PROBED
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [KEY]
    np.testing.assert_array_equal(values(found), np.load(KEPT / "features.npy"))
