"""ImageNet's validation images as they come, and the files that say their classes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from dataset_files import archive, write
from oodshape import InputError
from oodshape.benchmark.spec import Benchmark
from oodshape.images.datasets.catalog import open_source
from oodshape.images.datasets.imagenet import imagenet_val

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
MAP = "n01440764 3 tench\nn02119789 1 kit_fox\nn02100735 2 English_setter\n"


@pytest.mark.parametrize(
    ("name", "text", "synsets"),
    [
        ("val.txt", "".join(f"ILSVRC2012_val_{n:08d}.JPEG {c}\n" for n, c in [(4, 0), (2, 1), (1, 2), (9, 7)]), ""),
        ("val.txt", "val/ILSVRC2012_val_00000001.JPEG n02119789\nval/ILSVRC2012_val_00000002.JPEG n02100735\n"
         "val/ILSVRC2012_val_00000004.JPEG n01440764\n", ""),
        ("LOC_val_solution.csv", "ImageId,PredictionString\n"
         "ILSVRC2012_val_00000004,n01440764 1 2 3 4 n01440764 5 6 7 8 \nILSVRC2012_val_00000001,n02119789 1 2 3 4\n"
         "ILSVRC2012_val_00000002,n02100735 1 2 3 4\n", ""),
        (IDS, "1\n2\n2\n3\n", MAP),
    ],
)  # fmt: skip
def test_flat_imagenet(flat: Path, name: str, text: str, synsets: str) -> None:
    write(flat.parent / name, text.encode())
    if synsets:
        write(flat.parent / "map_clsloc.txt", synsets.encode())
    data = imagenet_val(flat)
    assert data.labels.tolist() == [2, 1, 0]
    assert [(data[i].mode, data[i].size) for i in range(3)] == [("RGB", (8, 6))] * 3


def test_flat_imagenet_with_the_devkit(flat: Path) -> None:
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    rows = [
        (3, WNIDS[2], "tench", 0),
        (1, WNIDS[0], "kit fox", 0),
        (4, "n00001740", "entity", 3),
        (2, WNIDS[1], "x", 0),
    ]
    devkit = flat.parent / "ILSVRC2012_devkit_t12" / "data"
    devkit.mkdir(parents=True)
    savemat(devkit / "meta.mat", {"synsets": np.array(rows, kinds)[:, None]})
    write(devkit / IDS, b"1\n2\n2\n3\n")
    assert imagenet_val(flat).labels.tolist() == [2, 1, 0]
    content = (devkit / "meta.mat").read_bytes()
    for cut in (0, 100, 200, len(content) // 2, len(content) - 9):
        write(devkit / "meta.mat", content[:cut])
        with pytest.raises(InputError, match="damaged or not the devkit's"):
            imagenet_val(flat)


def test_flat_imagenet_synsets_complete_the_classes(flat: Path) -> None:
    write(flat.parent / "val.txt", "".join(f"ILSVRC2012_val_{n:08d}.JPEG n02119789\n" for n in (1, 2, 4)).encode())
    assert imagenet_val(flat).labels.tolist() == [0, 0, 0]
    write(flat.parent / "map_clsloc.txt", MAP.encode())
    assert imagenet_val(flat).labels.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("name", "text", "synsets", "message"),
    [
        (IDS, "1\n2\n2\n3\n", None, "ILSVRC ids, .* put the devkit's meta.mat or map_clsloc.txt next to it"),
        (IDS, "0\n2\n2\n3\n", MAP, "must lie in 1..3, got 0..3"),
        (IDS, "1\n2\n2\n", MAP, "no label for image 4: it covers 3 images"),
        (IDS, "1\n2\n2\n3\n", "tench 1\nfox 2", "one wnid .* per class, each once; got 'tench'"),
        (IDS, "1\n2\n2\n3\n", "\n".join(WNIDS), "must have lines `wnid id name`"),
        (IDS, "99999999999999999999\n1\n", None, "all numbers or all wnids"),
        ("val.txt", "ILSVRC2012_val_00000001.JPEG n09999999\n", MAP, "names n09999999"),
        ("val.txt", "ILSVRC2012_val_00000001.JPEG 1000\n", None, r"must lie in 0..999, got 1000; count from 0"),
        ("val.txt", "cat.jpg 1\n", None, "'cat.jpg' is no name like"),
        ("val.txt", "ILSVRC2012_val_00000001.JPEG fox\n", None, "all wnids, got 'fox'; accepted are LOC_val"),
        ("val.txt", "a b c\n1\n", None, r"must have 2 fields; accepted are"),
        ("val.txt", "", None, "accepted are"),
    ],
)
def test_an_ambiguous_label_file_is_refused(
    flat: Path, name: str, text: str, synsets: str | None, message: str
) -> None:
    write(flat.parent / name, text.encode())
    if synsets is not None:
        write(flat.parent / "map_clsloc.txt", synsets.encode())
    with pytest.raises(InputError, match=message) as error:
        imagenet_val(flat)
    assert str(flat.parent) in str(error.value)


def test_flat_imagenet_says_what_is_missing(flat: Path) -> None:
    with pytest.raises(InputError, match="has no class folders; put LOC_val_solution.csv or val.txt"):
        imagenet_val(flat)
    with pytest.raises(InputError, match="for class folders use ImageFolder"):
        imagenet_val(flat.parent)
    write(flat.parent / "val.txt", b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read as text"):
        imagenet_val(flat)


def jpeg(shade: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 6), (shade, shade, shade)).save(content, "JPEG")
    return content.getvalue()


def test_the_official_tars_are_read_in_place(tmp_path: Path) -> None:
    home = tmp_path / "imagenet"
    inner = {f"{wnid}.tar": archive({f"{wnid}_{n}.JPEG": jpeg(n) for n in (1, 2)}) for wnid in sorted(WNIDS)}
    write(home / "ILSVRC2012_img_train.tar", archive(inner))
    write(home / "ILSVRC2012_img_val.tar", archive({f"ILSVRC2012_val_{n:08d}.JPEG": jpeg(n) for n in (1, 2, 4)}))
    write(home / "ILSVRC2012_devkit_t12" / "data" / IDS, b"1\n2\n2\n3\n")
    write(home / "ILSVRC2012_devkit_t12" / "data" / "map_clsloc.txt", MAP.encode())
    train, val = (open_source(f"catalog:imagenet/{part}", tmp_path, tmp_path) for part in ("train", "test"))
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [np.asarray(train[i]).max() for i in range(6)] == [1, 2] * 3
    assert val.labels.tolist() == [2, 1, 0]
    assert np.asarray(val[2]).max() == 4
    cut = (home / "ILSVRC2012_img_train.tar").read_bytes()[:-12_000]
    write(home / "ILSVRC2012_img_train.tar", cut)
    with pytest.raises(InputError, match="ends early"):
        open_source("catalog:imagenet/train", tmp_path, tmp_path)


def test_the_tree_of_kaggle(tmp_path: Path) -> None:
    tree = tmp_path / "imagenet" / "ILSVRC" / "Data" / "CLS-LOC"
    for n in (1, 2, 4):
        write(tree / "val" / f"ILSVRC2012_val_{n:08d}.JPEG", jpeg(n))
        write(tree / "train" / WNIDS[n % 3] / f"{n}.JPEG", jpeg(n))
    rows = "".join(f"ILSVRC2012_val_{n:08d},{wnid} 1 2 3 4\n" for n, wnid in zip((1, 2, 4), WNIDS, strict=True))
    write(tmp_path / "imagenet" / "LOC_val_solution.csv", f"ImageId,PredictionString\n{rows}".encode())
    assert open_source("catalog:imagenet/test", tmp_path, tmp_path).labels.tolist() == [2, 1, 0]
    assert sorted(open_source("catalog:imagenet/train", tmp_path, tmp_path).labels.tolist()) == [0, 1, 1]


def test_the_parquet_files_of_hugging_face(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    (tmp_path / "imagenet" / "data").mkdir(parents=True)
    for part, labels in (("train", [3, 1]), ("validation", [7])):
        cells = [{"bytes": jpeg(label), "path": f"{label}.JPEG"} for label in labels]
        table = pa.table({"image": cells, "label": labels})
        pq.write_table(table, tmp_path / "imagenet" / "data" / f"{part}-00000-of-00001.parquet")
    train, val = (open_source(f"catalog:imagenet/{part}", tmp_path, tmp_path) for part in ("train", "test"))
    assert (train.labels.tolist(), val.labels.tolist()) == ([3, 1], [7])
    assert np.asarray(val[0]).max() == 7


def test_imagenet_v2_is_two_halves_with_numbers_for_classes(tmp_path: Path) -> None:
    for label in (0, 2, 10, 999):
        for n in range(6):
            write(tmp_path / "imagenetv2" / str(label) / f"{n}.jpeg", jpeg(label % 250))
    fitted, tested = (open_source(f"catalog:imagenet-v2/{part}", tmp_path, tmp_path) for part in ("train", "test"))
    assert len(fitted) == len(tested) == 12
    assert not set(fitted.identities.tolist()) & set(tested.identities.tolist())
    assert sorted([*fitted.labels, *tested.labels]) == sorted([0, 2, 10, 999] * 6)
    assert all(np.asarray(fitted[i]).max() == fitted.labels[i] % 250 for i in range(12))
    write(tmp_path / "imagenetv2" / "n01440764" / "1.jpeg", jpeg(0))
    with pytest.raises(InputError, match="class folders called 0 to 999"):
        open_source("catalog:imagenet-v2/test", tmp_path, tmp_path)


def test_imagenet_v2_is_named_and_is_not_set_beside_the_paper() -> None:
    made = Benchmark.load("imagenet-v2")
    assert made.name == "imagenet-v2"
    assert (made.settings, made.of_paper) == ("general", "")
    assert [ood.name for ood in made.ood] == [ood.name for ood in Benchmark.load("imagenet").ood]
