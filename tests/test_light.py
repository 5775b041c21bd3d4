"""The light part works without torch, numba, pandas, scikit-learn and matplotlib; the rest says how to install them.

The exported file and the guard file are made by hand, so these tests also run where no torch is installed.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import oodshape
from oodshape.core import files
from oodshape.guard.export.edit_onnx import add_checksum, make_field

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
SIDE = 4


def run(code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    source = str(Path(oodshape.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "COLUMNS": "200", "NO_COLOR": "1"}
    line = [sys.executable, "-c", BLOCKED + code, *words]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


def call(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run("from oodshape.cli import main; main()", *words, cwd=cwd)


def number(field: int, value: int) -> bytes:
    return bytes([field << 3, value])


def tensor(name: str, values: np.ndarray) -> bytes:
    kind = {"f": 1, "i": 7}[values.dtype.kind]
    sizes = b"".join(number(1, size) for size in values.shape)
    return sizes + number(2, kind) + make_field(8, name.encode()) + make_field(9, values.tobytes())


def value_info(name: str, kind: int, sizes: tuple[int | str, ...]) -> bytes:
    each = [number(1, size) if isinstance(size, int) else make_field(2, size.encode()) for size in sizes]
    shape = make_field(2, b"".join(make_field(1, size) for size in each))
    return make_field(1, name.encode()) + make_field(2, make_field(1, number(1, kind) + shape))


def node(kind: str, inputs: str, output: str, attribute: bytes = b"") -> bytes:
    names = [make_field(1, name.encode()) for name in inputs.split()] + [make_field(2, output.encode())]
    setting = [make_field(5, attribute)] if attribute else []
    return make_field(1, b"".join([*names, make_field(4, kind.encode()), *setting]))


def write_exported(path: Path, calibration: np.ndarray, alpha: float = 0.1) -> None:
    """images [N, 3, 4, 4] -> logits [N, 2], their sum as the score, and whether it reaches the threshold."""
    limit = float(np.sort(calibration)[int(alpha * (len(calibration) + 1)) - 1])
    weight = np.zeros((3 * SIDE * SIDE, 2), np.float32)
    weight[:, 1] = 1 / len(weight)
    constants = {"shape": np.array([-1, len(weight)]), "weight": weight, "axis": np.array([1])}
    constants |= {"threshold": np.array([limit], np.float32)}
    graph = node("Reshape", "images shape", "flat") + node("MatMul", "flat weight", "logits")
    graph += node("ReduceSum", "logits axis", "score", make_field(1, b"keepdims") + number(3, 0) + b"\xa0\x01\x02")
    graph += node("GreaterOrEqual", "score threshold", "accepted") + make_field(2, b"graph")
    graph += b"".join(make_field(5, tensor(name, values)) for name, values in constants.items())
    graph += make_field(11, value_info("images", 1, ("N", 3, SIDE, SIDE))) + make_field(
        11, value_info("threshold", 1, (1,))
    )
    for name, kind, sizes in (("logits", 1, ("N", 2)), ("score", 1, ("N",)), ("accepted", 9, ("N",))):
        graph += make_field(12, value_info(name, kind, sizes))
    preprocessing = {
        "mean": [0, 0, 0],
        "std": [1, 1, 1],
        "resize": [SIDE, SIDE],
        "crop": None,
        "interpolation": "nearest",
    }
    metadata = {
        "oodshape": oodshape.__version__,
        "method": "sum",
        "preprocessing": json.dumps(preprocessing),
        "exif": "ignored",
        "classes": '["dark", "light"]',
        "alpha": str(alpha),
        "calibration": base64.b64encode(np.sort(calibration).astype("<f4").tobytes()).decode(),
        "threshold": json.dumps([limit]),
    }
    entries = [make_field(14, make_field(1, k.encode()) + make_field(2, v.encode())) for k, v in metadata.items()]
    model = number(1, 8) + make_field(7, graph) + make_field(8, number(2, 18)) + b"".join(entries)
    path.write_bytes(add_checksum(model))


def write_guard(path: Path) -> None:
    slots = {slot: {"type": "Identity"} for slot in ("shape", "head")}
    detector = {"type": "Detector", "method": {}, **slots, "scorer": {"type": "LogSoftmax"}, "fingerprint": "ab"}
    detector |= {"n_train": 200, "calibration": {"tensor": "detector.calibration"}, "alpha": 0.1, "groups": None}
    about = dict.fromkeys(("preprocessing", "sanity", "samples", "baseline", "native"))
    about |= dict.fromkeys(["network", "model", "weights", "head", "version"], "") | {
        "held_out": True,
        "upright": False,
    }
    about |= {"type": "About", "classes": ["dark", "light"], "method": "msp", "precision": "float32"}
    header = {
        "method": "Method()",
        "head": "ab",
        "value": json.dumps(detector | {"classes": 2}),
        "guard": json.dumps(about),
    }
    files.save_file(path, "detector", header, {"detector.calibration": np.linspace(-1, -0.01, 99).astype(np.float32)})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light")
    write_exported(folder / "guarded.onnx", np.linspace(0.5, 1, 19))
    write_guard(folder / "guard.safetensors")
    (folder / "recent").mkdir()
    for level in range(60):
        PIL.Image.new("RGB", (9, 7), (level, level, level)).save(folder / "recent" / f"{level:02}.png")
    PIL.Image.new("RGB", (9, 7), (3, 3, 3)).save(folder / "recent" / "copy.png")
    (folder / "scores.parquet").touch()
    between = np.linspace(-1, -0.01, 99) - 0.005  # i of the guard's calibration scores are lower than number i
    rows = (f"{i}.png,a,{between[i]},{(i + 1) / 100},{str(i > 9).lower()},\n" for i in np.arange(99) * 37 % 99)
    (folder / "scores.csv").write_text("path,class,score,p_value,accepted,error\n" + "".join(rows))
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
        ("inspect guard.safetensors", "expected false rejection rate <= 10 %"),
        ("inspect guard.safetensors --json", '"calibration_images": 99'),
        ("watch scores.csv --guard guard.safetensors --page watch.html", "99 images"),
        ("decide scores.csv --out flagged.csv", "99 images: "),
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
    # the third smallest of 60 levels, floor(0.05 * 61) = 3
    assert (said["alpha"], said["calibration_images"]) == (0.05, 60)
    assert said["threshold"] == pytest.approx(2 / 255)
    code = (
        "from oodshape import GuardedFile; g = GuardedFile('new.onnx'); print([v.accepted for v in g(sys.argv[1:])])\n"
    )
    code += "s = g._session.run(['accepted'], {'images': g.prepared(sys.argv[1:])}); print(s[0].tolist())"  # the graph
    assert run(code, "recent/01.png", "recent/02.png", cwd=place).stdout == 2 * "[False, True]\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "nothing would change"),
        ("--images nowhere", "there is no file or folder nowhere"),
        ("--alpha 0.001", "alpha = 0.001 needs at least 999 held-out images, got 19"),
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
