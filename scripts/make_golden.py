"""Write one small file of every format with this version: python scripts/make_golden.py tests/golden/VERSION.

Later versions must read the files of tests/golden. The figures in verdicts.json are compared within rounding.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from oodshape import METHODS, Classifier, Features, GuardedFile, Watch, export_onnx
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS

MODEL = ("--model", "zoo:digits-convnet")


def run(*words: str | Path, cwd: Path) -> None:
    """Run a command of oodshape."""
    subprocess.run([sys.executable, "-m", "oodshape", "--quiet", *map(str, words)], check=True, cwd=cwd)


def write_images(folder: Path) -> None:
    """Write training images in class folders, a calibration set, and a few images to score."""
    sets = load_digits_sets()
    for name, images in (
        ("val", sets["test"].images[:60]),
        ("new", [*sets["test"].images[60:63], *sets["photos"].images[:3]]),
    ):
        (folder / name).mkdir()
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / name / f"{number:02}.png")
    for number, (image, label) in enumerate(zip(sets["train"].images[:200], sets["train"].labels, strict=False)):
        (folder / "train" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / "train" / str(label) / f"{number:03}.png")


def tiny_net() -> nn.Module:
    """Make a network of two layers whose weights depend on no random generator."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 8), nn.ReLU(), nn.Linear(8, 3)).requires_grad_(False)
    for parameter in net.parameters():
        parameter.copy_(torch.sin(torch.arange(parameter.numel(), dtype=torch.float64) * 12.9).reshape(parameter.shape))
    return net


def main(out: Path) -> None:
    """Write all files."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_images(place)
        (out / "new").mkdir(exist_ok=True)
        for image in (place / "new").iterdir():
            (out / "new" / image.name).write_bytes(image.read_bytes())
        target = out.resolve()
        guard, auto = target / "guard.safetensors", target / "auto.safetensors"
        fit = ("fit", *MODEL, "--images", "train", "--calibrate", "val", "--cache", "none")
        run(*fit, "--method", "optfs-e", "--out", guard, cwd=place)
        run(*fit, "--out", auto, cwd=place)
        run("score", "--guard", auto, *MODEL, "--images", "new", "--out", target / "auto.csv", cwd=place)
        run(
            "collect",
            *MODEL,
            "--images",
            "train",
            "--method",
            "energy",
            "--hold-out",
            "--out",
            target / "part.safetensors",
            cwd=place,
        )
        for kind in ("csv", "jsonl", "parquet"):
            run("score", "--guard", guard, *MODEL, "--images", "new", "--out", target / f"scores.{kind}", cwd=place)
        bench = ("digits", "--models", "digits-convnet", "--methods", "msp", "--limit", "30")
        run("bench", *bench, "--cache", "none", "--out", "bench", cwd=place)
        (out / "bench").mkdir(exist_ok=True)
        for name in ("results.json", "scores.parquet"):
            (out / "bench" / name).write_bytes((place / "bench" / name).read_bytes())
    Watch.begin(alpha=0.05, n_calibration=99).after(np.tile([0.01, 0.3, 0.5, 0.9], 30)).save(out / "watch.safetensors")
    net, images = tiny_net(), DIGITS.batch(load_digits_sets()["test"].images[:40])
    outputs = Classifier(net)(images)
    known = Features.from_arrays(outputs.features.numpy(), outputs.head)
    detector = METHODS["energy"].fit(known).calibrate(known)
    export_onnx(
        net, detector, out / "guarded.onnx", images, preprocessing=DIGITS, classes=["a", "b", "c"], method="energy"
    )
    verdicts = GuardedFile(out / "guarded.onnx")(sorted(map(str, (out / "new").iterdir())))
    (out / "verdicts.json").write_text(json.dumps([verdict._asdict() for verdict in verdicts], indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
