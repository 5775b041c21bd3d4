"""The tables of docs/studies.md are what `oodshape study` prints: fill them anew, or check that they still are.

    python scripts/fill_studies.py --features FEATURES           # compute and write
    python scripts/fill_studies.py --features FEATURES --check   # compute and compare; fails where they differ

A table belongs to the nearest `oodshape study NAME` above it. Numbers may differ by a little: processors do not agree
on last bits, and one image that changes sides moves FPR95 by its share.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from oodshape.core.files import replacing
from oodshape.studies.network import Network, folders_in, from_folder
from oodshape.studies.table import STUDIES
from oodshape.studies.writing import printed

PAGE = Path(__file__).parents[1] / "docs" / "studies.md"
NAMED = re.compile(r"`oodshape study ([a-z]+)`")
ABSOLUTE = (1.0, 0.5, 0.5, 0.02)  # by the decimals printed: counts, percent, percent, cosines and weights
RELATIVE = 0.01


def found(text: str) -> Iterator[tuple[str, slice]]:
    """(study, lines) of every table that a study prints: the first one below its command."""
    lines, waiting = text.splitlines(), ""
    start = None
    for number, line in enumerate([*lines, ""]):
        named = NAMED.search(line)
        if line.startswith("#"):
            waiting = ""
        if named and named[1] in STUDIES and not line.startswith("|"):
            waiting = named[1]
        if line.startswith("|") and start is None:
            start = number
        elif not line.startswith("|") and start is not None:
            if waiting and "![" not in lines[start + 2]:  # a table of pictures is no result
                yield waiting, slice(start, number)
                waiting = ""
            start = None


def filled(text: str, tables: Mapping[str, Sequence[str]]) -> str:
    """The page with these tables in place of its own."""
    lines = text.splitlines()
    for name, place in reversed(list(found(text))):
        lines[place] = tables.get(name, lines[place])
    return "\n".join(lines) + "\n"


def differences(kept: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """What differs by more than processors do: heads, names, numbers."""
    if len(kept) != len(now):
        yield f"{len(kept)} lines, now {len(now)}"
    for old, new in zip(kept, now, strict=False):
        if [_words(cell) for cell in _cells(old)] != [_words(cell) for cell in _cells(new)]:
            yield f"{old}\n  now {new}"
            continue
        if not all(_close(*pair) for pair in zip(_numbers(old), _numbers(new), strict=True)):
            yield f"{old}\n  now {new}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _words(cell: str) -> str:
    return re.sub(r"-?\d+(\.\d+)?", "0", cell)


def _numbers(line: str) -> list[str]:
    return re.findall(r"-?\d+(?:\.\d+)?", line)


def _close(old: str, new: str) -> bool:
    """Whether two printed numbers may come from the same code; the more decimals, the less they may differ."""
    decimals = min(len(old.partition(".")[2]), len(ABSOLUTE) - 1)
    return abs(float(old) - float(new)) <= max(ABSOLUTE[decimals], RELATIVE * abs(float(old)))


def tables(names: Iterable[str], networks: Sequence[Network]) -> dict[str, list[str]]:
    """The lines of the table that each study prints."""
    return {
        name: [line for line in printed(name, networks).splitlines() if line.startswith("|")] for name in set(names)
    }


def main() -> None:
    """Fill the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="+", required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="*", help="these studies alone")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    places = {name: place for name, place in found(text) if not options.only or name in options.only}
    made = tables(places, [from_folder(folder) for folder in folders_in(options.features)])
    if not options.check:
        with replacing(PAGE) as temporary:
            temporary.write_text(filled(text, made), encoding="utf-8")
        return
    wrong = [
        f"{name}: {gap}" for name, place in places.items() for gap in differences(text.splitlines()[place], made[name])
    ]
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(f"{len(places)} tables are what the command prints")


if __name__ == "__main__":
    main()
