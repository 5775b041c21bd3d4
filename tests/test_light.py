"""The light part works without torch, numba, pandas, scikit-learn and matplotlib; the rest says how to install them.

The exported file and the guard file are golden ones, so these tests also run where no torch is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import oodshape
from oodshape import GuardedFile
from oodshape.images.datasets.digits import load_digits_sets

GOLDEN = Path(__file__).parent / "golden" / "0.2.0"

HEAVY = ("torch", "numba", "pandas", "sklearn", "matplotlib", "threadpoolctl", "pyarrow")
BLOCKED = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""
MODULES = (
    "core.values core.options metrics.registry metrics.conformal metrics.detection metrics.sequential_test "
    "images.decode.read images.decode.preprocessing images.sources.open_images images.datasets.catalog "
    "guard.describe guard.export.guarded_file guard.export.recalibrate guard.watch.watch guard.scoring.decide "
    "guard.scoring.score_formats guard.scoring.review guard.service.settings methods.records methods.describe "
    "networks.model_names report.pages.watch_page cli.all_commands"
)


def run(code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    source = str(Path(oodshape.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "COLUMNS": "200", "NO_COLOR": "1"}
    line = [sys.executable, "-c", BLOCKED + code, *words]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


def call(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run("from oodshape.cli import main; main()", *words, cwd=cwd)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light")
    for name in ("guarded.onnx", "guard.safetensors", "scores.csv"):
        shutil.copy(GOLDEN / name, folder)
    (folder / "recent").mkdir()
    for number, image in enumerate(load_digits_sets()["test"].images[:60]):
        PIL.Image.fromarray(image).save(folder / "recent" / f"{number:02}.png")
    shutil.copy(folder / "recent" / "03.png", folder / "recent" / "copy.png")
    (folder / "scores.parquet").touch()
    return folder


def test_light_modules_need_nothing_heavy(place: Path) -> None:
    imports = "".join(f"import oodshape.{name}\n" for name in (*MODULES.split(), "__main__"))
    done = run(imports, "--version", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--help", "calibrate"),
        ("methods", "optfs-e"),
        ("methods react", "ReAct"),
        ("models", "digits-vit"),
        ("data", "openood-cifar10"),
        ("inspect guard.safetensors", "expected false rejection rate <= 5 %"),
        ("inspect guard.safetensors --json", '"calibration_images": 60'),
        ("watch scores.csv --guard guard.safetensors --page watch.html", "6 images"),
        ("decide scores.csv --out flagged.csv", "6 images: "),
    ],
)
def test_light_commands_run(words: str, expected: str, place: Path) -> None:
    done = call(*words.split(), cwd=place)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        "fit --model zoo:digits-vit --images recent --out new.safetensors",
        "score --guard guard.safetensors --model zoo:digits-vit --images recent",
        "bench",
        "watch scores.parquet --guard guard.safetensors",
    ],
)
def test_heavy_commands_say_how_to_install_what_is_missing(words: str, place: Path) -> None:
    done = call(*words.split(), cwd=place)
    assert done.returncode == 2
    assert re.fullmatch(r"error: .+ needs \w+: pip install 'oodshape\[(torch|parquet)\]'\n", done.stderr)


def test_heavy_names_say_how_to_install_what_is_missing(place: Path) -> None:
    done = run("from oodshape import Guard", cwd=place)
    assert re.search(r"\nImportError: oodshape.Guard needs \w+: pip install 'oodshape\[torch\]'\n$", done.stderr)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fit --model zoo:digits-vit --images nowhere --out x", "there is no file or folder nowhere"),
        ("fit --model zoo:digts-vit --images recent --out x", "did you mean digits-vit"),
        ("fit --model resnet --images recent --out x", "'resnet' names no model"),
        ("fit --model zoo:digits-vit --images recent --out x --method raect", "did you mean react?"),
        ("fit --model zoo:digits-vit --weights w.pt --images recent --out x", "no file w.pt"),
        ("score --guard no.safetensors --model zoo:digits-vit --images recent", "no file no.safetensors"),
        ("check --guard guard.safetensors --model m:n --id recent --ood nowhere", "folder nowhere"),
        ("calibrate guard.safetensors --alpha 10", "got 10; did you mean 0.1?"),
        ("fit --model zoo:digits-vit --images recent --out x --preprocessing size=3", "size"),
        ("score --guard no --model m:n --images recent --shard 1/2 --out s.csv", "--shard needs a Parquet file"),
        ("score --guard guard.safetensors --model m:n --images recent --out s.parquet", "oodshape[parquet]"),
        ("bench --methods raect", "did you mean react?"),
        ("methods raect", "did you mean react?"),
        ("serve nothing.onnx", "there is no file nothing.onnx"),
        ("watch nothing.csv --guard guard.safetensors", "there is no file nothing.csv"),
    ],
)
def test_wrong_names_are_refused_before_torch_is_imported(words: str, expected: str, place: Path) -> None:
    done = call(*words.split(), cwd=place)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert expected in done.stderr


def test_an_exported_file_is_run_and_calibrated_again(place: Path) -> None:
    pytest.importorskip("onnxruntime")
    words = "calibrate guarded.onnx --images recent --alpha 0.05 --out new.onnx"
    done = call(*words.split(), cwd=place)
    assert done.returncode == 0, done.stderr
    assert "n = 60" in done.stdout  # the copy counts once
    said = json.loads(call("inspect", "new.onnx", "--json", cwd=place).stdout)
    assert (said["alpha"], said["calibration_images"]) == (0.05, 60)
    paths = sorted((place / "recent").glob("[0-9]*.png"))
    scores = [verdict.score for verdict in GuardedFile(place / "guarded.onnx")(paths)]
    near = np.argsort(scores)[1:3]  # floor(0.05 * 61) = 3: the third smallest is the threshold
    assert said["threshold"] == pytest.approx(scores[near[1]])
    code = (
        "from oodshape import GuardedFile; g = GuardedFile('new.onnx'); print([v.accepted for v in g(sys.argv[1:])])\n"
    )
    code += "s = g._session.run(['accepted'], {'images': g.prepared(sys.argv[1:])}); print(s[0].tolist())"  # the graph
    assert run(code, *(str(paths[row]) for row in near), cwd=place).stdout == 2 * "[False, True]\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "nothing would change"),
        ("--images nowhere", "there is no file or folder nowhere"),
        ("--alpha 0.001", "alpha = 0.001 needs at least 999 held-out images, got 40"),
        ("--images recent --provider TPU", "onnxruntime has no provider 'TPU' here; it has"),
        ("--images recent --per-class", "leave --model, --per-class and --one-threshold out"),
    ],
)
def test_calibrating_an_exported_file_refuses(words: str, expected: str, place: Path) -> None:
    pytest.importorskip("onnxruntime")
    before = (place / "guarded.onnx").read_bytes()
    done = call("calibrate", "guarded.onnx", *words.split(), cwd=place)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert expected in done.stderr
    assert (place / "guarded.onnx").read_bytes() == before
