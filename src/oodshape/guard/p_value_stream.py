"""P-values out of a scores file (CSV, JSON lines, Parquet), at once or while it grows."""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.reading import any_names, one_line
from oodshape.guard import score_parquet
from oodshape.guard.score_rows import OURS, P_VALUE, RowCheck

LONGEST = 1 << 16  # characters of a row
CLASS = "class"
Judged = tuple[float | None, str]  # a p-value and a class


class _Labelled(str):
    """A line with a class beside it: what was counted of a Parquet file is a digest of lines without one."""

    label = ""


def p_values(lines: Iterable[str], where: str = "the scores") -> Iterator[float | None]:
    """The p-values of CSV lines with a header, or of JSON lines; None for images without one: they were unreadable.

    >>> list(p_values(["path,p_value", "a.png,0.25", "broken.png,", "b.png,1.0"]))
    [0.25, None, 1.0]
    """
    return (p_value for p_value, _ in judged(lines, where))


def judged(lines: Iterable[str], where: str = "the scores") -> Iterator[Judged]:
    """The same, each with the class that the network gave; empty where the table has none.

    >>> list(judged(["class,p_value", "cat,0.25"]))
    [(0.25, 'cat')]
    """
    check, names, left = RowCheck(), list[str](), iter(lines)
    number = 0
    for line in left:
        number += 1
        place = f"line {number} of {where}"
        if not line.strip():
            continue
        if line.lstrip().startswith("{"):
            row = _from_json(line, place)
            yield check(row, place), _class(row)
            continue
        while line.count('"') % 2 and len(line) <= LONGEST and (more := next(left, "")):
            line, number = line + more, number + 1  # a file's name may hold the end of a line
        cells = _cells(line, place)
        if not names:
            names = _columns(cells, where)
        elif len(cells) != len(names):
            raise InputError(f"{place} has {len(cells)} columns, the first line {len(names)}")
        else:
            row = dict(zip(names, cells, strict=True))
            yield check(row, place), line.label if isinstance(line, _Labelled) else _class(row)


def lines_of(path: str, *, follow: bool = False, pause: float = 0.5) -> Iterator[str]:
    """The whole lines of a text file, `-` for standard input; with `follow`, those that are added later too."""
    if path == "-":
        yield from any_names(sys.stdin)
        return
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    if path.endswith(".parquet"):
        yield from _parquet_lines(path)
        return
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:  # names may be any bytes
        rest = ""
        while True:
            part = file.readline()
            if part.endswith("\n"):
                yield rest + part
                rest = ""
            elif part:
                rest += part  # a line that is still being written
            elif follow:
                time.sleep(pause)
            else:
                break
        if rest:
            yield rest


def _parquet_lines(path: str) -> Iterator[str]:
    """The p-values as CSV; those of the whole file are looked at before the first is given."""
    check, name = RowCheck(), P_VALUE[0]
    values, labels = [], []
    for number, row in enumerate(score_parquet.read(path, (*P_VALUE, *OURS, CLASS)), 1):
        name = _column(list(row), path) if number == 1 else name
        values.append(check(row, f"row {number} of {path}"))
        labels.append(_class(row))
    yield f"{name}\n"
    for value, label in zip(values, labels, strict=True):
        # an empty line would be no row
        line = _Labelled('""\n' if value is None or math.isnan(value) else f"{value!r}\n")
        line.label = label
        yield line


def _class(row: Mapping[str, Any]) -> str:
    found = row.get(CLASS)
    return "" if found is None else str(found)


def _columns(names: list[str], where: str) -> list[str]:
    """The names of a table's columns, one of them that of p-values, none twice."""
    _column(names, where)
    twice = next((name for name in names if name in (*P_VALUE, *OURS) and names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where} has the column {twice} twice; keep one")
    return names


def _column(names: list[str], where: str) -> str:
    for name in P_VALUE:
        if name in names:
            return name
    raise InputError(f"{where} has no column {P_VALUE[0]}; there are {one_line(', '.join(names))}")


def _from_json(line: str, where: str) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON: {one_line(error)}") from None
    return row


def _cells(line: str, where: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise InputError(f"{where} is no CSV: {one_line(error)}") from None
