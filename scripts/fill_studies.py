"""Store the tables that `oodshape study` prints in docs/measured/studies.json, or check that they still agree.

    python scripts/fill_studies.py --features FEATURES           # compute and store
    python scripts/fill_studies.py --features FEATURES --check   # compute and compare; fails where they differ

`python scripts/docs/fill.py` copies the stored tables into the pages. Numbers may differ a little: processors do not
agree on last bits, and one image that changes sides moves FPR95 by its share.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oodshape.core.files import replacing
from oodshape.report.tables.markdown_latex import frame_markdown
from oodshape.studies.catalog import STUDIES, compute_study, fewest_images
from oodshape.studies.load_networks import StudyNetwork, find_folders, load_folder
from oodshape.studies.tables import supported_decimals

STORED = Path(__file__).parents[1] / "docs" / "measured" / "studies.json"
ABSOLUTE = (1.0, 0.5, 0.5, 0.02)  # by the decimals printed: counts, percent, percent, cosines and weights
RELATIVE = 0.01


def read_stored() -> dict[str, Any]:
    """The stored tables, with the command that made them."""
    found: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return found


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


def compute_table(name: str, networks: Sequence[StudyNetwork]) -> list[str]:
    """The lines of the table that a study prints now."""
    table = STUDIES[name].tabulate(compute_study(name, networks), supported_decimals(fewest_images(networks)))
    return [line for line in frame_markdown(table, "").splitlines() if line.startswith("|")]


def main() -> None:
    """Store the tables, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="+", required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", nargs="*", help="these studies alone")
    options = parser.parse_args()
    networks = [load_folder(folder) for folder in find_folders(options.features)]
    found = read_stored()
    names = options.only or list(found["tables"])
    now = {name: compute_table(name, networks) for name in names}
    if options.check:
        wrong = [f"{name}: {gap}" for name in names for gap in differences(found["tables"][name], now[name])]
        if wrong:
            raise SystemExit("\n".join(wrong))
        print(f"{len(names)} stored tables are what the command prints")
        return
    found["tables"].update(now)
    with replacing(STORED) as temporary:
        temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
