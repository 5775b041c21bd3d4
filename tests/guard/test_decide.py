"""`oodshape decide`: a finished scores file as a whole, from any format, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from commands import call, call_new
from oodshape import Guard, InputError, false_discoveries
from oodshape.guard.scoring.decide import Calibration, decide_scores

COLUMNS = ("path", "class", "score", "p_value", "accepted", "error")
N = 199  # calibration images


def rows(strange: int = 30, familiar: int = 70, seed: int = 0) -> list[dict]:
    """Scores 0..199 beside calibration scores 0..198, p-values as a guard gives them; one image is broken."""
    rng = np.random.default_rng(seed)
    scores = [*rng.integers(0, 3, strange), *rng.integers(0, N + 1, familiar)]
    made = [
        {
            "path": f"{i}.png",
            "class": 3,
            "score": float(score),
            "p_value": (1 + score) / (N + 1),
            "accepted": bool((1 + score) / (N + 1) > 0.05),
            "error": None,
        }
        for i, score in enumerate(scores)
    ]
    lost = dict.fromkeys(COLUMNS) | {"path": "broken.png", "error": "no image"}
    return [*made[:50], lost, *made[50:]]


def write(path: Path, table: list[dict]) -> Path:
    if path.suffix == ".parquet":
        import pandas

        pandas.DataFrame(table).to_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    else:
        with path.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(COLUMNS)
            for row in table:
                cells = [f"{row['p_value']:.6g}" if name == "p_value" and row[name] else row[name] for name in COLUMNS]
                lines.writerow([str(cell).lower() if isinstance(cell, bool) else cell for cell in cells])
    return path


def flagged(text: str) -> set[str]:
    return {row["path"] for row in csv.DictReader(io.StringIO(text))}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_every_format_is_decided_alike(kind: str, tmp_path: Path) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    table = rows()
    judged = [row for row in table if row["p_value"] is not None]
    wanted = {
        row["path"]
        for row, yes in zip(judged, false_discoveries([row["p_value"] for row in judged], 0.1), strict=True)
        if yes
    }
    assert 25 <= len(wanted) < 50
    scores = write(tmp_path / f"scores.{kind}", table)
    for known in ((), ("--n-calibration", str(N))):
        done = call("decide", str(scores), "--fdr", "0.1", *known, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert flagged(done.stdout) == wanted
        assert f"100 images: {len(wanted)} flagged as OOD" in done.stderr
        assert "1 more could not be read" in done.stderr
    assert "with 199 calibration images no p-value is below 1 / 200: at least 5 of 100" in done.stderr
    for end in ("csv", "jsonl", kind):
        done = call("decide", str(scores), "--out", f"decided.{end}", cwd=tmp_path)
        assert f"wrote decided.{end}" in done.stdout
        again = decide_scores(str(tmp_path / f"decided.{end}"), 0.1)
        assert {row.cells["path"] for row in again.rows if row.cells["flagged"] in (True, "true")} == wanted
        assert [row.cells["path"] for row in again.rows] == [row["path"] for row in table]


def test_rounded_p_values_keep_their_side(tmp_path: Path) -> None:
    """1 / 6 in six digits is above itself: with the calibration known, it is what it was."""
    path = tmp_path / "scores.csv"
    path.write_text("p\n" + "0.166667\n" * 5)
    assert decide_scores(str(path), 1 / 6, calibration=Calibration(5)).flagged.all()
    assert not decide_scores(str(path), 1 / 6).flagged.any()


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    table = [row | {"score": 0.0, "p_value": 1 / (N + 1)} for row in rows(4, 0)[:4]]
    table += [row for row in rows(0, 96) if row["p_value"] and row["p_value"] > 0.2]
    scores = write(tmp_path / "scores.csv", table)
    found = decide_scores(str(scores), 0.1, calibration=Calibration(N))
    assert not found.flagged.any()  # four of the smallest p-values there are, and five are needed
    assert 80 < found.readable.sum() <= 100
    assert found.fewest == 5
    done = call("decide", str(scores), "--fdr", "0.001", "--n-calibration", str(N), cwd=tmp_path)
    assert "nothing can be flagged" in done.stderr


def test_several_calibrations_in_one_file_are_refused(tmp_path: Path) -> None:
    """A lower score with a higher p-value: thresholds per class, or two guards."""
    table = rows()
    table[3] |= {"score": 50.5, "p_value": 0.01, "accepted": False}
    with pytest.raises(InputError, match="do not grow with the score .* threshold per class"):
        decide_scores(str(write(tmp_path / "scores.csv", table)), 0.1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--n-calibration", "99"), "no multiple of 1 / 100"),
        (("--fdr", "10"), "did you mean 0.1"),
        (("--out", "decided.txt"), "must end in .csv"),
        (("--n-calibration", "99", "--guard", "guard"), "not both"),
    ],
)
def test_refusals_are_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    write(tmp_path / "scores.csv", rows())
    done = call("decide", "scores.csv", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_scores_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("path,p_value,error\na.png,,broken\n")
    assert "nothing to decide" in call("decide", "none.csv", cwd=tmp_path).stderr
    assert "give a file" in call("decide", "-", cwd=tmp_path).stderr
    assert "there is no file" in call("decide", "other.csv", cwd=tmp_path).stderr


def test_from_images_to_decisions(guard: Guard, digits: Path, tmp_path: Path) -> None:
    """Fit, score, decide, as a user does; a guard with a threshold per class is refused."""
    guard.save(tmp_path / "guard.safetensors")
    given = ("--guard", "guard.safetensors")
    listed = [str(path) for name in ("test", "letters") for path in sorted((digits / name).rglob("*.png"))]
    (tmp_path / "list.txt").write_text("\n".join(listed))
    call("score", *given, "--model", "zoo:digits-convnet", "--images", "list.txt", "--out", "s.csv", cwd=tmp_path)
    done = call_new("decide", "s.csv", "--fdr", "0.2", *given, cwd=tmp_path)  # where no method is imported yet
    assert done.returncode == 0, done.stderr
    assert f"with {len(guard.detector.calibration):,} calibration images" in done.stderr
    names = [Path(path).parent.name for path in flagged(done.stdout)]
    assert names.count("letters") > 10 > names.count("test")
    per_class = guard.calibrate(digits / "val", "zoo:digits-convnet", alpha=0.3, per_class=True, progress=False)
    per_class.save(tmp_path / "per_class.safetensors")
    done = call("decide", "s.csv", "--guard", "per_class.safetensors", cwd=tmp_path)
    assert "threshold per class" in done.stderr
    assert done.returncode == 2
    done = call("watch", "s.csv", "--guard", "per_class.safetensors", cwd=tmp_path)
    assert "threshold per class" in done.stderr
    assert done.returncode == 2
