"""Store the table of docs/guides/check.md: what guards and the MSP baseline accept.

oodshape check ... --json > lite0.json
python scripts/check_table.py EfficientNet-Lite0=lite0.json DeiT-tiny=deit.json

It writes docs/measured/check.json; `python scripts/docs/fill.py` then fills the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STORED = Path(__file__).parents[1] / "docs" / "measured" / "check.json"
HEAD = ["network", "set", "images", "guard accepts", "MSP accepts", "AUROC guard", "AUROC MSP"]
COMMANDS = [
    "oodshape fit --model MODEL --weights WEIGHTS --images train --calibrate val-odd.txt --out guard.safetensors",
    "oodshape check --model MODEL --weights WEIGHTS --guard guard.safetensors --id val-even.txt --ood texture "
    "--ood places --json",
    "python scripts/check_table.py NETWORK=check.json ...",
]


def row(network: str, found: dict[str, Any], each: dict[str, Any]) -> list[str]:
    """One set under the guard and under the baseline."""
    other = next(o for o in found["sets"] if o["detector"] != "guard" and o["set"] == each["set"])
    name = "ImageNet" if each["role"] == "id" else each["set"]
    cells = [network, f"{name} ({each['role'].upper()})", f"{each['images']:,}"]
    for detector in (each, other):
        share = detector["accepted_share"]
        cells.append(f"{100 * share['value']:.1f} % ({100 * share['low']:.1f} to {100 * share['high']:.1f})")
    cells += [f"{100 * d['auroc']['value']:.1f}" if "auroc" in d else "" for d in (each, other)]
    return cells


def main(words: list[str], stored: Path = STORED) -> None:
    """Write the table, with how many ID images each guard rejects."""
    rows, rejected = [], {}
    for word in words:
        network, _, file = word.partition("=")
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        rows += [row(network, found, each) for each in found["sets"] if each["detector"] == "guard"]
        rejected[network] = [found["rejected_id"], *found["guaranteed"]]
    made = {"command": COMMANDS, "rejected_id_and_99_percent_range": rejected, "head": HEAD, "align": "llrrrrr"}
    text = json.dumps({**made, "rows": rows}, indent=1)
    stored.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {stored}")


if __name__ == "__main__":
    main(sys.argv[1:])
