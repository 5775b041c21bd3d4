"""Scores that another run wrote: no damaged value is believed, in text by its rules, in Parquet by a checksum."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oodshape import InputError, Watch
from oodshape.guard.scoring.score_table import parse_scores, read_scores, writer
from oodshape.guard.verdict import Scored
from oodshape.images.sources.folders import list_pairs

ROWS = [
    Scored("b\udcff.png", "b", 0.1, 0.5, True),
    Scored("c.png", error='truncated, "file"'),
    *(Scored(f"images/{i}.png", "a", i / 7, (i + 1) / 31, i > 2) for i in range(30)),
]
ODD = [Scored("a\udcff.png", 1, 0.5, 0.25, True), Scored("b.png", 2, 0.5, 1.0, True), Scored("c.png", error="cut, off")]
HEADER = "path,class,score,p_value,accepted,error\n"
GOOD = "a.png,cat,1.5,0.5,true,\n"


def values(path: Path) -> list[float | None]:
    return [row.p_value for row in read_scores(str(path))]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_what_score_writes_is_believed(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"scores.{ending}"
    writer(path)(path, ROWS, True)
    assert values(path) == [None if row.p_value is None else pytest.approx(row.p_value, rel=1e-5) for row in ROWS]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_name_with_the_end_of_a_line_is_one_row(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"scores.{ending}"
    rows = [Scored('two\nlines, "so".png', "a", 1.0, 0.25, True), Scored("b.png", "a", 1.0, 0.5, True)]
    writer(path)(path, rows, True)
    assert values(path) == [0.25, 0.5]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("b.png,cat,nan,0.5,true,", "line 3 of s.csv: 'nan' is no score, which is a finite number"),
        ("b.png,cat,1e999,0.5,true,", "line 3 of s.csv: '1e999' is no score"),
        ("b.png,cat,1.5x,0.5,true,", "'1.5x' is no score"),
        ("b.png,cat,,0.5,true,", "line 3 of s.csv: '' is no score"),
        ("b.png,cat,1.5,0.5,tru,", "line 3 of s.csv: 'tru' is no decision, which is true or false"),
        ("b.png,cat,1.5,0.5,,", "line 3 of s.csv: '' is no decision"),
        ("b.png,cat,1.5,0.5,true,cut off", "the p-value 0.5 and the error 'cut off': only one can be true"),
        ("b.png,cat,1.5,,true,", "line 3 of s.csv has no p-value, but score '1.5', accepted 'true', error ''"),
        ("b.png,,,,,", "an unreadable image only has an error"),
        ("b.png,cat,1.5,0.6,false,", "line 2 of s.csv is accepted with the p-value 0.5, line 3 of s.csv rejected with"),
        ('b.png,"cat,1.5,0.5,true,', "line 3 of s.csv has 2 columns, the first line 6"),
    ],
)
def test_a_row_that_score_cannot_have_written_is_refused_by_line_and_value(row: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        list(parse_scores([HEADER, GOOD, f"{row}\n"], "s.csv"))
    assert said in str(error.value)


def test_json_lines_are_held_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    writer(path)(path, ROWS, True)
    text = path.read_text().replace('"accepted": true', '"accepted": 1', 1)
    path.write_text(text)
    with pytest.raises(InputError, match=r"line 1 of .*scores\.jsonl: 1 is no decision"):
        values(path)


def test_tables_of_other_programs_are_read() -> None:
    rows = list(parse_scores(["p,score,note\n", "0.5,high,x\n", "0.7,,\n", "nan,2,\n"]))
    assert [(row.p_value, row.score) for row in rows] == [(0.5, None), (0.7, None), (None, 2.0)]
    with pytest.raises(InputError, match="s.csv has the column p_value twice"):
        list(parse_scores(["p_value,p_value\n", "0.5,0.7\n"], "s.csv"))


def test_other_rows_under_the_checksum_of_a_parquet_file_are_refused(tmp_path: Path) -> None:
    """Parquet has no checksum of its directory, where one bit can change the rows that are found."""
    path = tmp_path / "scores.parquet"
    writer(path)(path, ROWS, True)
    table, notes = pq.read_table(path), pq.read_metadata(path).metadata
    for other in (table.slice(0, 31), table.take([1, 0, *range(2, 32)]), table.set_column(3, "p_value", table[3])):
        pq.write_table(other.replace_schema_metadata(notes), path)
        if other.equals(table):
            assert len(values(path)) == 32
        else:
            with pytest.raises(InputError, match=r"scores\.parquet is damaged: its rows or the checksum over them"):
                values(path)


def test_a_damaged_directory_of_a_parquet_file_leads_to_the_same_rows_or_none(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    writer(path)(path, ROWS, True)
    data, whole = path.read_bytes(), values(path)
    refused = 0
    directory = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for at in range(directory, len(data), 9):
        path.write_bytes(data[:at] + bytes([data[at] ^ 128 >> at % 8]) + data[at + 1 :])
        try:
            assert values(path) == whole, f"byte {at}"
        except InputError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_names_that_are_no_utf8_go_through_every_format(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"scores.{ending}"
    writer(path)(path, ODD, False)
    assert values(path) == [0.25, 1.0, None]
    assert Watch.begin(alpha=0.05, n_calibration=99).after(values(path)).seen == 2
    if ending == "csv":
        assert [name for name, _ in list_pairs(path)] == [row.path for row in ODD]


def test_names_that_are_no_utf8_come_through_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"path,p_value\na\xff.png,0.5\n"), "utf-8"))
    assert [row.p_value for row in read_scores("-")] == [0.5]


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
        list(parse_scores(["path,p_value\n", f"{line}\n"], "s.csv"))


def test_files(tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    table.write_text(
        'path,class,score,p_value,accepted\n"a, b.png",1,2.5,0.5,True\nbroken.png,,,,\nc.png,0,1,0.01,False'
    )
    assert values(table) == [0.5, None, 0.01]
    objects = [{"path": "a", "p_value": 0.5}, {"path": "b", "error": "broken", "p_value": None}, {"path": "c"}]
    assert [row.p_value for row in parse_scores(json.dumps(row) for row in objects)] == [0.5, None, None]
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"path": ["a", "b", "c"], "p_value": [0.5, None, 0.125]}).to_parquet(tmp_path / "s.parquet")
    assert values(tmp_path / "s.parquet") == [0.5, None, 0.125]
    for lines, words in (
        (["path,score", "a,1"], "no column p_value; there are path, score"),
        (["p_value", "high"], "line 2 of the scores: 'high' is no p-value"),
        (["{p"], "line 1 of the scores is no JSON"),
    ):
        with pytest.raises(InputError, match=words):
            list(parse_scores(lines))
    with pytest.raises(InputError, match="there is no file"):
        values(tmp_path / "missing.csv")


def test_following_a_file_that_grows(tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    table.write_text("p_value\n0.5\n0.2")
    stream = (row.p_value for row in read_scores(str(table), follow=True, pause=0.01))
    assert next(stream) == 0.5
    with table.open("a") as file:
        file.write("5\n0.75\n")
    assert [next(stream), next(stream)] == [0.25, 0.75]
