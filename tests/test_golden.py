"""Files that released versions wrote are read, and give what they gave then (scripts/make_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oodshape import GuardedFile, Watch
from oodshape.cli.main import main
from oodshape.guard.scoring.score_formats import read_scores

FOLDERS = sorted((Path(__file__).parent / "golden").iterdir())


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def golden(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_an_exported_file(golden: Path) -> None:
    pytest.importorskip("onnxruntime")
    expected = json.loads((golden / "verdicts.json").read_text())
    guarded = GuardedFile(golden / "guarded.onnx")
    assert guarded.metadata.version == golden.name
    for verdict, wanted in zip(guarded(sorted((golden / "new").iterdir())), expected, strict=True):
        found = verdict._asdict()
        assert found.pop("score") == pytest.approx(wanted.pop("score"), rel=1e-4)
        assert found.pop("threshold") == pytest.approx(wanted.pop("threshold"), rel=1e-4)
        assert found == wanted


def test_score_files_hold_the_same_rows(golden: Path) -> None:
    pytest.importorskip("pyarrow")
    kinds = [list(read_scores(str(golden / f"scores.{kind}"))) for kind in ("csv", "jsonl", "parquet")]
    for rows in zip(*kinds, strict=True):
        assert len({(row.cells["path"], row.label) for row in rows}) == 1
        assert [row.score for row in rows] == pytest.approx([rows[0].score] * 3, rel=1e-6)
        assert [row.p_value for row in rows] == pytest.approx([rows[0].p_value] * 3, rel=1e-5)
    assert len(kinds[0]) == len(list((golden / "new").iterdir()))


def test_the_state_of_a_watch_goes_on(golden: Path) -> None:
    watch = Watch.load(golden / "watch.safetensors")
    assert (watch.seen, watch.alpha, watch.n_calibration) == (120, 0.05, 99)
    assert watch.after([0.5] * 10).seen == 130


@pytest.mark.parametrize("name", ["guard.safetensors", "guarded.onnx"])
def test_inspect_names_the_version(golden: Path, name: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["oodshape", "inspect", str(golden / name)])
    with pytest.raises(SystemExit, match="^0$"):
        main()
    assert golden.name in capsys.readouterr().out


def test_a_guard_scores_as_it_did(golden: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    from oodshape import Guard

    guard = Guard.load(golden / "guard.safetensors")
    found = list(guard.score(golden / "new", model="zoo:digits-convnet"))
    wanted = list(read_scores(str(golden / "scores.csv")))
    assert [row.accepted for row in found] == [row.cells["accepted"] == "true" for row in wanted]
    assert [row.score for row in found] == pytest.approx([row.score for row in wanted], rel=1e-3)


def test_a_part_can_be_fitted(golden: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    from commands import MODEL, call

    words = ("--parts", str(golden / "part.safetensors"), "--method", "energy", "--out", "guard.safetensors")
    done = call("fit", *MODEL, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "guard: guard.safetensors" in done.stdout


def test_results_give_their_table(golden: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    from oodshape.benchmark.results import Results

    results = Results.load(golden / "results.json")
    assert set(results.frame["method"]) == {"msp"}
    assert results.frame["auroc"].between(0.5, 1).any()
