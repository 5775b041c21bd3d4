"""Draws the figures of the docs and measures every method.

Writes docs/img/idea-*.svg, docs/img/concept-*.svg, docs/img/methods/*.svg and docs/methods/measured.json. Figures come
from the embedded digits, so that everyone gets the same ones. With `--features FOLDER` (`oodshape study --help`) the
networks in it are measured too; without, their figures in measured.json are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.spec import Benchmark
from oodshape.core.files import replacing
from oodshape.methods.fit_all import fit_all
from oodshape.methods.registry import METHODS
from oodshape.methods.slots import Identity
from oodshape.studies.compare_methods import compare_methods
from oodshape.studies.load_networks import StudyNetwork, find_folders, load_benchmark, load_folder

sys.path.insert(0, str(Path(__file__).parent / "docs"))

import pictures
from concepts import figures as concept_figures
from faces import id_and_ood
from pages import page_name

DOCS = Path(__file__).parents[1] / "docs"
NETWORK = "ConvNet"  # of the digits: the one in the figures


def write(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def draw_missing(docs: Path) -> None:
    """Draw the figures of methods that have none yet, as the build of the site does."""
    folder = docs / "img" / "methods"
    names = [name for name in METHODS if not (folder / f"{page_name(name)}-scores.svg").is_file()]
    if names:
        options = BenchOptions(models=(NETWORK,), cache=None, progress=False)
        (network,) = load_benchmark(Benchmark.load("digits"), options)
        draw_methods(network, folder, names)


def draw_methods(network: StudyNetwork, folder: Path, names: Iterable[str] = METHODS) -> None:
    """NAME-scores.svg for every method that scores features, and NAME-theta.svg where it shapes."""
    for name, detector in fit_all({name: METHODS[name] for name in names}, network.train, network.proxy).items():
        write(folder / f"{page_name(name)}-scores.svg", pictures.histogram(name, pictures.scores(detector, network)))
        if not isinstance(detector.shape, Identity):
            theta = pictures.theta_of(name, detector.shape, network)
            write(folder / f"{page_name(name)}-theta.svg", pictures.shaping([theta]))


def measure(networks: Iterable[StudyNetwork], *, real: bool) -> list[dict[str, Any]]:
    """A row per network: its sets, and per method [FPR95, AUROC] in percent, means over the OOD sets."""
    rows = []
    for network in networks:
        ood = network.ood if real else pictures.outside(network)
        frame = compare_methods(replace(network, ood=ood))
        means = frame.groupby("method", sort=False)[["fpr95", "auroc"]].mean()
        found = {name: [round(100 * float(v), 1) for v in means.loc[name]] for name in means.index}
        rows.append({"network": network.name, "real": real, "ood": list(ood), "methods": found})
    return rows


def main() -> None:
    """Draw and measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, nargs="*", default=[], help="folders of feature files to measure too")
    parser.add_argument("--proxy", type=Path, help="a folder with NETWORK/scrambled.npz")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the docs are")
    arguments = parser.parse_args()
    digits = list(load_benchmark(Benchmark.load("digits"), BenchOptions(cache=None, progress=False)))
    (drawn,) = (network for network in digits if network.name == NETWORK)
    for name, picture in {"idea-images": id_and_ood(drawn), **pictures.idea(drawn), **concept_figures()}.items():
        write(arguments.docs / "img" / f"{name}.svg", picture)
    draw_methods(drawn, arguments.docs / "img" / "methods")
    path = arguments.docs / "methods" / "measured.json"
    real = [load_folder(folder, arguments.proxy) for folder in find_folders(arguments.features)]
    rows = measure(digits, real=False) + measure(real, real=True)
    if not arguments.features and path.is_file():
        rows += [row for row in json.loads(path.read_text(encoding="utf-8")) if row["real"]]
    lines = ",\n".join(json.dumps(row) for row in rows)
    write(path, f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
