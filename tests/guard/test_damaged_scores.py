"""A .part file never leads to another result, and every command reads the names that another writes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from oodshape import InputError, Watch
from oodshape.guard import score_file
from oodshape.guard.p_value_stream import lines_of, p_values
from oodshape.guard.score import Scored
from oodshape.images.folders import list_pairs

ODD = [Scored("a\udcff.png", 1, 0.5, 0.25, True), Scored("b.png", 2, 0.5, 1.0, True), Scored("c.png", error="cut, off")]
WHO, SIZE = "0123456789abcdef", 4


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
