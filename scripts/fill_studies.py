"""Update the tables of docs/studies with what `oodshape study` prints, or check that they still agree.

    python scripts/fill_studies.py --features FEATURES           # compute and write
    python scripts/fill_studies.py --features FEATURES --check   # compute and compare; fails where they differ

The table of a study is the first one on its page that holds no pictures. Numbers may differ a little: processors do not
agree on last bits, and one image that changes sides moves FPR95 by its share.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from oodshape.core.files import replacing
from oodshape.studies.catalog import STUDIES
from oodshape.studies.network import Network, find_folders, load_folder
from oodshape.studies.write import print_study

PAGES = Path(__file__).parents[1] / "docs" / "studies"
ABSOLUTE = (1.0, 0.5, 0.5, 0.02)  # by the decimals printed: counts, percent, percent, cosines and weights
RELATIVE = 0.01


def pages() -> dict[str, Path]:
    """By study: its page."""
    return {name: PAGES / f"{name}.md" for name in STUDIES if (PAGES / f"{name}.md").is_file()}


def table_of(text: str) -> slice:
    """The lines of the first table that holds no pictures."""
    lines, start = text.splitlines(), None
    for number, line in enumerate([*lines, ""]):
        if line.startswith("|") and start is None:
            start = number
        elif not line.startswith("|") and start is not None:
            if "![" not in lines[start + 2]:
                return slice(start, number)
            start = None
    raise ValueError("a study's page has no table")


def read_table(text: str) -> list[str]:
    """The lines of the study's table on a page."""
    return text.splitlines()[table_of(text)]


def replace_table(text: str, table: Sequence[str]) -> str:
    """The page with this table in place of its own."""
    lines = text.splitlines()
    lines[table_of(text)] = table
    return "\n".join(lines) + "\n"


def differences(old: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """What differs by more than processors do: heads, names, numbers."""
    if len(old) != len(now):
        yield f"{len(old)} lines, now {len(now)}"
    for one, two in zip(old, now, strict=False):
        if [_words(cell) for cell in _cells(one)] != [_words(cell) for cell in _cells(two)]:
            yield f"{one}\n  now {two}"
            continue
        if not all(_close(*pair) for pair in zip(_numbers(one), _numbers(two), strict=True)):
            yield f"{one}\n  now {two}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _words(cell: str) -> str:
    return re.sub(r"[+-]?\d+(\.\d+)?", "0", cell)


def _numbers(line: str) -> list[str]:
    return re.findall(r"-?\d+(?:\.\d+)?", line)


def _close(old: str, new: str) -> bool:
    """Whether two printed numbers may come from the same code; the more decimals, the less they may differ."""
    decimals = min(len(old.partition(".")[2]), len(ABSOLUTE) - 1)
    return abs(float(old) - float(new)) <= max(ABSOLUTE[decimals], RELATIVE * abs(float(old)))


def compute_table(name: str, networks: Sequence[Network]) -> list[str]:
    """The lines of the table that a study prints now."""
    return [line for line in print_study(name, networks).splitlines() if line.startswith("|")]


def main() -> None:
    """Fill the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="+", required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="*", help="these studies alone")
    options = parser.parse_args()
    networks = [load_folder(folder) for folder in find_folders(options.features)]
    wrong, looked_at = [], {name: path for name, path in pages().items() if not options.only or name in options.only}
    for name, path in looked_at.items():
        text, now = path.read_text(encoding="utf-8"), compute_table(name, networks)
        if options.check:
            wrong += [f"{name}: {gap}" for gap in differences(read_table(text), now)]
            continue
        with replacing(path) as temporary:
            temporary.write_text(replace_table(text, now), encoding="utf-8")
    if wrong:
        raise SystemExit("\n".join(wrong))
    if options.check:
        print(f"{len(looked_at)} pages hold what the command prints")


if __name__ == "__main__":
    main()
