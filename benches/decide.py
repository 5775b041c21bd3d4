"""The law of `decide`: of the images flagged, how many are familiar, over 1,000 splits of real features.

    python benches/decide.py [FEATURES] [--quick]

FEATURES holds a folder for each network: head.npz, train.npz, test.npz or val.npz (ID), and the OOD sets. Each split
draws a calibration set and familiar images from the ID set and strange ones from an OOD set, anew; OptFS-E scores them.
Beside it stands what a threshold for alpha = 5 % flags of the same images.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape import METHODS, Features, false_discoveries
from oodshape.metrics.conformal import p_values

CALIBRATION, FAMILIAR, LEVEL, ALPHA = 1000, 400, 0.1, 0.05
SURROGATES = {"uniform", "gaussian"}  # no images
Array = NDArray[np.float32]


def scores(folder: Path) -> tuple[Array, dict[str, Array]]:
    """The scores of a network's ID set and of each of its OOD sets."""
    files = {path.stem: np.load(path) for path in folder.glob("*.npz")}
    head = files.pop("head")
    layer = head["weight"], head["bias"]
    detector = METHODS["optfs-e"].fit(Features.from_arrays(files.pop("train")["features"], layer))
    found = {
        name: detector.score(Features.from_arrays(data["features"], layer)).numpy()
        for name, data in files.items()
        if name not in SURROGATES
    }
    return found.pop("test" if "test" in found else "val"), found


def law(inside: Array, outside: Array, strange: int, rounds: int, storey: bool | None) -> tuple[float, float, float]:
    """(mean share of familiar images among those flagged, its standard error, share of strange ones found)."""
    rng = np.random.default_rng(0)
    wrong, found = [], []
    for _ in range(rounds):
        familiar = rng.choice(inside, CALIBRATION + FAMILIAR, replace=False)
        both = np.concatenate([familiar[CALIBRATION:], rng.choice(outside, strange, replace=False)])
        values = p_values(np.sort(familiar[:CALIBRATION]), torch.from_numpy(both)).numpy()
        flagged = values <= ALPHA if storey is None else false_discoveries(values, LEVEL, storey=storey)
        wrong.append(flagged[:FAMILIAR].sum() / max(flagged.sum(), 1))
        found.append(flagged[FAMILIAR:].mean())
    return float(np.mean(wrong)), float(np.std(wrong) / np.sqrt(rounds)), float(np.mean(found))


def main() -> None:
    """Print a row for each network, set and number of strange images."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    root = Path(words[0]) if words else Path(__file__).parents[2] / "shared" / "features"
    rounds, kept = 20 if "--quick" in sys.argv else 1000, True
    print(f"{rounds} splits, {CALIBRATION} calibration, {FAMILIAR} familiar images; familiar among flagged / found")
    print(f"{'network':<28} {'strange':<24} {'alpha 5 %':>15} {'FDR 10 %':>15} {'and Storey':>15}")
    for folder in sorted(root.iterdir()):
        inside, others = scores(folder)
        for name, outside in sorted(others.items()):
            for strange in (20, 200):
                cells = [law(inside, outside, strange, rounds, how) for how in (None, False, True)]
                kept &= all(share <= LEVEL + 3 * error for share, error, _ in cells[1:])
                said = " ".join(f"{100 * share:6.1f} / {100 * found:5.1f}" for share, _, found in cells)
                print(f"{folder.name:<28} {strange:>4} of {name:<16} {said}", flush=True)
    print(f"at most {100 * LEVEL:g} % familiar among those flagged, on average: {'ok' if kept else 'MISSED'}")
    sys.exit(not kept)


if __name__ == "__main__":
    main()
