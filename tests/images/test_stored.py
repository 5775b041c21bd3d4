"""Images in tar files, Parquet columns and behind addresses are those of a folder; an address opens bytes alone."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from oodshape.core.errors import InputError
from oodshape.images.decode.read import Unreadable
from oodshape.images.duplicates import find_copies
from oodshape.images.sources.archives import ParquetImages, TarImages
from oodshape.images.sources.open_images import in_column, open_images, stream_images
from oodshape.images.sources.storage import as_decodable

pa = pytest.importorskip("pyarrow", reason="Parquet is read by pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="Parquet is read by pyarrow")
fsspec = pytest.importorskip("fsspec", reason="addresses are read by fsspec")


def encoded(number: int) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def shade(image: Any) -> int:
    return int(np.asarray(image)[0, 0, 0])


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def write_folder(root: Path) -> None:
    for name in ("cats/a.png", "cats/b.png", "cats/more/c.png", "dogs/a.png", ".hidden/x.png", "cats/.x.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(encoded(len(name)))
    (root / "dogs/notes.txt").write_text("no image")


def test_tars_give_their_images_in_order_with_labels(tmp_path: Path) -> None:
    write_tar(tmp_path / "01.tar", {"b.png": encoded(3), "b.cls": b"7"})
    write_tar(tmp_path / "00.tar", {"x.cls": b"1", "x.jpg": encoded(1), "d/y.PNG": encoded(2), "x.json": b"{}"})
    images = open_images(f"{tmp_path}/*.tar")
    assert isinstance(images, TarImages)
    assert [shade(images[row]) for row in range(3)] == [1, 2, 3]
    assert images.labels.tolist() == [1, -1, 7]
    assert [pair[0] for pair in stream_images(f"{tmp_path}/*.tar").pairs()] == [
        f"{tmp_path}/{name}" for name in ("00.tar/x.jpg", "00.tar/d/y.PNG", "01.tar/b.png")
    ]


@pytest.mark.parametrize("cut", [100, 511, 700, 1536])
def test_a_tar_that_ends_early_is_one_line_or_an_unreadable_image(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, {"x.png": encoded(1), "y.png": encoded(2)})
    whole = open_images(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(Unreadable, match="a.tar/y.png cannot be read"):
        whole[1]
    with pytest.raises(InputError, match="a.tar is no tar file, or ends early"):
        open_images(path)


@pytest.mark.parametrize("place", [1024 + 148, 1024, 2048])
def test_a_damaged_header_does_not_hide_the_images_after_it(tmp_path: Path, place: int) -> None:
    path = tmp_path / "a.tar"
    write_tar(path, {f"{name}.png": encoded(1) for name in "abcd"})
    data = bytearray(path.read_bytes())
    data[place : place + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(InputError, match="a.tar is no tar file, or ends early .after"):
        open_images(path)


def test_wrong_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b.tar").write_bytes(b"no tar file" * 100)
    (tmp_path / "c.tgz").write_bytes(b"")
    write_tar(tmp_path / "d.tar", {"notes.txt": b"nothing"})
    write_tar(tmp_path / "f.tar", {"in.tar": b"", "a.png": encoded(1)})  # what is after it is no part of it
    for name, said in (
        ("b.tar", "b.tar is no tar file"),
        ("c.tgz", "c.tgz is compressed.*unpack it"),
        ("d.tar", "no image lies in .*d.tar"),
        ("e.tar", "there is no file .*e.tar"),
        ("f.tar", "f.tar is no tar file, or ends early"),
        ("none-*.tar", "no file matches"),
    ):
        with pytest.raises(InputError, match=said):
            open_images(f"{tmp_path}/{name}")


def test_a_parquet_column_by_row(tmp_path: Path) -> None:
    for name, numbers in (("0", range(50)), ("1", range(50, 190))):
        cells = [encoded(number) for number in numbers]
        table = pa.table({"label": list(numbers), "picture": cells})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=45)
    images = in_column(f"{tmp_path}/*.parquet", "picture")
    assert isinstance(images, ParquetImages)
    assert [shade(images[row]) for row in range(190)] == list(range(190))
    order = np.random.default_rng(0).permutation(190).tolist()
    assert [shade(images[row]) for row in order] == order
    assert images.labels.tolist() == list(range(190))
    assert images.called(51) == f"{tmp_path}/1.parquet/1"
    assert images.encoded_bytes(51) == encoded(51)


def test_cells_as_hugging_face_has_them(tmp_path: Path) -> None:
    cells = [{"bytes": encoded(9), "path": "a.png"}, None, {"bytes": b"no image", "path": None}]
    pq.write_table(pa.table({"image": cells, "label": ["cat", None, "dog"]}), tmp_path / "a.parquet")
    images = open_images(tmp_path / "a.parquet")
    assert shade(images[0]) == 9
    assert images.labels.tolist() == [-1, -1, -1]
    with pytest.raises(Unreadable, match="a.parquet/1 has no image in the column image"):
        images[1]
    with pytest.raises(Unreadable, match="a.parquet/2 is not a readable image"):
        images[2]


def test_wrong_tables_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": ["text"], "other": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes(b"no table")
    with pytest.raises(InputError, match="has no column picture; there are image, other"):
        in_column(str(tmp_path / "a.parquet"), "picture")
    with pytest.raises(InputError, match="the column image of .*a.parquet holds string"):
        open_images(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="b.parquet has no row"):
        open_images(tmp_path / "b.parquet")
    with pytest.raises(InputError, match="c.parquet is damaged"):
        open_images(tmp_path / "c.parquet")
    with pytest.raises(InputError, match="a column is for Parquet files"):
        in_column(str(tmp_path), "image")


def addresses(root: Path) -> dict[str, str]:
    """The folder behind two kinds of address."""
    store = fsspec.filesystem("memory")
    store.rm("/images", recursive=True) if store.exists("/images") else None
    store.put(f"{root}/", "/images/", recursive=True)
    return {"file": f"file://{root}", "memory": "memory://images"}


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_an_address_gives_what_the_folder_gives(tmp_path: Path, kind: str) -> None:
    write_folder(tmp_path / "images")
    folder, remote = open_images(tmp_path / "images"), open_images(addresses(tmp_path / "images")[kind])
    assert [shade(remote[row]) for row in range(len(remote))] == [shade(folder[row]) for row in range(len(folder))]
    assert remote.labels.tolist() == folder.labels.tolist()
    assert remote.classes == ("cats", "dogs")
    assert remote.identities.tolist() == folder.identities.tolist()
    assert find_copies(remote, folder) == [remote.called(row) for row in range(len(remote))]


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_archives_tables_globs_and_single_images_behind_an_address(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "images"
    write_folder(root)
    write_tar(root / "a.tar", {"x.png": encoded(1), "y.png": encoded(2)})
    pq.write_table(pa.table({"image": [encoded(5), encoded(6)]}), root / "a.parquet")
    address = addresses(root)[kind]
    for given, shades in {
        "*.tar": [1, 2],
        "a.parquet": [5, 6],
        "cats/*.png": [10, 10],
        "cats/more/c.png": [15],
    }.items():
        images = open_images(f"{address}/{given}")
        assert [shade(images[row]) for row in range(len(images))] == shades, given


def test_offline_no_address_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODSHAPE_OFFLINE", "1")
    with pytest.raises(InputError, match="--offline or OODSHAPE_OFFLINE forbids"):
        as_decodable("http://192.0.2.1/a.png")


def test_what_is_not_behind_an_address_is_one_line() -> None:
    with pytest.raises(InputError, match="no image lies in memory://nowhere"):
        open_images("memory://nowhere")
    with pytest.raises(InputError, match="there is no file memory://nowhere.tar"):
        open_images("memory://nowhere.tar")
    with pytest.raises(InputError, match="nosuch://x cannot be opened"):
        open_images("nosuch://x")


def test_a_list_may_hold_addresses(tmp_path: Path) -> None:
    write_folder(tmp_path / "images")
    address = addresses(tmp_path / "images")["memory"]
    (tmp_path / "list.txt").write_text(f"{address}/dogs/a.png 3\nimages/cats/a.png\n{address}/gone.png\n")
    images = open_images(tmp_path / "list.txt")
    assert [shade(images[row]) for row in (0, 1)] == [10, 10]
    assert images.labels.tolist() == [3, -1, -1]
    with pytest.raises(Unreadable, match="memory://images/gone.png cannot be read"):
        images[2]


def test_a_changed_file_changes_the_fingerprint(tmp_path: Path) -> None:
    write_folder(tmp_path / "images")
    address = addresses(tmp_path / "images")["memory"]
    before = open_images(address).fingerprint
    assert open_images(address).fingerprint == before
    fsspec.filesystem("memory").pipe("/images/dogs/a.png", encoded(77))
    assert open_images(address).fingerprint != before
    assert open_images(address, upright=True).fingerprint != open_images(address).fingerprint


@pytest.mark.parametrize(
    "address",
    [
        "reference://a.png::file://{file}",
        "REFERENCE://a.png::file://{file}",
        "simplecache::reference://a.png::file://{file}",
        "file://{file}::reference://a.png",
        "zip://a.png::file://{file}",
        "dir://a.png::file://{file}",
        "github://owner:repository@main/a.png",
    ],
)
def test_file_systems_that_read_more_than_bytes_are_refused(address: str, tmp_path: Path) -> None:
    """In fsspec 2026.1 and earlier the templates of a reference file run code; it is refused with every version."""
    file = tmp_path / "evil.json"
    code = f"{{{{ cycler.__init__.__globals__.os.mkdir('{tmp_path}/CODE_RAN') }}}}"
    generated = {"key": code, "url": "file:///dev/null", "dimensions": {"i": [1]}}
    file.write_text(json.dumps({"version": 1, "refs": {"a.png": "x"}, "gen": [generated]}))
    given = address.format(file=file)
    (tmp_path / "list.txt").write_text(f"{given}\n")
    with pytest.raises(InputError, match="cannot be opened|there is no file|cannot be read") as caught:
        open_images(tmp_path / "list.txt")[0]
    assert "\n" not in str(caught.value)
    if "://" in given.partition("::")[0]:
        with pytest.raises(InputError, match="addresses begin with file://"):
            as_decodable(given)
    assert not (tmp_path / "CODE_RAN").exists()
