"""Draw the picture of docs/auto.md: an ID image, the same scrambled, and what the proxy says next to the truth.

    python scripts/draw_auto.py --out docs/img

The images are embedded digits, the network is the small transformer of the package.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure
from scatter import Point, draw_scatter, name_points
from study_auto import compare_selection

from oodshape import Scrambled
from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.spec import Benchmark
from oodshape.core.files import replacing
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.report.method_styles import display_name
from oodshape.report.palette import TEXT
from oodshape.studies.load_networks import load_benchmark
from oodshape.studies.plotting import TOWARDS, add_legend, missing_percent, scale_toward_hundred, use_style

DIGITS = (0, 4, 6)  # the first image of each


def main() -> None:
    """Write auto.svg."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    folder = parser.parse_args().out
    train = load_digits_sets()["train"]
    network = next(iter(load_benchmark(Benchmark.load("digits"), BenchOptions(models=("ViT",)))))
    frame = compare_selection(network)
    keys = ["method", "scrambled_auroc", "chosen"]
    means = frame.groupby(keys, sort=False, dropna=False)["auroc"].mean().reset_index()
    with use_style():
        figure = Figure(figsize=(6.6, 4.6), layout="constrained")
        grid = figure.add_gridspec(len(DIGITS), 3, width_ratios=(0.55, 0.55, 2.3))
        for row, digit in enumerate(DIGITS):
            number = train.labels.tolist().index(digit)
            pairs = (("ID image", train[number]), ("scrambled", Scrambled(train)[number]))
            for column, (title, image) in enumerate(pairs):
                axes = figure.add_subplot(grid[row, column])
                axes.imshow(image, cmap="gray", vmin=0, vmax=255)
                axes.set_axis_off()
                if row == 0:
                    axes.set_title(title)
        axes = figure.add_subplot(grid[:, 2])
        points = [
            Point(name, missing_percent(seen), missing_percent(real), bool(chosen))
            for name, seen, chosen, real in means.itertuples(index=False)
            if seen == seen  # auto itself has no place on the proxy
        ]
        scale_toward_hundred(axes)
        draw_scatter(axes, points)
        fused = missing_percent(float(means.loc[means["method"] == "auto", "auroc"].iloc[0]))
        axes.axhline(fused, color=TEXT, linewidth=0.9, linestyle="--")
        axes.annotate(
            "auto (rings: fused)", (0.01, fused), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points"
        )
        axes.set(
            xlabel=f"ID images against scrambled ones: AUROC (%),\n{TOWARDS}; dotted: x = y",
            ylabel=f"real OOD sets: mean AUROC (%),\n{TOWARDS}",
        )
        add_legend(figure, 3)
        name_points(axes, points)
        named = [text.get_text() for text in axes.texts]
        for point in points:
            name = display_name(point.name)
            if point.ring and name not in named:  # one among many: its name stands apart, with a line
                look = {"arrowstyle": "-", "color": TEXT, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 4}
                place = {"textcoords": "offset points", "fontsize": 6, "ha": "center"}
                axes.annotate(name, (point.x, point.y), (-28, 22), arrowprops=look, **place)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / "auto.svg") as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
