"""The largest differences between the results of a run and the figures of the authors' own code on the same images.

    python scripts/check_oracle.py RESULTS ORACLE.json --sets SVHN=svhn Texture=texture32

RESULTS is the folder of `oodshape bench`; --sets gives the oracle's name of each OOD set. Fails above 0.3 points
of AUROC.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from oodshape.benchmark.results import RunResults

LIMIT = 0.3  # points of AUROC


def differences(results: RunResults, oracle: dict[str, Any], sets: dict[str, str]) -> list[tuple[float, float, str]]:
    """(AUROC, FPR95, where) in points for every method and set that both have, the largest first."""
    found = []
    for row in results.rows:
        theirs = oracle["results"].get(row.method, {}).get(sets.get(row.ood, row.ood))
        if theirs is not None:
            gaps = (abs(100 * row.value(name) - theirs[name]) for name in ("auroc", "fpr95"))
            found.append((*gaps, f"{row.method} on {row.ood}"))
    return sorted(found, reverse=True)  # type: ignore[arg-type]


def main() -> None:
    """Print the largest differences; fail where they are too large, or where nothing could be compared."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("oracle", type=Path)
    parser.add_argument("--sets", nargs="*", default=[], metavar="OURS=THEIRS")
    options = parser.parse_args()
    names = dict(pair.split("=", 1) for pair in options.sets)
    found = differences(RunResults.load(options.results), json.loads(options.oracle.read_text()), names)
    if not found:
        raise SystemExit("no method and set in common")
    for auroc, fpr95, where in found[:3]:
        print(f"{where}: AUROC differs by {auroc:.3f}, FPR95 by {fpr95:.3f} points")
    print(f"{len(found)} figures compared, AUROC within {found[0][0]:.3f} points")
    if found[0][0] > LIMIT:
        raise SystemExit(f"more than {LIMIT} points of AUROC")


if __name__ == "__main__":
    main()
