"""Scores on disk: a stopped run goes on, no damaged value is believed, and a finished file is decided as a whole."""

from __future__ import annotations

import csv
import io
import os
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from commands import call, call_new
from oodshape import Guard, InputError, false_discoveries
from oodshape.core.options import RunOptions
from oodshape.guard.scoring.decide import Calibration, decide_scores
from oodshape.guard.scoring.resumable_scores import score_to_file
from oodshape.guard.scoring.score_formats import parse_scores, read_scores, write_scores
from oodshape.guard.verdict import Scored
from oodshape.images.sources.image_files import read_image_list
from oodshape.images.sources.open_images import open_images, stream_images

ROWS = [
    Scored("b\udcff.png", "b", 0.1, 0.5, True),
    Scored("c.png", error='truncated, "file"'),
    Scored('two\nlines, "so".png', "a", 1.0, 0.25, True),
    *(Scored(f"images/{i}.png", "a", i / 7, (i + 1) / 31, i > 2) for i in range(30)),
]
FULL = ["path,class,score,p_value,accepted,error\n", "a.png,cat,1.5,0.5,true,\n"]


def values(path: Path) -> list[float | None]:
    return [row.p_value for row in read_scores(str(path))]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_what_score_writes_is_believed(ending: str, tmp_path: Path) -> None:
    """Names with line ends and names that are no UTF-8 included."""
    path = tmp_path / f"scores.{ending}"
    write_scores(path, ROWS, named=True)
    rows = list(read_scores(str(path)))
    assert [row.p_value for row in rows] == [row.p_value for row in ROWS]  # exact
    if ending != "parquet":  # whose text is UTF-8
        assert [row.cells["path"] for row in rows] == [row.path for row in ROWS]
    if ending == "csv":
        assert [name for name, _ in read_image_list(path)] == [row.path for row in ROWS]


@pytest.mark.parametrize(
    ("before", "row", "said"),
    [
        (FULL, "b.png,cat,nan,0.5,true,", "line 3 of s.csv: 'nan' is no score, which is a finite number"),
        (FULL, "b.png,cat,1e999,0.5,true,", "line 3 of s.csv: '1e999' is no score"),
        (FULL, "b.png,cat,1.5x,0.5,true,", "'1.5x' is no score"),
        (FULL, "b.png,cat,,0.5,true,", "line 3 of s.csv: '' is no score"),
        (FULL, "b.png,cat,1.5,0.5,tru,", "line 3 of s.csv: 'tru' is no decision, which is true or false"),
        (FULL, "b.png,cat,1.5,0.5,,", "line 3 of s.csv: '' is no decision"),
        (FULL, "b.png,cat,1.5,0.5,true,cut off", "the p-value 0.5 and the error 'cut off': only one can be true"),
        (FULL, "b.png,cat,1.5,,true,", "line 3 of s.csv has no p-value, but score '1.5', accepted 'true', error ''"),
        (FULL, "b.png,,,,,", "an unreadable image only has an error"),
        (
            FULL,
            "b.png,cat,1.5,0.6,false,",
            "line 2 of s.csv is accepted with the p-value 0.5, line 3 of s.csv rejected",
        ),
        (FULL, 'b.png,"cat,1.5,0.5,true,', "line 3 of s.csv has 2 columns, the first line 6"),
        (["path,p_value\n"], "a.png,0", "line 2 of s.csv: '0' is no p-value, which lies in"),
        (["path,p_value\n"], "a.png,1.5", "no p-value"),
        (["path,p_value\n"], "a.png,-inf", "no p-value"),
        (["path,p_value\n"], "a.png,high", "line 2 of s.csv: 'high' is no p-value"),
        (["path,p_value\n"], "a.png", "has 1 columns, the first line 2"),
        (["path,p_value\n"], "a.png,0.5,7", "has 3 columns"),
        (["path,p_value\n"], "a" * 200_000 + ",0.5", "is no CSV"),
        (["path,p_value\n"], '{"a":' * 5000, "line 2 of s.csv is no JSON"),
        (["path,p_value\n"], '{"p_value": true}', "no p-value"),
        ([], '{"path": "a", "class": 1, "score": 1, "p_value": 0.5, "accepted": 1, "error": ""}', "1 is no decision"),
        (["path,score\n"], "a,1", "no column p_value; there are path, score"),
        (["p_value,p_value\n"], "0.5,0.7", "s.csv has the column p_value twice"),
    ],
)
def test_a_row_that_score_cannot_have_written_is_refused(before: list[str], row: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        list(parse_scores([*before, f"{row}\n"], "s.csv"))
    assert said in str(error.value)


def test_tables_of_other_programs_are_read() -> None:
    rows = list(parse_scores(["p,score,note\n", "0.5,high,x\n", "0.7,,\n", "nan,2,\n"]))
    assert [(row.p_value, row.score) for row in rows] == [(0.5, None), (0.7, None), (None, 2.0)]
    objects = ['{"path": "a", "p_value": 0.5}', '{"path": "b", "error": "broken", "p_value": null}', '{"path": "c"}']
    assert [row.p_value for row in parse_scores(objects)] == [0.5, None, None]


def test_other_rows_under_the_checksum_of_a_parquet_file_are_refused(tmp_path: Path) -> None:
    """Parquet has no checksum of its directory, where one bit can change the rows that are found."""
    path = tmp_path / "scores.parquet"
    write_scores(path, ROWS, named=True)
    table, notes = pq.read_table(path), pq.read_metadata(path).metadata
    for other in (table.slice(0, 31), table.take([1, 0, *range(2, 33)]), table.set_column(3, "p_value", table[3])):
        pq.write_table(other.replace_schema_metadata(notes), path)
        if other.equals(table):
            assert len(values(path)) == 33
        else:
            with pytest.raises(InputError, match=r"scores\.parquet is damaged: its rows or the checksum over them"):
                values(path)


def test_names_that_are_no_utf8_come_through_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"path,p_value\na\xff.png,0.5\n"), "utf-8"))
    assert [row.p_value for row in read_scores("-")] == [0.5]


