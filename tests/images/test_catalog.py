"""The data sets of the benchmarks where their users have them: ImageNet's forms, the catalog, OpenOOD's lists."""

from __future__ import annotations

import gzip
import hashlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from dataset_files import archive, idx, write
from oodshape import InputError
from oodshape.images.datasets.catalog import CATALOG, DatasetStatus, list_status, open_dataset
from oodshape.images.datasets.imagenet import imagenet_val
from oodshape.images.sources.image_set import limit_images
from openood_files import write_openood

WNIDS = ["n02119789", "n02100735", "n01440764"]  # by ILSVRC id; sorted, they are 2, 1, 0


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Images 1, 2 and 4, so that numbers and places differ."""
    folder = tmp_path / "val"
    folder.mkdir()
    for number in (1, 2, 4):
        Image.new("L" if number == 2 else "RGB", (8, 6), number).save(
            folder / f"ILSVRC2012_val_{number:08d}.JPEG", "JPEG"
        )
    return folder


IDS = "ILSVRC2012_validation_ground_truth.txt"
KAGGLE = "LOC_val_solution.csv"


def solution(rows: dict[int, str], classes: int = 1000) -> bytes:
    """Kaggle's labels of some images, and of one image of each class, from number 1001 on."""
    rows = rows | {1000 + n: f"n{20_000_000 + n:08d}" for n in range(classes - len(set(rows.values())))}
    lines = [f"ILSVRC2012_val_{n:08d},{wnid} 1 2 3 4 {wnid} 5 6 7 8 " for n, wnid in rows.items()]
    return "\n".join(["ImageId,PredictionString", *lines]).encode()


def write_devkit(folder: Path, ids: bytes, fox: str = WNIDS[0]) -> Path:
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    rows = [(3, WNIDS[2], "tench", 0), (1, fox, "kit fox", 0), (4, "n00001740", "entity", 3), (2, WNIDS[1], "x", 0)]
    write(folder / IDS, ids)
    savemat(folder / "meta.mat", {"synsets": np.array(rows, kinds)[:, None]})
    return folder / "meta.mat"


def test_flat_imagenet_with_the_labels_of_kaggle(flat: Path) -> None:
    write(flat.parent / KAGGLE, solution({4: WNIDS[2], 1: WNIDS[0], 2: WNIDS[1]}))
    data = imagenet_val(flat)
    assert data.labels.tolist() == [2, 1, 0]
    assert [(data[i].mode, data[i].size) for i in range(3)] == [("RGB", (8, 6))] * 3


def test_flat_imagenet_with_the_devkit(flat: Path) -> None:
    meta = write_devkit(flat.parent / "ILSVRC2012_devkit_t12" / "data", b"1\n2\n2\n3\n")
    assert imagenet_val(flat).labels.tolist() == [2, 1, 0]
    write(meta, meta.read_bytes()[:200])
    with pytest.raises(InputError, match=r"meta\.mat is damaged"):
        imagenet_val(flat)
    meta.unlink()
    with pytest.raises(InputError, match="ILSVRC ids, .* put meta.mat next to it"):
        imagenet_val(flat)


@pytest.mark.parametrize(
    ("ids", "fox", "message"),
    [
        (b"0\n2\n2\n3\n", WNIDS[0], r"holds 0, which is no ILSVRC id of .*meta\.mat"),
        (b"1\n2\n2\n", WNIDS[0], "no label for image 4: it covers 3 images"),
        (b"1\n2\n2\nfox\n", WNIDS[0], "is damaged .*'fox'"),
        (b"1\n2\n2\n3\n", "fox", "a wnid like n01440764, got 'fox'"),
        (b"1\n2\n2\n3\n", WNIDS[1], "one id or one wnid"),
    ],
)
def test_ids_and_classes_that_do_not_agree_are_refused(flat: Path, ids: bytes, fox: str, message: str) -> None:
    write_devkit(flat.parent, ids, fox)
    with pytest.raises(InputError, match=message) as error:
        imagenet_val(flat)
    assert str(flat.parent) in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (solution({1: WNIDS[0]}, classes=999), "it names 999 classes, ImageNet has 1000"),
        (solution({1: "fox"}), "a wnid like n01440764, got 'fox'"),
        (solution({1: WNIDS[0], 2: WNIDS[0]}), "no label for image 4"),
        (b"ImageId,PredictionString\ncat.jpg,n01440764 1 2 3 4\n", "'cat.jpg' is no name like"),
        (b"a b c\n1\n", "is damaged .*'ImageId'"),
        (b"", "it names 0 classes"),
        (b"\xff\xfe", "is damaged .*decode"),
    ],
)
def test_labels_of_kaggle_that_are_not_the_published_ones_are_refused(flat: Path, content: bytes, message: str) -> None:
    write(flat.parent / KAGGLE, content)
    with pytest.raises(InputError, match=message) as error:
        imagenet_val(flat)
    assert str(flat.parent) in str(error.value)


