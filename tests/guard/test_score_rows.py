"""Scores that another run wrote: no damaged value is believed, in text by its rules, in Parquet by a checksum."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oodshape import InputError
from oodshape.guard import score_file
from oodshape.guard.p_value_stream import lines_of, p_values
from oodshape.guard.score import Scored

ROWS = [
    Scored("b\udcff.png", "b", 0.1, 0.5, True),
    Scored("c.png", error='truncated, "file"'),
    *(Scored(f"images/{i}.png", "a", i / 7, (i + 1) / 31, i > 2) for i in range(30)),
]
HEADER = "path,class,score,p_value,accepted,error\n"
GOOD = "a.png,cat,1.5,0.5,true,\n"


def values(path: Path) -> list[float | None]:
    return list(p_values(lines_of(str(path)), str(path)))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_what_score_writes_is_believed(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"scores.{ending}"
    score_file.writer(path)(path, ROWS, True)
    assert values(path) == [None if row.p_value is None else pytest.approx(row.p_value, rel=1e-5) for row in ROWS]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_name_with_the_end_of_a_line_is_one_row(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"scores.{ending}"
    rows = [Scored('two\nlines, "so".png', "a", 1.0, 0.25, True), Scored("b.png", "a", 1.0, 0.5, True)]
    score_file.writer(path)(path, rows, True)
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
        ("b.png,,,,,", "an unreadable image has an error alone"),
        ("b.png,cat,1.5,0.6,false,", "line 2 of s.csv is accepted with the p-value 0.5, line 3 of s.csv rejected with"),
        ('b.png,"cat,1.5,0.5,true,', "line 3 of s.csv has 2 columns, the first line 6"),
    ],
)
def test_a_row_that_score_cannot_have_written_is_refused_by_line_and_value(row: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        list(p_values([HEADER, GOOD, f"{row}\n"], "s.csv"))
    assert said in str(error.value)


def test_json_lines_are_held_to_the_same(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    score_file.writer(path)(path, ROWS, True)
    text = path.read_text().replace('"accepted": true', '"accepted": 1', 1)
    path.write_text(text)
    with pytest.raises(InputError, match=r"line 1 of .*scores\.jsonl: 1 is no decision"):
        values(path)


def test_unreadable_images_of_old_files_and_tables_of_others_are_read() -> None:
    old = '{"path": "a", "class": null, "score": null, "p_value": null, "accepted": false, "error": "cut off"}\n'
    assert list(p_values([old])) == [None]
    assert list(p_values(["p,score,note\n", "0.5,high,x\n", "0.7,,\n"])) == [0.5, 0.7]
    with pytest.raises(InputError, match="s.csv has the column p_value twice"):
        list(p_values(["p_value,p_value\n", "0.5,0.7\n"], "s.csv"))


def test_other_rows_under_the_checksum_of_a_parquet_file_are_refused(tmp_path: Path) -> None:
    """Parquet has no checksum of its directory, where one bit can change the rows that are found."""
    path = tmp_path / "scores.parquet"
    score_file.writer(path)(path, ROWS, True)
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
    score_file.writer(path)(path, ROWS, True)
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
