"""A .part file never leads to another result, and every command reads the names that another writes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from oodshape import InputError, Watch
from oodshape.core.fingerprint import fingerprint_of
from oodshape.guard import score_file
from oodshape.guard.p_value_stream import lines_of, p_values
from oodshape.guard.score import Scored
from oodshape.images.folders import list_pairs

ROWS = [Scored(f"{i}.png", i % 3, i / 7, (i + 1) / 13, i > 2) for i in range(12)]
ODD = [Scored("a\udcff.png", 1, 0.5, 0.25, True), Scored("b.png", 2, 0.5, 1.0, True), Scored("c.png", error="cut, off")]
WHO, SIZE = "0123456789abcdef", 4


def part_file(path: Path) -> bytes:
    data, mark = json.dumps({"oodshape": WHO}).encode() + b"\n", WHO
    for at in range(0, len(ROWS), SIZE):
        lines = "".join(json.dumps(row) + "\n" for row in ROWS[at : at + SIZE]).encode()
        mark = fingerprint_of(mark, lines)
        data += lines + score_file._sealed(mark)
    path.write_bytes(data)
    return data


def resumed(path: Path) -> list[Scored]:
    with path.open("a+b") as file:
        kept, _ = score_file._resume(file, path, WHO, SIZE, iter([(row.path, -1) for row in ROWS]))
        rows = list(score_file.read_part(file))
    assert len(rows) == kept
    return rows


def test_a_whole_part_file_is_kept(tmp_path: Path) -> None:
    part_file(tmp_path / "s.csv.part")
    assert resumed(tmp_path / "s.csv.part") == ROWS


def test_a_changed_byte_is_refused_or_rows_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "s.csv.part"
    data = part_file(path)
    refused = 0
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        try:
            rows = resumed(path)
        except InputError as error:
            refused += 1
            assert "remove it" in str(error)  # noqa: PT017
        else:
            assert rows == ROWS[: len(rows)]
    assert refused > len(data) // 3 * 0.6


def test_a_part_file_that_is_cut_off_keeps_whole_batches(tmp_path: Path) -> None:
    path = tmp_path / "s.csv.part"
    data = part_file(path)
    for size in range(0, len(data), 11):
        path.write_bytes(data[:size])
        rows = resumed(path)
        assert rows == ROWS[: len(rows)]
        assert len(rows) % SIZE == 0


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_names_that_are_no_utf8_go_through_every_format(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"scores.{ending}"
    score_file.writer(path)(path, ODD, False)
    values = list(p_values(lines_of(str(path)), str(path)))
    assert values == [0.25, 1.0, None]
    assert Watch.begin(alpha=0.05, n_calibration=99).after(values).seen == 2
    if ending == "csv":
        assert [name for name, _ in list_pairs(path)] == [row.path for row in ODD]


def test_names_that_are_no_utf8_come_through_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"path,p_value\na\xff.png,0.5\n"), "utf-8"))
    assert list(p_values(lines_of("-"))) == [0.5]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a.png,0", "no p-value, which lies in"),
        ("a.png,1.5", "no p-value"),
        ("a.png,-inf", "no p-value"),
        ("a.png", "has 1 columns, the first line 2"),
        ("a.png,0.5,7", "has 3 columns"),
        ("a" * 200_000 + ",0.5", "is no CSV"),
        ('{"a":' * 5000, "is no JSON"),
        ('{"p_value": true}', "no p-value"),
    ],
)
def test_a_row_that_no_score_writes_is_refused_by_its_line(line: str, said: str) -> None:
    with pytest.raises(InputError, match=f"line 2 of s.csv.*{said}"):
        list(p_values(["path,p_value\n", f"{line}\n"], "s.csv"))


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    score_file.writer(path)(path, ODD, False)
    data = path.read_bytes()
    for at in range(4, len(data), 101):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        try:
            values = list(p_values(lines_of(str(path)), str(path)))
        except InputError:
            continue
        assert values == [0.25, 1.0, None]