def test_flat_imagenet_says_what_is_missing(flat: Path) -> None:
    with pytest.raises(InputError, match="has no class folders; put LOC_val_solution.csv, or ILSVRC2012_val"):
        imagenet_val(flat)
    with pytest.raises(InputError, match="for class folders use ImageFolder"):
        imagenet_val(flat.parent)


def jpeg(shade: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 6), (shade, shade, shade)).save(content, "JPEG")
    return content.getvalue()


def test_the_official_tars_are_read_in_place(tmp_path: Path) -> None:
    home = tmp_path / "imagenet"
    inner = {f"{wnid}.tar": archive({f"{wnid}_{n}.JPEG": jpeg(n) for n in (1, 2)}) for wnid in sorted(WNIDS)}
    write(home / "ILSVRC2012_img_train.tar", archive(inner))
    write(home / "ILSVRC2012_img_val.tar", archive({f"ILSVRC2012_val_{n:08d}.JPEG": jpeg(n) for n in (1, 2, 4)}))
    write_devkit(home / "ILSVRC2012_devkit_t12" / "data", b"1\n2\n2\n3\n")
    train, val = (open_dataset(f"catalog:imagenet/{part}", tmp_path, tmp_path) for part in ("train", "test"))
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [np.asarray(train[i]).max() for i in range(6)] == [1, 2] * 3
    assert val.labels.tolist() == [2, 1, 0]
    assert np.asarray(val[2]).max() == 4
    cut = (home / "ILSVRC2012_img_train.tar").read_bytes()[:-12_000]
    write(home / "ILSVRC2012_img_train.tar", cut)
    with pytest.raises(InputError, match="ends early"):
        open_dataset("catalog:imagenet/train", tmp_path, tmp_path)


def test_the_tree_of_kaggle(tmp_path: Path) -> None:
    tree = tmp_path / "imagenet" / "ILSVRC" / "Data" / "CLS-LOC"
    for n in (1, 2, 4):
        write(tree / "val" / f"ILSVRC2012_val_{n:08d}.JPEG", jpeg(n))
        write(tree / "train" / WNIDS[n % 3] / f"{n}.JPEG", jpeg(n))
    write(tmp_path / "imagenet" / KAGGLE, solution(dict(zip((1, 2, 4), WNIDS, strict=True))))
    assert open_dataset("catalog:imagenet/test", tmp_path, tmp_path).labels.tolist() == [2, 1, 0]
    assert sorted(open_dataset("catalog:imagenet/train", tmp_path, tmp_path).labels.tolist()) == [0, 1, 1]


