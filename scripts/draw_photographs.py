"""Draw the README's picture: photographs with the predicted class, the p-value and the decision, light and dark.

    oodshape fit --model zoo:deit_tiny --weights WEIGHTS --images train --calibrate val-odd.txt --out guard.safetensors
    python scripts/draw_photographs.py --guard guard.safetensors --weights WEIGHTS

The photographs are those of scikit-image's wheel (pip install scikit-image). `train` has 1,000 images of ImageNet,
`val-odd.txt` every second line of a sorted list of 1,000 validation images. docs/measured/photographs.json keeps the
decisions; `--stored` draws from that file alone, without a network.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from oodshape import Guard

DOCS = Path(__file__).parents[1] / "docs"
STORED = DOCS / "measured" / "photographs.json"
MODEL = "zoo:deit_tiny"
# file in skimage/data: (what it shows, whether ImageNet has a class for it)
PHOTOGRAPHS = {
    "chelsea.png": ("cat", True),
    "coffee.png": ("coffee", True),
    "motorcycle_left.png": ("motorcycle", True),
    "rocket.jpg": ("rocket", True),
    "grass.png": ("grass", False),
    "gravel.png": ("gravel", False),
    "page.png": ("page", False),
    "hubble_deep_field.jpg": ("Hubble field", False),
    "ihc.png": ("tissue", False),
    "brick.png": ("brick wall", False),
    "retina.jpg": ("retina", False),
}
THEMES = {  # name: ground, text, accepted, rejected
    "light": ("#ffffff", "#1f2328", "#0b62b0", "#a63d00"),
    "dark": ("#0d1117", "#e6edf3", "#6cb2ff", "#ff9e64"),
}
COLUMNS, SIDE = 6, 320


def photograph(name: str) -> Image.Image:
    """A photograph of scikit-image, cropped to its central square."""
    import skimage

    image = Image.open(Path(skimage.__file__).parent / "data" / name).convert("RGB")
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    return image.crop((left, top, left + side, top + side))


def scored(guard: Guard, weights: str) -> list[dict[str, Any]]:
    """What network and guard say of every photograph."""
    found = guard.explain([photograph(name) for name in PHOTOGRAPHS], model=MODEL, weights=weights)
    rows = []
    for name, why in zip(PHOTOGRAPHS, found, strict=True):
        best = why.guesses[0]
        decision = {"p_value": round(float(why.p_value), 4), "accepted": bool(why.accepted)}
        rows.append(
            {"file": name, "class": str(best.label), "confidence": round(float(best.probability), 3), **decision}
        )
    return rows


def draw(rows: list[dict[str, Any]], theme: str) -> Figure:
    """The photographs in rows, each framed in the colour of its decision."""
    ground, text, accepted, rejected = THEMES[theme]
    lines = -(-len(rows) // COLUMNS)
    figure = Figure(figsize=(8.2, 2.25 * lines), facecolor=ground)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.94, bottom=0.12, wspace=0.08, hspace=0.55)
    grid = figure.subplots(lines, COLUMNS, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for axes, row in zip(grid, rows, strict=False):
        title, inside = PHOTOGRAPHS[row["file"]]
        color = accepted if row["accepted"] else rejected
        axes.set_axis_on()
        axes.imshow(np.asarray(photograph(row["file"]).resize((SIDE, SIDE), Image.Resampling.LANCZOS)))
        axes.set(xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set(color=color, linewidth=3.5)
        axes.set_title(f"{title} ({'ID' if inside else 'OOD'})", color=text, fontsize=9, weight="bold")
        predicted = textwrap.shorten(row["class"], 20, placeholder="…")
        decision = ("accepted" if row["accepted"] else "rejected") + ("" if row["accepted"] == inside else ": a miss")
        axes.text(0.5, -0.06, f"{predicted}, {100 * row['confidence']:.0f} %", color=text, fontsize=8, **_under(axes))
        axes.text(0.5, -0.19, f"p = {row['p_value']:.3f}", color=text, fontsize=8, **_under(axes))
        axes.text(0.5, -0.32, decision, color=color, fontsize=9, weight="bold", **_under(axes))
    note = "Each photograph:\npredicted class and\nits confidence, the\np-value, the decision\nat alpha = 0.05"
    grid[-1].text(0.02, 0.95, note, color=text, fontsize=8.5, va="top", transform=grid[-1].transAxes)
    return figure


def _under(axes: Any) -> dict[str, Any]:
    return {"transform": axes.transAxes, "ha": "center", "va": "top"}


def main() -> None:
    """Score the photographs, store the decisions and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guard", default="guard.safetensors")
    parser.add_argument("--weights")
    parser.add_argument("--stored", action="store_true", help="draw what docs/measured/photographs.json says")
    parser.add_argument("--out", type=Path, default=DOCS / "img")
    arguments = parser.parse_args()
    if not arguments.stored:
        guard = Guard.load(arguments.guard)
        made = {"command": "python scripts/draw_photographs.py --guard guard.safetensors --weights WEIGHTS"}
        made |= {"guarantee": str(guard.guarantee), "rows": scored(guard, arguments.weights)}
        STORED.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    rows = json.loads(STORED.read_text(encoding="utf-8"))["rows"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        path = arguments.out / f"photographs-{theme}.png"
        draw(rows, theme).savefig(path, dpi=170, facecolor=THEMES[theme][0])
        Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.FLOYDSTEINBERG).save(path, optimize=True)


if __name__ == "__main__":
    main()
