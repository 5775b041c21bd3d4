"""P-values out of a scores file (CSV, JSON lines, Parquet), at once or while it grows."""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from oodshape.core.errors import InputError
from oodshape.core.reading import any_names, one_line, reading

COLUMNS = ("p_value", "p-value", "p")


def p_values(lines: Iterable[str], where: str = "the scores") -> Iterator[float | None]:
    """The p-values of CSV lines with a header, or of JSON lines; None for images without one: they were unreadable.

    >>> list(p_values(["path,p_value", "a.png,0.25", "broken.png,", "b.png,1.0"]))
    [0.25, None, 1.0]
    """
    place: int | None = None
    width = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if line.lstrip().startswith("{"):
            value = _from_json(line, f"line {number} of {where}")
        elif place is None:
            names = _cells(line, f"line {number} of {where}")
            place, width = _column(names, where), len(names)
            continue
        else:
            row = _cells(line, f"line {number} of {where}")
            if len(row) != width:
                raise InputError(f"line {number} of {where} has {len(row)} columns, the first line {width}")
            value = row[place]
        yield None if value in (None, "") else _number(value, f"line {number} of {where}")


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
    import pandas

    with reading(path, "give the file that `oodshape score --out` wrote"):
        frame = pandas.read_parquet(path, page_checksum_verification=True)
        name = frame.columns[_column(list(map(str, frame.columns)), path)]
        values = [None if value is None else float(value) for value in frame[name]]
    yield f"{name}\n"
    for value in values:
        yield '""\n' if value is None or math.isnan(value) else f"{value!r}\n"  # an empty line would be no row


def _column(names: list[str], where: str) -> int:
    for name in COLUMNS:
        if name in names:
            return names.index(name)
    raise InputError(f"{where} has no column {COLUMNS[0]}; there are {one_line(', '.join(names))}")


def _from_json(line: str, where: str) -> object:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON: {one_line(error)}") from None
    return next((row[name] for name in COLUMNS if name in row), None)


def _cells(line: str, where: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise InputError(f"{where} is no CSV: {one_line(error)}") from None


def _number(value: object, where: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if number <= 0 or number > 1 or isinstance(value, bool):  # NaN is an image that could not be read
        raise InputError(f"{where}: {one_line(repr(value), 40)} is no p-value, which lies in (0, 1]")
    return number
