"""`make demo`: fit a guard on the bundled digits, check it on OOD images, then compare the paper's methods and auto.

Run it as `python examples/demo.py [--methods all] [--out out/demo]`. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from PIL import Image

from oodshape.benchmark.results import RunResults
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.methods.records import RECORDS
from oodshape.report.method_styles import display_name
from oodshape.report.pages.benchmark_page import write_benchmark_page
from oodshape.report.pages.html import html_table

MODEL = "zoo:digits-vit"
OOD = ("digits89", "letters", "photos", "textures", "gaussian", "uniform")
IMAGES = 200  # of each OOD set
STORED = Path(__file__).parents[1] / "docs" / "methods" / "measured.json"
NETWORKS = {
    "cifar10_densenet101": "DenseNet101 (CIFAR-10)",
    "imagenet_deit_tiny": "DeiT-tiny (ImageNet)",
    "imagenet_efficientnet_lite0": "EfficientNet-Lite0 (ImageNet)",
}
OTHERS = ("optfs", "mds", "vim", "knn")


def write_images(folder: Path) -> None:
    """Write training images and a calibration set in class folders, test images and OOD sets."""
    sets = load_digits_sets()
    test, labels = sets["test"].images, sets["test"].labels
    parts = {"train": (sets["train"].images, sets["train"].labels)}
    parts |= {name: (test[start::2], labels[start::2]) for start, name in enumerate(("val", "test"))}
    parts |= {name: (sets[name].images[:IMAGES], None) for name in OOD}
    for name, (images, classes) in parts.items():
        for number, image in enumerate(images):
            place = folder / name / ("" if classes is None else str(classes[number]))
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{number}.png")


def real_networks() -> str:
    """A table of stored results: each method on three pretrained networks, the lowest mean FPR95 first."""
    found = [row for row in json.loads(STORED.read_text(encoding="utf-8")) if row["real"]]
    names = [name for name in RECORDS if all(name in row["methods"] for row in found)]
    names.sort(key=lambda name: sum(row["methods"][name][0] for row in found))
    cells = [[f"{error:.1f} / {area:.1f}" for error, area in (row["methods"][name] for row in found)] for name in names]
    rows = [[display_name(name), *figures] for name, figures in zip(names, cells, strict=True)]
    heads = [NETWORKS.get(row["network"], row["network"]) for row in found]
    best = [display_name(min(names, key=lambda name: row["methods"][name][0])) for row in found]
    leads = "; ".join(f"{head}: {name}" for head, name in zip(heads, best, strict=True))
    said = f"FPR95 / AUROC in percent, means over OOD sets. Lowest FPR95: {leads}. No method wins on every network."
    return f"<p>{said}</p>{html_table(['method', *heads], rows, 'Three pretrained networks')}"


def run(*words: str | Path, capture: bool = True) -> str:
    """Run a command of oodshape, shown as a user would type it; return what it prints."""
    shown = " ".join(str(word) for word in ("oodshape", *words))
    print(f"\n$ {shown}", flush=True)
    command = [sys.executable, "-m", "oodshape", *map(str, words)]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE if capture else None).stdout or ""


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    parser.add_argument(
        "--methods", default="paper", help="paper (the paper's methods, four others and auto), all, or names"
    )
    given = parser.parse_args()
    out, images = given.out, given.out / "images"
    write_images(images)
    guard, model = out / "guard.safetensors", ("--model", MODEL)
    fit = ("fit", *model, "--images", images / "train", "--calibrate", images / "val", "--out", guard, "--json")
    fitted = json.loads(run(*fit))
    outside = [word for name in OOD for word in ("--ood", images / name)]
    check = (
        "check",
        "--guard",
        guard,
        *model,
        "--id",
        images / "test",
        *outside,
        "--out",
        out / "check.html",
        "--json",
    )
    found = json.loads(run(*check))
    paper = [record.id for record in RECORDS.values() if record.block in ("plain", "shaping", "optfs")]
    names = ",".join([*paper, *OTHERS, "auto"]) if given.methods == "paper" else given.methods
    chosen = () if names == "all" else ("--methods", names)
    run("bench", "digits", *chosen, "--out", out, capture=False)
    write_benchmark_page(RunResults.load(out), out / "report.html", real=("Real networks", real_networks()))

    rows = {(row["set"], row["detector"]): row for row in found["sets"]}
    test = rows["test", "guard"]
    method = f"{fitted['method']} ({', '.join(map(display_name, fitted['components']))})"
    print(f"\nfitted: {method} on {MODEL}, calibrated on {fitted['calibration_images']} images")
    rate, alpha = 100 * found["rejected_id"] / test["images"], 100 * fitted["alpha"]
    print(f"false rejection rate: {rate:.1f} % of {test['images']} test images (alpha {alpha:g} %)")
    print(f"{'OOD images rejected':<22}{'guard':>9}{'MSP':>9}")
    for name in OOD:
        shares = [100 * (1 - rows[name, each]["accepted_share"]["value"]) for each in ("guard", "softmax")]
        print(f"  {name:<20}" + "".join(f"{share:>7.1f} %" for share in shares))
    print("On these tiny networks distance methods (MDS, ViM, KNN) win. OptFS has the lowest FPR95 on")
    print("EfficientNet-Lite0 (ImageNet): see Real networks on the benchmark page.")
    print(f"check page:     {(out / 'check.html').resolve().as_uri()}")
    print(f"benchmark page: {(out / 'report.html').resolve().as_uri()}")


if __name__ == "__main__":
    main()
