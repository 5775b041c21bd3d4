"""Crafted files and names: one line each, at the cost of the same command on a valid file."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.numpy import load, save

from commands import call
from data import features
from oodshape import METHODS, Detector, InputError, Preprocessing
from oodshape.core import files
from oodshape.core.values import Value
from oodshape.guard.scoring.score_formats import read_scores
from oodshape.images.decode.limits import Limits
from oodshape.images.decode.prefetch import prefetch
from oodshape.images.decode.read import open_image
from oodshape.images.sources.open_images import open_images, stream_images
from oodshape.methods.fusion import Component, Fusion
from oodshape.methods.slots import FittedScore
from oodshape.networks.weights import load_weights
from oodshape.networks.zoo import build

MAIN = "from oodshape.cli import main; main()"


@pytest.mark.parametrize("classes", [10**7, 10**12])
def test_weights_of_any_size_in_a_small_file(classes: int, tmp_path: Path) -> None:
    """A tensor with a stride of 0 has any size; a network of as many classes would be built for it."""
    net = build("digits-convnet")
    state = net.state_dict()
    state["head.weight"] = torch.zeros(1).expand(classes, state["head.weight"].shape[1])
    state["head.bias"] = torch.zeros(1).expand(classes)
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(InputError, match="over the limit of"):
        load_weights(net, tmp_path / "w.pth")


def test_weights_in_a_tar_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "w.pth", "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(InputError, match="is a tar archive"):
        load_weights(build("digits-convnet"), tmp_path / "w.pth")


@pytest.mark.skipif(sys.platform == "win32", reason="has no such files")
@pytest.mark.parametrize("line", ["/dev/zero", "file:///dev/zero", "fifo.png", "sub/../fifo.png"])
def test_devices_and_pipes_in_a_list(line: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.png")
    (tmp_path / "sub").mkdir()
    (tmp_path / "list.txt").write_text(f"{line}\n")
    listing = stream_images(str(tmp_path / "list.txt"))
    (pair,) = listing.pairs()
    with pytest.raises(InputError, match="is a device, a pipe or a socket"):
        listing.read(pair, upright=False)


def test_remote_files_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    Image.new("L", (64, 64)).save(tmp_path / "a.png")
    listing = stream_images(f"file://{tmp_path}/a.png")
    monkeypatch.setattr(Limits, "_now", Limits(inflated=50))
    with pytest.raises(InputError, match="has more than 50 bytes"):
        listing.read(next(listing.pairs()), upright=False)


@pytest.mark.parametrize("dictionary", [True, False])
def test_parquet_cells_of_zeros(dictionary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = pa.array([bytes(1 << 22)] * (64 if dictionary else 32), pa.binary())
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({"image": cells}), path, compression="zstd", use_dictionary=dictionary)
    monkeypatch.setattr(Limits, "_now", Limits(inflated=(200 if dictionary else 700) << 20))
    if dictionary:  # its pages have one copy: rows are read in runs, until those read reach the limit
        read = open_images(str(path))
        for row, said in ((63, "limit of inflated"), (6, "is not a readable image"), (40, "is not a readable")):
            with pytest.raises(InputError, match=f"b.parquet/{row} .*{said}"):
                read[row]
        assert sum(kept.nbytes for *_, kept in read._cells._runs) <= 1 << 26
    else:
        with pytest.raises(InputError, match="over the limit of"):
            open_images(str(path))


def test_a_parquet_column_that_contradicts_its_statistics(tmp_path: Path) -> None:
    """pyarrow ends the process if it is asked for the size of such a column."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({"image": [b"a"] * 30}), path)
    path.write_bytes(path.read_bytes().replace(b"\x25\x02\x18\x05image", b"\x25\x00\x18\x05image"))  # no nulls
    for read in (lambda: open_images(str(path))[0], lambda: next(read_scores(str(path)))):
        with pytest.raises(InputError, match=r"b\.parquet"):
            read()
    pq.write_table(pa.table({"image": [b"a"]}).select([]), path)  # without any column
    assert not list(read_scores(str(path)))


