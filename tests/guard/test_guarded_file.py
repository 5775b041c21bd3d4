"""An exported guard without torch: images are prepared as the library does, pixel by pixel, and judged alike."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import oodshape
from bombs import png
from oodshape import Guard, GuardedFile, InputError, Preprocessing
from oodshape.images.decode.read import read_image
from oodshape.images.sources.listing import one_by_one

for library in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(library)

MODEL = "zoo:digits-convnet"
HOW = [
    Preprocessing((0.4, 0.5, 0.6), (0.3, 0.2, 0.25), 20, 16, "bicubic"),
    Preprocessing((0.4,), (0.3,), (12, 20), None, "bilinear"),
    Preprocessing((0.1, 0.2, 0.3), (0.9, 0.8, 0.7), None, 24, "nearest"),
    Preprocessing((0.5,), (0.5,)),
]


@pytest.fixture(scope="module")
def exported(guard: Guard, digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "guarded.onnx"
    guard.export(path, MODEL, images=digits / "val")
    return path


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Images of every kind that cameras and people make."""
    root, rng = tmp_path_factory.mktemp("odd"), np.random.default_rng(0)
    color = PIL.Image.fromarray(rng.integers(256, size=(23, 37, 3), dtype=np.uint8))
    deep = PIL.Image.fromarray(rng.integers(65536, size=(31, 19), dtype=np.uint16))
    pictures = {mode: color.convert(mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB")}
    ends = {"CMYK": "jpg", "YCbCr": "jpg", "LAB": "tiff"}
    paths = {}
    for mode, picture in pictures.items():
        paths[mode] = root / f"{mode}.{ends.get(mode, 'png')}"
        picture.save(paths[mode])
    deep.save(root / "16.png")
    deep.save(root / "16.tiff")
    see_through = color.convert("P")
    see_through.save(root / "see_through.png", transparency=3)
    see_through.save(root / "palette.gif")
    PIL.Image.new("RGB", (1, 1), "red").save(root / "tiny.png")
    PIL.Image.new("L", (90, 1), 200).save(root / "thin.png")
    for turn in range(1, 9):
        exif = PIL.Image.Exif()
        exif[0x0112] = turn
        color.save(root / f"turned{turn}.jpg", exif=exif)
    return {path.name: path for path in root.iterdir()}


@pytest.fixture(scope="module")
def hostile(odd: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files that are no image, too large, too thin, or cut."""
    root = tmp_path_factory.mktemp("hostile")
    whole = odd["RGB.png"].read_bytes()
    files = {"empty": b"", "text": b"no image", "cut": whole[:200], "head": whole[:30], "zeros": bytes(5000)}
    for name, data in files.items():
        (root / f"{name}.png").write_bytes(data)
    png(root / "bomb.png", 20_000, 20_000)
    png(root / "thin.png", 60_000, 3)
    PIL.Image.fromarray(np.ones((4, 4), np.float32)).save(root / "float.tiff")
    return {path.name: path for path in root.iterdir()}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("upright", [False, True])
def test_pixels_are_those_of_the_library(
    how: Preprocessing, upright: bool, odd: dict[str, Path], exported: Path
) -> None:
    """As `score` prepares them: read by the listing, with torch; here from bytes and from files, without."""
    guarded = GuardedFile(exported)
    guarded.preprocessing, guarded.exif = how, "turned upright" if upright else "ignored"
    assert len(odd) == 23
    for name, path in odd.items():
        listing = one_by_one(str(path))
        (pair,) = listing.pairs()
        image = listing.read(pair, upright=upright)
        wanted = how.pixels(image)
        for given in (path, str(path), path.read_bytes()):
            np.testing.assert_array_equal(guarded.pixels(given), wanted, err_msg=name)
        ours, theirs = guarded.prepared([path]), how.batch([image]).numpy()
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=name)


def test_hostile_files_are_refused_as_by_the_library(hostile: dict[str, Path], exported: Path) -> None:
    guarded = GuardedFile(exported)
    for name, path in hostile.items():
        with pytest.raises(InputError) as library:
            read_image(path, upright=False)
        with pytest.raises(InputError) as own:
            guarded.pixels(path)
        assert str(own.value) == str(library.value), name
        with pytest.raises(InputError, match="an image of [0-9]+ bytes "):
            guarded.pixels(path.read_bytes())


@pytest.mark.parametrize("per_class", [False, True])
def test_verdicts_are_those_of_the_guard(per_class: bool, guard: Guard, digits: Path, tmp_path: Path) -> None:
    if per_class:
        guard = guard.calibrate(digits / "val", MODEL, alpha=0.2, per_class=True, progress=False)
        assert len(guard.detector.own_scores) > 1
    guard.export(tmp_path / "guarded.onnx", MODEL, images=digits / "val")
    guarded, live = GuardedFile(tmp_path / "guarded.onnx", threads=1), guard.attach(MODEL)
    files = [*sorted((digits / "test").iterdir())[:30], *sorted((digits / "letters").iterdir())[:30]]
    close = 0
    for ours, theirs in zip(guarded(files), live([str(file) for file in files]), strict=True):
        assert (ours.label, ours.class_index) == (theirs.label, theirs.class_index)
        assert ours.score == pytest.approx(theirs.score, abs=1e-3)
        assert ours.threshold == pytest.approx(theirs.threshold)
        assert ours.p_value == pytest.approx(theirs.p_value, abs=0.08 if per_class else 0.02)
        close += ours.p_value == theirs.p_value and ours.accepted == theirs.accepted
    assert close >= 55  # a score that differs in its last bits may change sides
    assert guarded(files[0]) == guarded(files)[0]
    assert guarded(PIL.Image.open(files[0])) == guarded(files[0])


def test_what_is_no_guarded_file(digits: Path, exported: Path, tmp_path: Path) -> None:
    import onnx

    with pytest.raises(InputError, match="there is no file"):
        GuardedFile(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(InputError, match="is no ONNX file, or a damaged one"):
        GuardedFile(tmp_path / "text.onnx")
    model = onnx.load(exported)
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "plain.onnx")
    with pytest.raises(InputError, match="does not say how images are prepared"):
        GuardedFile(tmp_path / "plain.onnx")
    buffer = BytesIO()
    PIL.Image.new("L", (20, 16)).save(buffer, "png")
    with pytest.raises(InputError, match="is 20 x 16 pixels, and this network only accepts 16 x 16"):
        GuardedFile(exported)(buffer.getvalue())


WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numba", "pandas", "sklearn", "matplotlib"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import json
from oodshape import GuardedFile, Watch
verdict = GuardedFile(sys.argv[1])(sys.argv[2])
print(json.dumps(verdict), Watch.begin(alpha=0.05, n_calibration=150).after([verdict.p_value]).seen)
import oodshape.cli.app
"""


def test_neither_torch_nor_the_rest_is_needed(exported: Path, digits: Path) -> None:
    file = str(min((digits / "test").iterdir()))
    words = [sys.executable, "-c", WITHOUT, str(exported), file]
    source = str(Path(oodshape.__file__).parents[1])
    run = subprocess.run(words, capture_output=True, text=True, check=False, env={"PYTHONPATH": source})
    assert run.returncode == 0, run.stderr
    said, _, seen = run.stdout.rpartition(" ")
    assert json.loads(said) == json.loads(json.dumps(GuardedFile(exported)(file)))
    assert seen.strip() == "1"