def test_following_a_file_that_grows(tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    table.write_text("p_value\n0.5\n0.2")
    stream = (row.p_value for row in read_scores(str(table), follow=True, pause=0.01))
    assert next(stream) == 0.5
    with table.open("a") as file:
        file.write("5\n0.75\n")
    assert [next(stream), next(stream)] == [0.25, 0.75]


MODEL = "zoo:digits-convnet"
SIXTEEN = RunOptions(batch_size=16)


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(guard: Guard, digits: Path, tmp_path: Path) -> None:
    listing, source = stream_images(digits / "test"), guard.open_network(MODEL)
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
            if cut == 3000:  # an image that was written after its row
                os.utime(part, (1, 1))
                with pytest.raises(InputError, match=r"test.*\.png was changed after .*\.part was written"):
                    score_to_file(guard, source, listing, killed, SIXTEEN)
                os.utime(part)
            tally = score_to_file(guard, source, listing, killed, SIXTEEN)
            assert killed.read_bytes() == whole.read_bytes()
            assert (tally.images, tally.resumed > 0, tally.resumed % 16) == (100, cut == 3000, 0)
            assert not part.exists()


def test_a_part_of_other_images_or_another_guard_is_refused(guard: Guard, digits: Path, tmp_path: Path) -> None:
    files, source, out = open_images(digits / "test").files, guard.open_network(MODEL), tmp_path / "s.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        score_to_file(guard, source, stream_images(files), out, SIXTEEN)
    with pytest.raises(InputError, match=r"has .* as image 2, but the images given have"):
        score_to_file(guard, source, stream_images([files[0], *files[2:]]), out, SIXTEEN)
    with pytest.raises(InputError, match="no such number"):
        score_to_file(guard, source, stream_images(files[:20]), out, SIXTEEN)
    with pytest.raises(InputError, match="another guard, batch size or oodshape"):
        score_to_file(guard, source, stream_images(files), out, RunOptions(batch_size=17))
    with pytest.raises(InputError, match=r"must end in .csv, .jsonl or .parquet"):
        score_to_file(guard, source, stream_images(files), tmp_path / "s.xlsx")


N = 199  # calibration images


def rows(strange: int = 30, familiar: int = 70, seed: int = 0) -> list[Scored]:
    """Scores 0..199 next to calibration scores 0..198, p-values as a guard gives them; one image is broken."""
    rng = np.random.default_rng(seed)
    scores = [*rng.integers(0, 3, strange), *rng.integers(0, N + 1, familiar)]
    p_values = [float(1 + score) / (N + 1) for score in scores]
    made = [Scored(f"{i}.png", 3, float(scores[i]), p, p > 0.05) for i, p in enumerate(p_values)]
    return [*made[:50], Scored("broken.png", error="no image"), *made[50:]]


def write(path: Path, table: list[Scored]) -> Path:
    write_scores(path, table, named=False)
    return path


def flagged(text: str) -> set[str]:
    return {row["path"] for row in csv.DictReader(io.StringIO(text))}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_every_format_is_decided_alike(kind: str, tmp_path: Path) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    table = rows()
    scored = [row for row in table if row.p_value is not None]
    flags = false_discoveries([row.p_value for row in scored], 0.1)
    wanted = {row.path for row, yes in zip(scored, flags, strict=True) if yes}
    assert 25 <= len(wanted) < 50
    scores = write(tmp_path / f"scores.{kind}", table)
    done = call("decide", str(scores), "--fdr", "0.1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert flagged(done.stdout) == wanted
    assert f"100 images: {len(wanted)} flagged as OOD" in done.stderr
    assert "1 more could not be read" in done.stderr
    known = decide_scores(str(scores), 0.1, calibration=Calibration(N)).lines()
    assert known[-1].startswith("with 199 calibration images no p-value is below 1 / 200: at least 5 of 100")
    for end in ("csv", "jsonl", kind):
        done = call("decide", str(scores), "--out", f"decided.{end}", cwd=tmp_path)
        assert f"wrote decided.{end}" in done.stdout
        again = decide_scores(str(tmp_path / f"decided.{end}"), 0.1)
        assert {row.cells["path"] for row in again.rows if row.cells["flagged"] in (True, "true")} == wanted
        assert [row.cells["path"] for row in again.rows] == [row.path for row in table]


def test_rounded_p_values_keep_their_side(tmp_path: Path) -> None:
    """1 / 6 in six digits, as other programs may write it, is above itself."""
    path = tmp_path / "scores.csv"
    path.write_text("p\n" + "0.166667\n" * 5)
    assert all(decide_scores(str(path), 1 / 6, calibration=known).flagged.all() for known in (Calibration(5), None))


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    table = [row._replace(score=0.0, p_value=1 / (N + 1)) for row in rows(4, 0)[:4]]
    table += [row for row in rows(0, 96) if row.p_value and row.p_value > 0.2]
    scores = write(tmp_path / "scores.csv", table)
    found = decide_scores(str(scores), 0.1, calibration=Calibration(N))
    assert not found.flagged.any()  # four of the smallest p-values there are, and five are needed
    assert 80 < found.readable.sum() <= 100
    assert found.fewest == 5
    said = decide_scores(str(scores), 0.001, calibration=Calibration(N, held_out=False)).lines()
    assert ("no guarantee" in said[0], "nothing can be flagged" in said[1]) == (True, True)


def test_several_calibrations_in_one_file_are_refused(tmp_path: Path) -> None:
    """A lower score with a higher p-value: thresholds per class, or two guards."""
    table = rows()
    table[3] = table[3]._replace(score=50.5, p_value=0.01, accepted=False)
    with pytest.raises(InputError, match="do not grow with the score .* threshold per class"):
        decide_scores(str(write(tmp_path / "scores.csv", table)), 0.1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("scores.csv", "--fdr", "10"), "did you mean 0.1"),
        (("scores.csv", "--out", "decided.txt"), "must end in .csv"),
        (("none.csv",), "nothing to decide"),
        (("-",), "give a file"),
        (("other.csv",), "there is no file"),
    ],
)
def test_refusals_are_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    write(tmp_path / "scores.csv", rows())
    (tmp_path / "none.csv").write_text("path,p_value,error\na.png,,broken\n")
    done = call("decide", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


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
    guard.detector.save(tmp_path / "detector.safetensors")
    same = call_new("decide", "s.csv", "--fdr", "0.2", "--guard", "detector.safetensors", cwd=tmp_path)
    assert flagged(same.stdout) == flagged(done.stdout)
    per_class = guard.calibrate(digits / "val", "zoo:digits-convnet", alpha=0.3, per_class=True, progress=False)
    per_class.save(tmp_path / "per_class.safetensors")
    replace(guard, about=replace(guard.about, held_out=False)).save(tmp_path / "trained.safetensors")
    moved = replace(guard.detector, calibration=guard.detector.calibration + 1)
    replace(guard, detector=moved).save(tmp_path / "moved.safetensors")
    said = {"per_class": "threshold per class", "trained": "on training images", "moved": "another guard wrote s.csv"}
    for command, file in (*product(("decide", "watch"), ("per_class", "moved")), ("watch", "trained")):
        done = call(command, "s.csv", "--guard", f"{file}.safetensors", cwd=tmp_path)
        assert (said[file] in done.stderr, done.returncode) == (True, 2)
