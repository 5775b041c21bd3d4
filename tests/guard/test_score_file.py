"""Scores on disk: a stopped run goes on, and every format holds the same rows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from oodshape import Guard, InputError
from oodshape.core.options import RunOptions
from oodshape.guard.scoring.score_file import score_to_file, score_to_stream
from oodshape.images.sources.listing import image_set, one_by_one

MODEL = "zoo:digits-convnet"
SIXTEEN = RunOptions(batch_size=16)


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(guard: Guard, digits: Path, tmp_path: Path) -> None:
    listing, source = one_by_one(digits / "test"), guard.open_network(MODEL)
    for suffix in ("csv", "jsonl", "parquet"):
        whole, killed = tmp_path / f"whole.{suffix}", tmp_path / f"killed.{suffix}"
        assert score_to_file(guard, source, listing, whole, SIXTEEN).resumed == 0
        part = tmp_path / f"killed.{suffix}.part"
        for cut in (0, 10, 3000):  # at the start, in the first line, in the middle of a row
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Path, "unlink", lambda *_, **__: None)  # as if killed before the end
                score_to_file(guard, source, listing, killed, SIXTEEN)
            killed.unlink()
            part.write_bytes(part.read_bytes()[:cut])
            tally = score_to_file(guard, source, listing, killed, SIXTEEN)
            assert killed.read_bytes() == whole.read_bytes()
            assert (tally.images, tally.resumed > 0, tally.resumed % 16) == (100, cut == 3000, 0)
            assert not part.exists()


def test_a_part_of_other_images_or_another_guard_is_refused(guard: Guard, digits: Path, tmp_path: Path) -> None:
    files, source, out = image_set(digits / "test").files, guard.open_network(MODEL), tmp_path / "s.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        score_to_file(guard, source, one_by_one(files), out, SIXTEEN)
    with pytest.raises(InputError, match=r"has .* as image 2, but the images given have"):
        score_to_file(guard, source, one_by_one([files[0], *files[2:]]), out, SIXTEEN)
    with pytest.raises(InputError, match="no such number"):
        score_to_file(guard, source, one_by_one(files[:20]), out, SIXTEEN)
    with pytest.raises(InputError, match="another guard, batch size or release"):
        score_to_file(guard, source, one_by_one(files), out, RunOptions(batch_size=17))
    with pytest.raises(InputError, match=r"must end in .csv, .jsonl or .parquet"):
        score_to_file(guard, source, one_by_one(files), tmp_path / "s.xlsx")


def test_scores_as_tables(guard: Guard, digits: Path, tmp_path: Path) -> None:
    import pandas as pd

    (tmp_path / "broken.png").touch()
    listing = one_by_one([*image_set(digits / "letters").files, str(tmp_path / "broken.png")])
    tables = {}
    for suffix in ("csv", "jsonl", "parquet"):
        tally = score_to_file(guard, guard.open_network(MODEL), listing, tmp_path / f"s.{suffix}")
        assert (tally.images, tally.unreadable) == (61, 1)
        assert tally.accepted + tally.rejected == 60
    tables["csv"] = pd.read_csv(tmp_path / "s.csv")
    tables["jsonl"] = pd.read_json(tmp_path / "s.jsonl", lines=True)
    tables["parquet"] = pd.read_parquet(tmp_path / "s.parquet")
    for table in tables.values():
        assert list(table.columns) == ["path", "class", "score", "p_value", "accepted", "error"]
        np.testing.assert_array_equal(table["score"].astype(np.float32)[:60], tables["csv"]["score"][:60].astype("f4"))
        assert table["accepted"][:60].astype(bool).sum() == tally.accepted
        assert "not a readable image" in table["error"][60]


def test_without_images_nothing_is_written(guard: Guard, tmp_path: Path) -> None:
    out = io.StringIO()
    with pytest.raises(InputError, match="no image lies in"):
        score_to_stream(guard, guard.open_network(MODEL), one_by_one(tmp_path), out)
    assert out.getvalue() == ""
