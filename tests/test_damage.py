"""Damaged files of every kind are refused with one line, or read as what they were; the fuzzer damages most of them."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load, save

from data import features
from oodshape import METHODS, Detector, InputError, Moments, Watch
from oodshape.core import files
from oodshape.core.files import read_npz, reading

FUZZ = Path(__file__).parents[1] / "fuzz"
KINDS = (
    *("guard", "watch", "results", "scores-csv", "scores-jsonl", "scores-parquet", "part"),
    *("cache", "collected", "cifar", "mnist", "svhn", "imagenet", "lists", "toml", "npz"),
    *("weights", "onnx", "body"),
)
Change = Callable[[dict[str, Any], dict[str, np.ndarray]], None]


@pytest.fixture(scope="module")
def run() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FUZZ))
    import run as module

    yield module
    sys.path.remove(str(FUZZ))


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_of_each_kind_end_well(run: ModuleType, name: str, tmp_path: Path) -> None:
    assert tuple(run.every()) == KINDS
    kind = run.every()[name]()
    known: dict[int, bytes] = {}
    inputs = 4 if name == "onnx" else 8 if name in ("guard", "collected") else 40  # those take long to read
    said = {run.outcome(kind, number, 1, tmp_path / "files", known) for number in range(inputs)}
    assert said <= {"refused", "read"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "d.safetensors"
    METHODS["optfs-e"].fit(features(60)).calibrate(np.arange(99.0), 0.05).save(path)
    return path.read_bytes()


def rewritten(data: bytes, change: Change, *, sealed: bool) -> bytes:
    """The file with its header and tensors changed; `sealed`: with the checksum that belongs to them."""
    size = int.from_bytes(data[:8], "little")
    said = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["oodshape"])
    tensors = load(data)
    change(said, tensors)
    if sealed:
        said[files.CHECKSUM] = files.checksum(said, tensors)
    return save(tensors, {"oodshape": json.dumps(said)})


def test_a_checksum_cannot_be_left_out(saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    path.write_bytes(rewritten(saved, lambda said, _: said.pop("checksum"), sealed=False))
    with pytest.raises(InputError, match="its checksum is missing"):
        Detector.load(path)


def field(name: str, value: Any) -> Change:
    def change(said: dict[str, Any], _: dict[str, np.ndarray]) -> None:
        said["value"] = json.dumps(json.loads(said["value"]) | {name: value})

    return change


def tensor(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda _, tensors: tensors.update({name: np.ascontiguousarray(make(tensors[name]))})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (tensor("detector.calibration", lambda a: np.full_like(a, -np.inf)), "NaN or infinite"),
        (tensor("detector.calibration", lambda a: a[::-1]), "calibration must ascend"),
        (tensor("detector.calibration", lambda a: a[:18]), "needs at least 19 held-out images"),
        (tensor("detector.calibration", lambda a: a[:, None]), "must have 1 axes"),
        (field("alpha", 1e-9), "needs at least 999999999 held-out images"),
        (field("alpha", -0.5), r"alpha must lie in \(0, 1\)"),
        (field("alpha", None), "come together"),
        (field("alpha", "0.05"), "damaged"),
        (field("n_train", 0), "n_train must be at least 1"),
        (field("classes", 2.5), "classes must be a whole number"),
        (field("shape", {"type": "Energy"}), "shape must be a Shape"),
        (field("shape", {"tensor": "nothing"}), "KeyError"),
        (tensor("detector.shape.theta", lambda a: np.where(a == a.max(), np.nan, a)), "theta holds a NaN"),
        (tensor("detector.shape.edges", lambda a: a * np.inf), "NaN|edges"),
        (tensor("detector.shape.theta", lambda a: a[:-1]), "edges"),
    ],
)
def test_values_that_no_fit_gives_are_refused(saved: bytes, tmp_path: Path, change: Change, said: str) -> None:
    path = tmp_path / "d.safetensors"
    path.write_bytes(rewritten(saved, change, sealed=True))
    with np.errstate(invalid="ignore"), pytest.raises(InputError, match=said) as caught:
        Detector.load(path)
    assert "d.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fitted_arrays_must_be_those_of_the_head() -> None:
    train = features(60)
    detector = METHODS["she"].fit(train)
    cut = replace(detector.scorer, means=detector.scorer.means[:, :-1])  # type: ignore[union-attr,attr-defined]
    with pytest.raises(InputError, match="Pattern has .* for M, the head"):
        replace(detector, scorer=cut).score(train)


@pytest.mark.parametrize(
    "change", [{"counts": np.negative}, {"keys": np.flip}, {"impacts": lambda a: a * np.nan}], ids=["-", "order", "nan"]
)
def test_statistics_that_no_features_give_are_refused(change: dict[str, Any]) -> None:
    stats = features(60).stats
    with pytest.raises(InputError):
        replace(stats, **{name: make(getattr(stats, name)) for name, make in change.items()})


@pytest.mark.parametrize(
    ("name", "change"),
    [("counts", lambda a: a + 1), ("bank", lambda a: a[:, :-1]), ("scatter", lambda a: a.astype(np.float32))],
)
def test_moments_that_no_features_give_are_refused(name: str, change: Any) -> None:
    made = Moments.of(features(60), frozenset(["counts", "bank", "scatter"]))
    with pytest.raises(InputError, match=name):
        replace(made, parts=made.parts | {name: change(made.parts[name])})


def test_a_watch_of_another_promise_is_refused(tmp_path: Path) -> None:
    watch = Watch.begin(alpha=0.05, n_calibration=199).after([0.5, 0.01])
    for change in ({"alpha": 0.04}, {"delta": 0.1}, {"n_calibration": 20}, {"rejection": watch.middle}):
        with pytest.raises(InputError, match="is allowed|cannot be kept"):
            replace(watch, **change)
    with pytest.raises(InputError, match="cannot be yes"):
        replace(watch.rejection, hits=3)
    with pytest.raises(InputError, match="add up to 1"):
        replace(watch.rejection, shares=watch.rejection.shares * 2)  # type: ignore[operator]


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), RecursionError("deep"), MemoryError(), EOFError(), UnicodeDecodeError("utf-8", b"", 0, 1, "")],
)
def test_whatever_a_reader_raises_is_one_line_with_the_files_name(error: Exception) -> None:
    with pytest.raises(InputError, match=r"a\.bin is damaged \(") as caught, reading("a.bin", "give another"):
        raise error
    assert str(caught.value).endswith("; give another")


def test_a_full_disk_is_one_line_with_the_files_name(tmp_path: Path) -> None:
    for error in (OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: No space left")):
        told = pytest.raises(InputError, match=r"cannot write .*out\.bin: .*No space left")
        with told, files.replacing(tmp_path / "out.bin"):
            raise error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["cifar", "mnist", "svhn"])
def test_a_data_set_that_was_cut_off_is_refused(run: ModuleType, name: str, tmp_path: Path) -> None:
    kind = run.every()[name]()
    for number, files_of_one in enumerate(kind.seeds):
        for path, content in files_of_one.items():
            folder, size = tmp_path / str(number), len(content)
            folder.mkdir(exist_ok=True)
            for each, whole in files_of_one.items():
                (folder / each).write_bytes(whole)
            kind.read(folder)
            for cut in {*range(0, size, 19 + size // 40), *range(max(size - 400, 0), size, 19)}:
                (folder / path).write_bytes(content[:cut])
                with pytest.raises(InputError, match="damaged|truncated|cannot be read|no IDX file|records of"):
                    kind.read(folder)


def test_an_array_cannot_vanish_from_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, images=np.zeros((2, 4, 4), np.uint8), labels=np.arange(2))
    data = bytearray(path.read_bytes())
    first, second = data.find(b"PK\x01\x02"), data.rfind(b"PK\x01\x02")
    data[first + 32 : first + 34] = (len(data) - 22 - second).to_bytes(2, "little")  # the length of its comment
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"set\.npz.*swallowed"):
        read_npz(path)
