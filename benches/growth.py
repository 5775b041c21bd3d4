"""How time and memory grow along one axis at a time, from 50,000 images, 1,024 features and 1,000 classes.

    python benches/growth.py [--quick] [--only classes=21000] [--out docs/measured/growth.json]

Fits of ours and of pytorch-ood, each in a process of its own, until a fit takes longer than `PATIENCE` or more memory
than the machine has: what breaks first is printed. `--only` measures one point, and the file keeps the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import host_processor, measured
from oodshape import METHODS, Features, Head
from pairs import rivals, theirs
from rivals import apart, linear, narrow

START = {"images": 50_000, "features": 1_024, "classes": 1_000}
AXES = {
    "images": (1_000, 10_000, 50_000, 200_000, 1_300_000),
    "features": (64, 256, 1_024, 4_096),
    "classes": (10, 100, 1_000, 21_000),
}
QUICK = {"images": (1_000, 4_000), "features": (64, 256), "classes": (10, 100)}
PATIENCE = 600.0  # seconds
OURS, THEIRS = ("optfs", "vim", "mds++", "knn", "klm"), ("vim", "knn", "klm")


def fit(ood: Any, side: str, name: str, path: Path, classes: int) -> dict[str, Any]:
    """Seconds, CPU seconds and MB of one fit."""
    z, rng = np.load(path, mmap_mode="r"), np.random.default_rng(1)
    weight = rng.normal(scale=0.05, size=(classes, z.shape[1])).astype(np.float32)
    labels = np.arange(len(z)) % classes
    if side == "ours":
        small, _, head = narrow()
        METHODS[name].fit(Features.from_arrays(small.astype(np.float16), head))  # loads the loops
        task = partial(METHODS[name].fit, Features.from_arrays(z, Head.of((weight, None)), predictions=labels))
    else:
        rival, values = rivals(ood, linear(weight))[name](), torch.from_numpy(np.asarray(z, np.float32))
        task = partial(rival.fit, values, torch.from_numpy(labels))
    seconds, grown = measured(task)
    return {"seconds": round(float(seconds[0]), 3), "cpu": round(float(seconds[1]), 3), "mb": round(grown)}


def main() -> int:
    """Print a line for each point and write them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", metavar="AXIS=VALUE")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    ood, points, axes = theirs(), [], QUICK if given.quick else AXES
    if given.only is not None:
        name, value = given.only.split("=")
        axes = {name: (int(value),)}
        if given.out is not None and given.out.exists():
            known = json.loads(given.out.read_text())["points"]
            points = [point for point in known if (point["axis"], point[name]) != (name, int(value))]
    for axis, values in axes.items():
        broken: set[tuple[str, str]] = set()
        for value in values:
            sizes = {**START, **({"images": 4_000, "features": 64} if given.quick else {}), axis: value}
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "z.npy"
                write(path, sizes["images"], sizes["features"])
                for side, names in (("ours", OURS), ("theirs", THEIRS)):
                    for name in names:
                        if (side, name) not in broken:
                            found = apart(partial(fit, ood, side, name, path, sizes["classes"]), PATIENCE)
                            broken |= {(side, name)} if "failed" in found else set()
                            points.append({"axis": axis, **sizes, "side": side, "method": name, **found})
                            print(axis, f"{value:,}", side, name, found, flush=True)
            if given.out is not None:
                points.sort(key=lambda point: (list(AXES).index(point["axis"]), point[point["axis"]]))
                about = {"command": "python benches/growth.py", "processor": host_processor(), "start": START}
                given.out.write_text(json.dumps({**about, "points": points}, indent=1) + "\n")
    return 0


def write(path: Path, rows: int, width: int) -> None:
    """Features as after a ReLU, in float16."""
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(rows, width))
    rng = np.random.default_rng(0)
    for first in range(0, rows, 8192):
        file[first : first + 8192] = np.maximum(rng.standard_normal((len(file[first : first + 8192]), width)), 0)
    file.flush()


if __name__ == "__main__":
    sys.exit(main())
