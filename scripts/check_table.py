"""A Markdown table of checks, beside a threshold on the softmax.

oodshape check ... --json > lite0.json
python scripts/check_table.py EfficientNet-Lite0=lite0.json DeiT-tiny=deit.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def row(network: str, said: dict[str, Any], each: dict[str, Any]) -> list[str]:
    """One set under the guard and under the softmax."""
    other = next(o for o in said["sets"] if o["detector"] == "softmax" and o["set"] == each["set"])
    cells = [network, f"{each['set']} ({each['role'].upper()})", f"{each['images']:,}"]
    for detector in (each, other):
        share = detector["accepted_share"]
        cells.append(f"{100 * share['value']:.1f} % ({100 * share['low']:.1f} to {100 * share['high']:.1f})")
    cells += [f"{100 * d['auroc']['value']:.1f}" if "auroc" in d else "" for d in (each, other)]
    return cells


def main(words: list[str]) -> None:
    """Print the table, and how many ID images each guard rejects."""
    head = ["network", "set", "images", "guard accepts", "softmax accepts", "AUROC guard", "AUROC softmax"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    notes = []
    for word in words:
        network, _, file = word.partition("=")
        said = json.loads(Path(file).read_text())
        for each in said["sets"]:
            if each["detector"] == "guard":
                print("| " + " | ".join(row(network, said, each)) + " |")
        low, high = said["guaranteed"]
        notes.append(f"{network} rejects {said['rejected_id']} ID images; the promise allows {low} to {high} (99 %).")
    print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main(sys.argv[1:])
