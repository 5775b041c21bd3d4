"""Formats that another library reads too: a damaged file is refused, or gives what that library gives."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from oodshape.core.errors import InputError
from oodshape.guard.export.edit_onnx import check_model_fields
from oodshape.images.sources.archives import ParquetImages, TarImages

FILES = 120


def damaged(whole: bytes, rng: Random) -> bytes:
    """A file with some changed, repeated, removed or swapped bytes."""
    data = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, size = rng.randrange(len(data)), rng.choice((1, 2, 4, 8, 64))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + size] = bytes(rng.choice((0, 1, 0x7F, 0x80, 0xFF)) for _ in data[at : at + size])
            case 2:
                del data[at : at + size]
            case _:
                data[at:at] = data[rng.randrange(len(data)) :][:size]
        if not data:
            return bytes(whole)
    return bytes(data)


def compare(whole: bytes, path: Path, ours: Callable[[Path], Any], theirs: Callable[[Path], Any]) -> None:
    """Whatever our reader gives must be what the other one gives; both kinds of end must occur."""
    rng, read = Random(7), 0
    for number in range(FILES):
        path.write_bytes(damaged(whole, rng) if number else whole)
        try:
            found = ours(path)
        except InputError:
            continue
        read += 1
        np.testing.assert_equal(found, theirs(path), err_msg=f"file {number}")
    assert 1 < read < FILES


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_parquet_rows_are_those_of_pyarrow(codec: str, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    cells = [rng.bytes(int(size)) for size in rng.integers(0, 40, 70)]
    pq.write_table(
        pa.table({"image": cells, "label": list(range(70))}), tmp_path / "x", row_group_size=33, compression=codec
    )  # as many writers do, without checksums of pages

    def ours(path: Path) -> list[bytes]:
        images = ParquetImages(str(path))
        return [images.encoded_bytes(row) for row in range(len(images))]

    compare(
        (tmp_path / "x").read_bytes(),
        tmp_path / "rows.parquet",
        ours,
        lambda path: pq.read_table(path, columns=["image"])["image"].to_pylist(),
    )


def test_tar_members_are_those_of_tarfile(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, size in (("a.png", 5), ("n" * 150 + ".png", 600), ("b/c.png", 0), ("d.png", 512)):
            member = tarfile.TarInfo(name)
            member.size = size
            tar.addfile(member, io.BytesIO(Random(size).randbytes(size)))

    def theirs(path: Path) -> list[bytes]:
        with tarfile.open(path) as tar:
            kept = [each for each in tar if each.isreg() and not each.name.startswith(".")]
            return [tar.extractfile(each).read() for each in kept if each.name.lower().endswith(".png")]  # type: ignore[union-attr]

    def ours(path: Path) -> list[bytes]:
        images = TarImages(str(path))
        return [images.encoded_bytes(index) for index in range(len(images))]

    compare(buffer.getvalue(), tmp_path / "x.tar", ours, theirs)


def test_data_in_other_files_is_found_where_onnx_finds_it() -> None:
    """Also in damaged models: what the library reads as such data is refused here."""
    onnx = pytest.importorskip("onnx")
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    inside = onnx.helper.make_tensor("t", 1, [2], [1.0, 2.0])
    outside = onnx.TensorProto(name="u", data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="x")
    inner = onnx.helper.make_graph([onnx.helper.make_node("Constant", [], ["c"], value=outside)], "g", [], [])
    node = onnx.helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    whole = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [], [inside, outside])).SerializeToString()
    rng, found = Random(7), 0
    for number in range(20 * FILES):
        data = damaged(whole, rng) if number else whole
        try:
            model = onnx.load_from_string(data)
        except Exception:  # of protobuf, which has two implementations
            continue
        if any(map(uses_external_data, _get_all_tensors(model))):
            found += 1
            with pytest.raises((InputError, LookupError)):
                check_model_fields(data)
    assert found > FILES
