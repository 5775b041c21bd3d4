"""Files that released versions wrote are read, and give what they gave then (scripts/make_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oodshape import GuardedFile, Watch
from oodshape.guard.scoring.score_formats import read_scores

FOLDERS = sorted((Path(__file__).parent / "golden").iterdir())
pytestmark = pytest.mark.parametrize("golden", FOLDERS, ids=lambda folder: folder.name)


def test_an_exported_file(golden: Path) -> None:
    pytest.importorskip("onnxruntime")
    guarded = GuardedFile(golden / "guarded.onnx")
    expected = json.loads((golden / "verdicts.json").read_text())
    for verdict, wanted in zip(guarded(sorted((golden / "new").iterdir())), expected, strict=True):
        assert [verdict.label, verdict.accepted] == [wanted["label"], wanted["accepted"]]
        assert verdict[2:4] == pytest.approx((wanted["score"], wanted["p_value"]), rel=1e-4)


def test_score_files_hold_the_same_rows(golden: Path) -> None:
    pytest.importorskip("pyarrow")
    kinds = [list(read_scores(str(golden / f"scores.{kind}"))) for kind in ("csv", "jsonl", "parquet")]
    assert [len(rows) for rows in kinds] == [6] * 3
    for rows in zip(*kinds, strict=True):
        assert len({(row.cells["path"], row.label) for row in rows}) == 1
        for name in ("score", "p_value"):
            assert [getattr(row, name) for row in rows] == pytest.approx([getattr(rows[0], name)] * 3, rel=1e-5)


def test_the_state_of_a_watch_goes_on(golden: Path) -> None:
    watch = Watch.load(golden / "watch.safetensors")
    assert (watch.seen, watch.alpha, watch.n_calibration) == (120, 0.05, 99)
    assert watch.after([0.5] * 10).seen == 130


def test_guards_parts_and_results(golden: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    from commands import MODEL, call
    from oodshape import Guard
    from oodshape.benchmark.kept_scores import KeptScores
    from oodshape.benchmark.results import RunResults

    for guard, scores in (("auto", "auto.csv"), ("guard", "scores.csv")):
        found = list(Guard.load(golden / f"{guard}.safetensors").score(golden / "new", model=MODEL[1]))
        wanted = list(read_scores(str(golden / scores)))
        assert [row.accepted for row in found] == [row.cells["accepted"] == "true" for row in wanted]
    assert [row.score for row in found] == pytest.approx([row.score for row in wanted], rel=1e-3)
    words = ("--parts", str(golden / "part.safetensors"), "--method", "energy", "--out", "guard.safetensors")
    assert call("fit", *MODEL, *words, cwd=tmp_path).returncode == 0
    assert set(RunResults.load(golden / "bench").frame["method"]) == {"msp"}
    assert list(KeptScores.load(golden / "bench").of("ConvNet")) == ["msp"]