def test_the_parquet_files_of_hugging_face(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    (tmp_path / "imagenet" / "data").mkdir(parents=True)
    for part, labels in (("train", [3, 1]), ("validation", [7])):
        cells = [{"bytes": jpeg(label), "path": f"{label}.JPEG"} for label in labels]
        table = pa.table({"image": cells, "label": labels})
        pq.write_table(table, tmp_path / "imagenet" / "data" / f"{part}-00000-of-00001.parquet")
    train, val = (open_dataset(f"catalog:imagenet/{part}", tmp_path, tmp_path) for part in ("train", "test"))
    assert (train.labels.tolist(), val.labels.tolist()) == ([3, 1], [7])
    assert np.asarray(val[0]).max() == 7


def test_imagenet_v2_is_two_halves_with_numbers_for_classes(tmp_path: Path) -> None:
    for label in (0, 2, 10, 999):
        for n in range(6):
            write(tmp_path / "imagenetv2" / str(label) / f"{n}.jpeg", jpeg(label % 250))
    fitted, tested = (open_dataset(f"catalog:imagenet-v2/{part}", tmp_path, tmp_path) for part in ("train", "test"))
    assert len(fitted) == len(tested) == 12
    assert not set(fitted.identities.tolist()) & set(tested.identities.tolist())
    assert sorted([*fitted.labels, *tested.labels]) == sorted([0, 2, 10, 999] * 6)
    assert all(np.asarray(fitted[i]).max() == fitted.labels[i] % 250 for i in range(12))
    write(tmp_path / "imagenetv2" / "n01440764" / "1.jpeg", jpeg(0))
    with pytest.raises(InputError, match="class folders called 0 to 999"):
        open_dataset("catalog:imagenet-v2/test", tmp_path, tmp_path)


PAPER = ("imagenet", "cifar10", "cifar100")


def rows(root: Path, benchmark: str | None = None) -> dict[str, DatasetStatus]:
    names = PAPER if benchmark is None else (benchmark,)
    return {row.entry.name: row for name in names for row in list_status(root, name)}


def pictures(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / name)


def test_nothing_there_is_missing_and_no_exception(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere", str(tmp_path)):
        found = [row for name in CATALOG for row in list_status(root, name)]
        assert len(found) == sum(len(list(sets)) for sets in CATALOG.values()) >= 30
        assert {row.state for row in found} == {"missing"}
        assert {row.images for row in found} == {None}
    with pytest.raises(InputError, match=r"SVHN: not below .*; run `oodshape data get svhn .* put it at .*svhn"):
        CATALOG["cifar10"].named()["SVHN"].open(tmp_path)
    with pytest.raises(InputError, match="needs an account at image-net.org .* oodshape bench imagenet-v2"):
        CATALOG["imagenet"].named()["test"].open(tmp_path)


def official(root: Path) -> None:
    """A tiny copy of everything, as the archives unpack."""
    record = bytes(3073)
    for kind, folder, train, test in (
        (10, "cifar-10-batches-bin", "data_batch_1.bin", "test_batch.bin"),
        (100, "cifar-100-binary", "train.bin", "test.bin"),
    ):
        place = root / f"cifar{kind}" / folder
        place.mkdir(parents=True)
        (place / train).write_bytes((record if kind == 10 else bytes(3074)) * 3)
        (place / test).write_bytes((record if kind == 10 else bytes(3074)) * 2)
    (root / "mnist").mkdir()
    (root / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros((2, 28, 28), np.uint8))))
    (root / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros(2, np.uint8))))
    (root / "svhn").mkdir()
    savemat(root / "svhn" / "test_32x32.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [10]]})
    pictures(root / "imagenet", "train/n01440764/a.JPEG", "train/n01443537/b.JPEG", "train/n01443537/c.JPEG")
    pictures(root / "imagenet" / "val", "ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG")
    write(root / "imagenet" / KAGGLE, solution(dict.fromkeys((1, 2), WNIDS[0])))
    for folder in (
        *("species/fungi", "iNaturalist/images", "SUN/images", "Places/images", "openimage_o", "imagenet-o/n01443537"),
        *("dtd/images/banded", "tiny-imagenet-200/val/images", "places365", "LSUN/test", "LSUN_resize/LSUN_resize"),
        "iSUN/iSUN_patches",
    ):
        pictures(root / folder, "a.jpg", "b.jpeg")


def test_the_official_layouts_are_found(tmp_path: Path) -> None:
    official(tmp_path)
    found = [row for name in PAPER for row in list_status(tmp_path, name)]
    assert [(row.entry.name, row.reason) for row in found if row.state != "found"] == []
    assert {row.entry.name for row in found if row.images == 3} == {
        "ImageNet train",
        "CIFAR-10 train",
        "CIFAR-100 train",
    }
    assert {row.images for row in found} == {2, 3}
    val = CATALOG["imagenet"].named()["test"].open(tmp_path)
    assert val.labels.tolist() == [0, 0]
    for name in PAPER:
        for _, entry in CATALOG[name]:
            data = entry.open(tmp_path)
            assert data.name == entry.name
            assert len(data.fingerprint) == 16
            assert np.asarray(data[0]).dtype == np.uint8


def test_the_folders_of_the_paper_s_authors_are_found(tmp_path: Path) -> None:
    for folder in ("tin/val", "LSUN_C", "LSUN_R", "imagenet_o", "species_sub", "Places365"):
        pictures(tmp_path / folder, "a.jpg")
    found = {row.entry.name for name in PAPER for row in list_status(tmp_path, name) if row.state == "found"}
    assert found == {"TinyImageNet", "LSUN-Crop", "LSUN-Resize", "ImageNet-O", "Species", "Places365"}


def test_what_is_damaged_is_reported_with_the_reason(tmp_path: Path) -> None:
    official(tmp_path)
    path = tmp_path / "svhn" / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:-9])
    for file in (tmp_path / "iSUN" / "iSUN_patches").iterdir():
        file.unlink()
    found = {name: row for name, row in rows(tmp_path).items() if row.state == "damaged"}
    assert found.keys() == {"SVHN", "iSUN"}
    assert found["SVHN"].images is None
    assert f"{path} is damaged" in found["SVHN"].reason
    assert "no image lies in" in found["iSUN"].reason


