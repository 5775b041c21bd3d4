"""Draw the pictures of the README: six images with verdicts, scores before and after, and the page of a check.

    python scripts/draw_readme.py --out docs/img     # --shot: the page too, which needs playwright and Chromium

The images are the package's own, the network is its small transformer for the digits 0 to 7. The three familiar ones
are the first of their digits, the three strange ones the first of their sets, that the guard accepts and rejects; how
many of all it gets right stands beside them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from oodshape import Guard
from oodshape.core.files import replacing
from oodshape.guard.check import Check
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.sources.image_set import ArraySet, Subset
from oodshape.metrics.detection import auroc
from oodshape.report.pages.check_page import write_check
from oodshape.report.pages.scored_page import Origin
from oodshape.report.palette import ID_COLOR, OOD_COLOR, PAPER, PRINT
from oodshape.studies.plotting import look

MODEL = "zoo:digits-vit"
DIGITS = (2, 5, 7)
STRANGE = ("letters", "photos", "textures")
BINS = 40


def checked() -> tuple[Check, dict[str, ArraySet]]:
    """A guard of the digits, checked on the half of the test images that did not calibrate it, and on strangers."""
    sets = digits_sets()
    every = range(len(sets["test"]))
    halves = [Subset(sets["test"], [row for row in every if row % 2 == half]) for half in (0, 1)]
    guard = Guard.fit(MODEL, images=sets["train"], calibrate=halves[0], progress=False)
    return guard.check(halves[1], {name: sets[name] for name in STRANGE}, model=MODEL, progress=False), {
        **sets,
        "half": halves[1],
    }


def chosen(check: Check, sets: dict[str, ArraySet]) -> list[tuple[Any, str, str, float]]:
    """(image, what it is, what the network calls it, p-value) of three accepted and three rejected images."""
    labels, inside = np.asarray(sets["half"].labels), check.inside.guard
    rows = [int(np.flatnonzero((labels == digit) & inside.passed)[0]) for digit in DIGITS]
    found = [(sets["half"][row], f"a {labels[row]}", check.inside.classes[row], inside.p_values[row]) for row in rows]
    for each in check.outside:
        row = int(np.flatnonzero(~each.guard.passed)[0])
        what = f"a {each.name.removesuffix('s')}"
        found.append((sets[each.name][row], what, each.classes[row], each.guard.p_values[row]))
    return [(image, what, str(label), float(p)) for image, what, label, p in found]


def draw(check: Check, sets: dict[str, ArraySet]) -> Figure:
    """The six images above, the scores of the softmax and of the guard below."""
    figure = Figure(figsize=(8.4, 4.3), layout="constrained", facecolor=PAPER)
    above, below = figure.subfigures(2, 1, height_ratios=(1.15, 1))
    for axes, (image, what, label, p) in zip(above.subplots(1, 6), chosen(check, sets), strict=True):
        passes = p > (check.guard.detector.alpha or 0)
        color = ID_COLOR if passes else OOD_COLOR
        axes.imshow(image, cmap="gray", vmin=0, vmax=255)
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        for side in axes.spines.values():
            side.set(visible=True, color=color, linewidth=3)
        axes.set_title(f"{what}, taken for {label}", color=PRINT, fontsize=9)
        axes.set_xlabel(f"{'accepted' if passes else 'rejected'}\np = {p:.3f}", color=color, fontsize=10, weight="bold")
    shown = below.subplots(1, 2)
    for axes, name, title in zip(shown, ("softmax", "guard"), ("before: the softmax", "after: the guard"), strict=True):
        inside = check.inside.judged[name]
        outside = [each.judged[name] for each in check.outside]
        strange = np.concatenate([each.values for each in outside])
        _histogram(axes, _places(name, inside.values), _places(name, strange), name)
        detector = check.guard.detector if name == "guard" else check.guard.about.baseline
        assert detector is not None
        limit = float(_places(name, np.array([detector.threshold]))[0])
        axes.axvline(limit, color=PRINT, linewidth=1.1, linestyle="--", label="threshold")
        axes.legend(loc="upper left", fontsize=8.5)
        passing = sum(each.accepted for each in outside) / len(strange)
        area = 100 * auroc(inside.values, strange)
        axes.set_title(f"{title}: {100 * passing:.0f} % of strangers pass, AUROC {area:.1f} %", fontsize=9.5)
    return figure


def _places(name: str, scores: NDArray[Any]) -> NDArray[np.float64]:
    """Scores as they are drawn: the softmax's logarithm as a probability of error, on a logarithmic axis."""
    values = np.asarray(scores, np.float64)
    return np.log10(np.maximum(-np.expm1(values), 1e-9)) if name == "softmax" else values


def _histogram(axes: Any, inside: NDArray[np.float64], strange: NDArray[np.float64], name: str) -> None:
    both = np.concatenate([inside, strange])
    low, high = np.quantile(both, [0.005, 0.995])
    edges = np.linspace(low, high, BINS + 1)
    for values, color, label in ((inside, ID_COLOR, "familiar (ID)"), (strange, OOD_COLOR, "strange (OOD)")):
        heights = np.histogram(np.clip(values, low, high), edges)[0] / len(values)
        axes.stairs(heights, edges, fill=True, color=color, alpha=0.35)
        axes.stairs(heights, edges, color=color, linewidth=1.3, label=label)
    axes.set(ylabel="share of images", yticks=[])
    axes.set_xlabel("doubt, 1 - largest probability (logarithmic)" if name == "softmax" else "score")
    if name == "softmax":
        axes.invert_xaxis()
        ticks = range(int(np.ceil(low)), int(high) + 1)
        axes.set_xticks(list(ticks), [f"{10.0**tick:g}" for tick in ticks])


def shoot(check: Check, path: Path) -> None:
    """A picture of the page of this check, as a browser shows it first."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    given = " ".join(f"--ood {name}" for name in STRANGE)
    command = f"oodshape check --guard guard.safetensors --model {MODEL} --id test {given}"
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page, shot = Path(folder, "check.html"), Path(folder, "shot.png")
        write_check(check, page, check.guard.open_network(MODEL), Origin(command, "guard.safetensors"))
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1180, "height": 1340})
        view.goto(page.as_uri())
        view.screenshot(path=str(shot))
        browser.close()
        with replacing(path) as temporary:
            Image.open(shot).convert("RGB").quantize(64).save(temporary, format="png", optimize=True)


def main() -> None:
    """Write verdicts.svg, and check-page.png where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    parser.add_argument("--shot", action="store_true", help="the page of the check too")
    arguments = parser.parse_args()
    check, sets = checked()
    with look(), replacing(arguments.out / "verdicts.svg") as temporary:
        draw(check, sets).savefig(temporary, format="svg", metadata={"Date": None})
    if arguments.shot:
        shoot(check, arguments.out / "check-page.png")


if __name__ == "__main__":
    main()