def test_guards_of_abstract_types_and_absurd_sizes(tmp_path: Path) -> None:
    METHODS["energy"].fit(features(50)).calibrate(features(60)).save(tmp_path / "g.safetensors")
    data = (tmp_path / "g.safetensors").read_bytes()
    header = json.loads(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["oodshape"])
    tensors, value = load(data), json.loads(header["value"])
    kinds = [{"scorer": {**value["scorer"], "type": name}} for name in sorted(Value.known)]
    for change in [*kinds, {"classes": 10**12}]:
        said = header | {"value": json.dumps(value | change)}
        said["checksum"] = files.checksum(said, tensors)
        (tmp_path / "x.safetensors").write_bytes(save(tensors, {"oodshape": json.dumps(said)}))
        refused = change.get("scorer", {}).get("type") in (None, "Score", "FittedScore", "FittedHead")
        with pytest.raises(InputError, match="x.safetensors") if refused else suppress(InputError):
            Detector.load(tmp_path / "x.safetensors")
    for sizes in ({"crop": 10**7}, {"crop": 4097}, {"resize": 10**9}, {"resize": (10**6, 10**6)}):
        with pytest.raises(InputError, match="the limit of pixels"):
            Preprocessing((0.5,), (0.5,), **sizes)  # type: ignore[arg-type]


def test_guards_of_many_components(tmp_path: Path) -> None:
    detector = METHODS["energy"].fit(features(50)).calibrate(features(60))
    part = Component.of_detector("energy", detector, detector.score(features(60)))
    with pytest.raises(InputError, match="a fusion has at most 64 components, got 65"):
        Fusion((part,) * 65, (), sums=part.reference, minima=part.reference)
    nested: FittedScore = part
    for _ in range(8):
        nested = Fusion((replace(part, scorer=nested),) * 3, (), sums=part.reference, minima=part.reference)
    replace(detector, scorer=nested).save(tmp_path / "g.safetensors")
    with pytest.raises(InputError, match="has more than 1,000 parts"):
        Detector.load(tmp_path / "g.safetensors")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"classes": 10**9}, "1000000000 classes"),
        ({"n_train": -1}, "n_train must be at least 1"),
        ({"scorer": {"type": "Evil"}}, "unknown type 'Evil'"),
        ({"calibration": [3.0, 1.0, 2.0] * 20}, "calibration must be an array"),
        ({"calibration": {"tensor": "descending"}}, "calibration must ascend"),
    ],
)
def test_inspect_refuses_what_score_refuses(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "g.safetensors"
    shutil.copy(Path(__file__).parent / "golden" / "0.2.0" / "guard.safetensors", path)
    header, tensors = files.load_file(path, "detector")
    del header[files.CHECKSUM]
    value = json.loads(header["value"])
    tensors["descending"] = tensors[value["calibration"]["tensor"]][::-1].copy()
    files.save_file(path, "detector", header | {"value": json.dumps(value | change)}, tensors)
    done = call("inspect", str(path), cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_unreadable_images_do_not_stay_in_memory() -> None:
    """A cell of a Parquet dictionary that stood in 64 rows of a batch took 64 times its size."""
    tracemalloc.start()
    gray = Preprocessing((0.5,), (0.5,))
    [(_, found)] = prefetch(lambda row: open_image(io.BytesIO(bytes(1 << 20)), upright=False), gray, [range(40)], 0)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(found) == 40
    assert kept < 4 << 20


def test_score_files_whose_dictionary_stands_in_many_rows(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = pa.array(["a" * 60_000] * 5000).dictionary_encode()  # 300 MB
    pq.write_table(pa.table({"path": path, "p_value": [0.5] * 5000}), tmp_path / "s.parquet", store_schema=False)
    with pytest.raises(InputError, match="s.parquet has .* bytes and inflates to 300,"):
        next(read_scores(str(tmp_path / "s.parquet")))


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "-"])
def test_long_lines_of_lists(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "path\n" + "a" * 70_000
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.csv").write_text(text)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    with pytest.raises(InputError, match="has a line of more than 65,536 characters"):
        list(stream_images(name if name == "-" else str(tmp_path / name)).pairs())


@pytest.mark.skipif(sys.platform != "linux", reason="a shell and /dev/full")
@pytest.mark.parametrize(("end", "status"), [(">&-", 0), (">&- 2>&-", 0), ("> /dev/full", 1)])
def test_standard_output_that_cannot_be_written(end: str, status: int) -> None:
    words = f"{sys.executable} -c '{MAIN}' models {end}"
    done = subprocess.run(words, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert len(done.stderr.splitlines()) == (status != 0)
    assert "Traceback" not in done.stderr