NAMES = ["openood-cifar10", "openood-cifar100", "openood-imagenet200", "openood-imagenet"]


@pytest.mark.parametrize("name", NAMES)
def test_every_list_is_read_where_it_lies(name: str, tmp_path: Path) -> None:
    assert {row.state for row in list_status(tmp_path, name)} == {"missing"}
    write_openood(tmp_path, name, count=2, side=8)
    rows = list_status(tmp_path, name)
    assert {(row.state, row.images) for row in rows} <= {("differs", 2), ("found", 2)}  # found: no count is known
    assert all(f"lists 2 images, the published list {row.entry.images:,}" in row.reason for row in rows if row.reason)
    for role, entry in CATALOG[name]:
        images = entry.open(tmp_path)
        inside = role in ("train", "val", "test", "shifted")
        assert images.labels.tolist() == ([0, 1] if inside else [-1, -1])
        assert np.asarray(images[1]).shape[2] == 3
    kind = "classic" if "cifar" in name else "largescale"
    assert {entry.layouts[0].folder for _, entry in CATALOG[name]} <= {f"images_{kind}", "images_classic"}


def test_a_list_that_is_not_the_published_one_is_refused_by_name(tmp_path: Path) -> None:
    write_openood(tmp_path, "openood-cifar10", count=3, side=8)
    source = "catalog:openood-cifar10/mnist"
    with pytest.raises(InputError, match=r"test_mnist\.txt lists 3 images, the published list 70,000; .*--other-lists"):
        open_dataset(source, tmp_path, tmp_path)
    assert len(open_dataset(source, tmp_path, tmp_path, any_list=True)) == 3


def test_a_checksum_sees_other_images_but_no_line_ends(tmp_path: Path) -> None:
    write_openood(tmp_path, "openood-cifar10", count=3, side=8)
    entry = CATALOG["openood-cifar10"].named()["test"]
    file = tmp_path / entry.listed
    text = file.read_bytes()
    known = replace(entry, images=3, md5=hashlib.md5(text).hexdigest())
    assert known.differs(tmp_path, 3) == ""
    for same in (text.replace(b"\n", b"\r\n"), text.rstrip(b"\n")):
        file.write_bytes(same)
        assert known.differs(tmp_path, 3) == ""
    file.write_bytes(text.replace(b" 2\n", b" 1\n"))
    assert "lists other images, or in another order, than the published list" in known.differs(tmp_path, 3)


def test_images_are_not_turned(tmp_path: Path) -> None:
    write_openood(tmp_path, "openood-cifar10", count=1, side=8)
    file = tmp_path / "images_classic" / "svhn" / "test" / "000000_2.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (20, 10)).save(file, exif=exif)
    images = CATALOG["openood-cifar10"].named()["svhn"].open(tmp_path)
    assert images[0].size == limit_images(images, 1)[0].size == (20, 10)
