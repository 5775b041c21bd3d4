"""--device, --precision, --batch-size and --workers on the commands that run a network."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from commands import GUARD, MODEL, call
from folders_of_digits import write_digits
from oodshape import Guard
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.networks.zoo import build

HOW = ("--device", "cpu", "--batch-size", "50", "--workers", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of digits, and a guard that was fitted in bfloat16 by the command line."""
    root = write_digits(tmp_path_factory.mktemp("cli"), train=160, val=60, test=20, ood=20)
    words = (
        "--images",
        "train",
        "--calibrate",
        "val",
        "--method",
        "optfs-e",
        "--cache",
        "none",
        "--precision",
        "bfloat16",
    )
    done = call("fit", *MODEL, *words, *HOW, "--out", "guard.safetensors", cwd=root)
    assert done.returncode == 0, done.stderr
    assert "--device cpu --images" in done.stdout.splitlines()[-1]
    return root


def scores(place: Path, *words: str) -> tuple[list[float], str]:
    done = call("score", *GUARD, "--images", "test", *HOW, *words, cwd=place)
    assert done.returncode == 0, done.stderr
    return [float(row["score"]) for row in csv.DictReader(done.stdout.splitlines())], done.stderr


def test_a_guard_runs_in_the_precision_that_it_was_fitted_in(place: Path) -> None:
    assert Guard.load(place / "guard.safetensors").about.precision == "bfloat16"
    own, said = scores(place)
    assert "warning" not in said
    exact, warned = scores(place, "--precision", "float32")
    assert "warning: this guard was fitted in bfloat16 and runs in float32" in warned
    gap = np.abs(np.array(own) - np.array(exact))
    assert 0 < gap.max() < 0.1 * np.abs(exact).max()


def test_check_takes_the_same_options(place: Path) -> None:
    done = call("check", *GUARD, "--id", "test", "--ood", "letters", *HOW, cwd=place)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["fit", "score", "check", "bench", "study"])
def test_a_device_that_is_not_here_is_one_line(place: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oodshape.networks.device._count", lambda kind: 0)
    images = {"fit": ("--images", "train", "--out", "x.safetensors"), "score": ("--images", "test")}
    words = images.get(command, ("--id", "test", "--ood", "letters"))
    words = {"bench": ("digits",), "study": ("all",)}.get(command, (*(GUARD if command != "fit" else MODEL), *words))
    done = call(command, *words, "--device", "cuda", cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: torch ")
    assert "sees no cuda device here, but got 'cuda'; use auto or cpu" in done.stderr


def test_a_network_that_was_never_trained_is_a_warning(place: Path) -> None:
    torch.manual_seed(0)
    net = build("digits-convnet")
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.reset_parameters()
    images = {"images": place / "train", "calibrate": place / "val"}
    with pytest.warns(UserWarning, match="as chance would .*: was it ever trained, and were its weights loaded"):
        Guard.fit(net, **images, method="msp", preprocessing=DIGITS, progress=False, workers=0)
