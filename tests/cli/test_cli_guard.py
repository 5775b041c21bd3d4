"""fit, score, inspect and check as a user runs them; in this process, where a new one would tell nothing more."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import GUARD, MODEL, call
from folders_of_digits import write_digits, write_odd_files
from oodshape import Guard, Watch
from oodshape.cli.calibrate import UNKNOWN
from oodshape.guard.describe import GuardContents

NETS = """from oodshape.networks.zoo import MODELS, build
def boom():
    return later
def softmax():
    net = build("digits-convnet")
    net.register_forward_hook(lambda net, images, logits: logits.softmax(1))
    return net, MODELS["digits-convnet"].native
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of digits, and a guard fitted on them by the command line."""
    root = write_digits(tmp_path_factory.mktemp("cli"))
    words = ("--images", "train", "--calibrate", "val", "--method", "optfs-e", "--cache", "none")
    done = call("fit", *MODEL, *words, "--out", "guard.safetensors", cwd=root)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "expected false rejection rate <= 5 %" in lines[-4]
    assert lines[-3].startswith("sanity: accepts ")
    assert lines[-2] == "guard: guard.safetensors"
    begin = "next: oodshape score --guard guard.safetensors --model zoo:digits-convnet --images "
    assert lines[-1].startswith(begin)
    assert done.stderr == ""
    return root


def test_fit_without_calibration_says_so_everywhere(place: Path) -> None:
    words = ("--images", "train", "--method", "gen", "--cache", "cache", "--out", "loose.safetensors")
    words += ("--preprocessing", "resize=16x16")
    done = call("fit", *MODEL, *words, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "preprocessing: stretched to exactly 16 x 16" in done.stdout
    assert "no guarantee: calibrated on training images" in done.stdout
    assert "--calibrate" in done.stdout
    assert "no guarantee: calibrated on training images" in call("inspect", "loose.safetensors", cwd=place).stdout
    said = json.loads(call("fit", *MODEL, *words, "--json", cwd=place).stdout)
    assert (said["method"], said["held_out"]) == ("gen", False)
    assert said["calibration_images"] == pytest.approx(80, rel=0.2)  # about a fifth: each image decides for itself
    assert call("fit", *MODEL, *words, "--quiet", cwd=place).stdout == ""


def test_fit_auto_says_what_it_chose_and_why(place: Path) -> None:
    words = ("--images", "train", "--calibrate", "val", "--cache", "none", "--out", "auto.safetensors", "--per-class")
    done = call("fit", *MODEL, *words, cwd=place)
    assert done.returncode == 0, done.stderr
    line = r"auto uses (.+), fused by .+\nused: best 5 of 23 candidates by .+\((.+)\); always added: (.+); proxies"
    [(names, best, added)] = re.findall(line, done.stdout)
    assert names.split(", ") == re.findall(r"(\S+) [\d.]+ %", best) + added.split(", ")  # GEN is not among the best
    assert "classes have a threshold of their own" in done.stdout


def test_fit_warns_in_one_line_each(place: Path) -> None:
    names = place / "classes.txt"
    names.write_text("\n".join(["zero", "one", "two", "three", "four", "five", "six", "seven"]))
    (place / "list.txt").write_text("\n".join(["nowhere.png", *(str(p) for p in (place / "train").rglob("*.png"))]))
    words = ("--images", "list.txt", "--method", "ash-s", "--classes", "classes.txt", "--cache", "none")
    done = call("fit", "--model", "zoo:digits-vit", *words, "--out", "warned.safetensors", cwd=place)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("warning: ") for line in lines)
    assert "nowhere.png" in lines[0]
    assert "never negative" in lines[1]
    assert json.loads(call("inspect", "warned.safetensors", "--json", cwd=place).stdout)["class_names"][1] == "one"


def test_score_to_every_place(place: Path) -> None:
    done = call("score", *GUARD, "--images", "letters", cwd=place)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert len(rows) == 60
    assert list(rows[0]) == ["path", "class", "score", "p_value", "accepted", "error"]
    assert rows[0]["path"] == os.path.join("letters", "0000.png")
    assert rows[0]["class"].startswith("digit ")
    assert "60 images:" in done.stderr
    again = call("score", *GUARD, "--images", "letters/*.png", "--out", "s.csv", "--page", "g.html", cwd=place)
    assert again.returncode == 0, again.stderr
    assert (place / "s.csv").read_text() == done.stdout
    assert "wrote g.html" in again.stdout
    assert "data:image/" in (place / "g.html").read_text()
    lines = call("score", *GUARD, "--images", "letters", "--json", "--quiet", cwd=place)
    assert [json.loads(line)["path"] for line in lines.stdout.splitlines()] == [row["path"] for row in rows]
    assert lines.stderr == ""
    piped = call("score", *GUARD, "--images", "-", "--quiet", cwd=place, stdin="letters/0003.png\nletters/0001.png\n")
    paths = [line.split(",")[0] for line in piped.stdout.splitlines()]
    assert paths == ["path", "letters/0003.png", "letters/0001.png"]


def test_files_that_cannot_be_read_have_rows_and_an_exit_status(place: Path) -> None:
    expected = write_odd_files(place / "odd")
    done = call("score", *GUARD, "--images", "odd", "--out", "odd.csv", cwd=place)
    assert done.returncode == 3
    assert f"{len(expected)} could not be read; odd" in done.stdout
    with (place / "odd.csv").open() as file:
        rows = {Path(row["path"]).name: row for row in csv.DictReader(file)}
    for name, error in expected.items():  # whole files are of another size than those of the fit
        assert (error or "the network's input is [1, ") in rows[name]["error"]
    said = call("score", *GUARD, "--images", "odd", "--out", "odd.jsonl", "--json", cwd=place)
    assert said.returncode == 3
    assert json.loads(said.stdout)["unreadable"] == len(expected)


def test_an_empty_folder_writes_nothing(place: Path, tmp_path: Path) -> None:
    done = call("score", *GUARD, "--images", str(tmp_path), cwd=place)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_check_prints_and_draws(place: Path) -> None:
    words = ("check", *GUARD, "--id", "test", "--ood", "letters", "--ood", "letters/0*.png")
    done = call(*words, "--out", "check.html", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\tMSP\t") == 3
    assert "protective: accepts" in done.stdout.lower()
    assert "consistent with the guarantee" in done.stdout
    assert "<svg" in (place / "check.html").read_text()
    said = json.loads(call(*words, "--json", cwd=place).stdout)
    assert len(said["sets"]) == 6
    assert done.stderr == ""
    same = call("check", *GUARD, "--id", "val", "--ood", "letters", cwd=place)
    assert same.stderr.startswith("warning: ")
    assert "150 of the 150 ID images are known to have been used" in same.stderr
    assert "this says nothing about the guarantee" in same.stdout
    assert "consistent with the guarantee" not in same.stdout
    assert said["guaranteed"][0] <= said["rejected_id"] <= said["guaranteed"][1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", *MODEL, "--images", "nowhere", "--out", "g"), "there is no file or folder nowhere"),
        (("fit", *MODEL, "--images", "train", "--out", "no/g"), "the folder no does not exist"),
        (("fit", *MODEL, "--images", "train", "--out", "train"), "cannot write train: it is a folder; name a file"),
        (("fit", *MODEL, "--images", "train", "--out", "/proc/x"), "cannot write /proc/x: "),
        (("score", *GUARD, "--images", "test", "--out", "/dev/null"), "/dev/null: it is no ordinary file"),
        (("score", *GUARD, "--images", "test", "--page", "test"), "cannot write test: it is a folder"),
        (("export", *GUARD, "--out", GUARD[1]), f"--out would overwrite {GUARD[1]}, which is given for guard too"),
        (("score", *GUARD, "--images", "list.csv", "--out", "./list.csv"), "list.csv, which is given for images too"),
        (("score", *GUARD, "--images", "test", "--out", "s.csv", "--page", "s.csv"), "s.csv, which is given for"),
        (("watch", "list.csv", "--alpha", "0.05", "--n-calibration", "99", "--state", "val"), "val: it is a folder"),
        (("fit", "--model", "resnet", "--images", "train", "--out", "g"), "'resnet' names no model; a model is timm:"),
        (("fit", *MODEL, "--images", "train", "--method", "magic", "--out", "g"), "no method is called 'magic'"),
        (("fit", *MODEL, "--images", "train", "--alpha", "5", "--out", "g"), "did you mean 0.05?"),
        (("fit", *MODEL, "--images", "train", "--calibrate", "train", "--out", "g"), "are training images too"),
        (("fit", *MODEL, "--images", "train", "--preprocessing", "mean=a", "--out", "g"), "got 'mean=a'"),
        (("fit", *MODEL, "--images", "train", "--preprocessing", "size=64", "--out", "g"), "got 'size=64'"),
        (("score", *GUARD, "--images", "nowhere"), "there is no file or folder nowhere"),
        (("score", *GUARD, "--images", "test", "--out", "s.xls"), "must end in .csv, .jsonl or .parquet"),
        (
            ("score", *GUARD[:2], "--model", "zoo:digits-vit", "--images", "test"),
            "fitted for the network zoo:digits-conv",
        ),
        (("inspect", "nothing.safetensors"), "there is no file nothing.safetensors"),
        (("inspect", "not.onnx"), "not.onnx has no checksum of oodshape at its end"),
        (("inspect", "plain.safetensors"), "is not an oodshape file; give the file that `oodshape fit` wrote"),
        (("score", "--guard", "list.csv", *MODEL, "--images", "test"), "give the file that `oodshape fit` wrote"),
        (("inspect", "state.safetensors"), "is an oodshape file, but holds watch, not detector; give the file that"),
        (("score", *GUARD[:2], "--model", "my.pt", "--images", "test"), "my.pt is a file of weights"),
        (("fit", "--model", "netofcli:boom", "--images", "train", "--out", "g"), "netofcli:boom failed: NameError"),
        (
            ("score", *GUARD[:2], "--model", "netofcli:softmax", "--images", "test"),
            "head='head' does not give the logits",
        ),
        (("check", *GUARD, "--id", "test", "--ood", "nowhere"), "there is no file or folder nowhere"),
        (("bench", "digitz"), "no benchmark is called 'digitz'; did you mean digits?"),
        (("bench", "--models", "VGG"), "digits has no model 'VGG'"),
        (("bench", "--methods", "magic"), "no method is called 'magic'"),
        (("bench", "cifar10", "--weights", "nowhere"), "no network of cifar10 has weights here; DenseNet101 needs"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], message: str, place: Path) -> None:
    from safetensors.numpy import save_file

    (place / "not.onnx").write_bytes(b"onnx" * 100)
    (place / "list.csv").write_text("path,score\n")
    (place / "netofcli.py").write_text(NETS)
    save_file({"weight": np.zeros(3)}, place / "plain.safetensors")
    Watch.begin(alpha=0.05, n_calibration=99).save(place / "state.safetensors")
    (place / "__pycache__").mkdir(exist_ok=True)
    before = sorted(place.iterdir())
    done = call(*words, cwd=place)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(place.iterdir()) == before


def test_calibrate_sets_another_threshold(place: Path) -> None:
    for name in ("mine", "kept"):
        shutil.copy(place / "guard.safetensors", place / f"{name}.safetensors")
    before = Guard.load(place / "mine.safetensors")
    files = sorted(place.iterdir())
    done = call("calibrate", "mine.safetensors", "--images", "test", "--alpha", "0.02", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    first, guarantee, note, last = done.stdout.splitlines()
    after = Guard.load(place / "mine.safetensors")
    assert (after.detector.alpha, after.detector.scorer) == (0.02, before.detector.scorer)
    said = [GuardContents.of(guard).threshold_text for guard in (after, before)]
    assert first == f"threshold: {said[0]}, before {said[1]}"
    assert "expected false rejection rate <= 2 % (split conformal; 99 % range for n = 100 " in guarantee
    assert (note, last) == (UNKNOWN, "guard: mine.safetensors")
    words = ("--images", "test", *MODEL, "--alpha", "0.1", "--per-class", "--out", "mine.safetensors", "--json")
    said = json.loads(call("calibrate", "kept.safetensors", *words, cwd=place).stdout)
    assert (said["alpha"], said["calibration_images"], said["held_out"]) == (0.1, 100, True)
    assert said["classes_with_own_threshold"] > 0
    assert said["threshold"] is None
    shown = call("inspect", "mine.safetensors", cwd=place).stdout
    low, high = min(said["thresholds_per_class"]), max(said["thresholds_per_class"])
    assert f"{low:.6g} to {high:.6g}, by predicted class: images with a lower score" in " ".join(shown.split())
    assert Guard.load(place / "kept.safetensors") == before
    assert sorted(place.iterdir()) == files  # nothing is left next to them


def test_a_guard_runs_in_the_precision_that_it_was_fitted_in(place: Path) -> None:
    how = ("--device", "cpu", "--batch-size", "50", "--workers", "1")
    words = ("--images", "train", "--calibrate", "val", "--method", "energy", "--cache", "none")
    done = call("fit", *MODEL, *words, *how, "--precision", "bfloat16", "--out", "low.safetensors", cwd=place)
    assert "--device cpu --images" in done.stdout.splitlines()[-1]
    found = {}
    for precision in ((), ("--precision", "float32")):
        words = ("score", "--guard", "low.safetensors", *MODEL, "--images", "test", *how, *precision)
        done = call(*words, cwd=place)
        found[precision] = np.array([float(row["score"]) for row in csv.DictReader(done.stdout.splitlines())])
        warned = "warning: this guard was fitted in bfloat16 and runs in float32" in done.stderr
        assert warned == bool(precision)
    own, exact = found.values()
    assert 0 < np.abs(own - exact).max() < 0.1 * np.abs(exact).max()
