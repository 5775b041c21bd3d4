"""ImageNet's validation images as they come, and the files that say their classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from dataset_files import write
from oodshape import InputError
from oodshape.images.readers.imagenet import imagenet_val

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


@pytest.mark.parametrize(
    ("name", "text", "synsets"),
    [
        ("val.txt", "".join(f"ILSVRC2012_val_{n:08d}.JPEG {c}\n" for n, c in [(4, 0), (2, 1), (1, 2), (9, 7)]), ""),
        ("val_list.txt", "val/ILSVRC2012_val_00000001.JPEG n02119789\nval/ILSVRC2012_val_00000002.JPEG n02100735\n"
         "val/ILSVRC2012_val_00000004.JPEG n01440764\n", ""),
        ("LOC_val_solution.csv", "ImageId,PredictionString\n"
         "ILSVRC2012_val_00000004,n01440764 1 2 3 4 n01440764 5 6 7 8 \nILSVRC2012_val_00000001,n02119789 1 2 3 4\n"
         "ILSVRC2012_val_00000002,n02100735 1 2 3 4\n", ""),
        ("labels.txt", "n02119789\nn02100735\nn02100735\nn01440764\n", ""),
        ("ILSVRC2012_validation_ground_truth.txt", "1\n2\n2\n3\n", "\n".join(WNIDS)),
        ("ILSVRC2012_validation_ground_truth.txt", "1\n2\n2\n3\n",
         "n01440764 3 tench\nn02119789 1 kit_fox\nn02100735 2 English_setter\n"),
    ],
)  # fmt: skip
def test_flat_imagenet(flat: Path, name: str, text: str, synsets: str) -> None:
    labels = write(flat.parent / name, text.encode())
    given = write(flat.parent / "synsets.txt", synsets.encode()) if synsets else None
    data = imagenet_val(flat, labels, given)
    assert data.labels.tolist() == [2, 1, 0]
    assert len(data) == 3
    assert [(data[i].mode, data[i].size) for i in range(3)] == [("RGB", (8, 6))] * 3
    assert len(data.fingerprint) == 16


def test_flat_imagenet_with_the_devkit(flat: Path) -> None:
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    rows = [
        (3, WNIDS[2], "tench", 0),
        (1, WNIDS[0], "kit fox", 0),
        (4, "n00001740", "entity", 3),
        (2, WNIDS[1], "x", 0),
    ]
    savemat(flat.parent / "meta.mat", {"synsets": np.array(rows, kinds)[:, None]})
    truth = write(flat.parent / "ILSVRC2012_validation_ground_truth.txt", b"1\n2\n2\n3\n")
    assert imagenet_val(flat, truth, flat.parent / "meta.mat").labels.tolist() == [2, 1, 0]
    content = (flat.parent / "meta.mat").read_bytes()
    for cut in (0, 100, 200, len(content) // 2, len(content) - 9):
        write(flat.parent / "meta.mat", content[:cut])
        with pytest.raises(InputError, match="damaged or not the devkit's"):
            imagenet_val(flat, truth, flat.parent / "meta.mat")


def test_flat_imagenet_synsets_complete_the_classes(flat: Path) -> None:
    labels = write(flat.parent / "wnids.txt", b"n02119789\nn02119789\nn02119789\nn02119789\n")
    index = write(
        flat.parent / "imagenet_class_index.json", b'{"0": ["n01440764", "tench"], "1": ["n02119789", "fox"]}'
    )
    assert imagenet_val(flat, labels).labels.tolist() == [0, 0, 0]
    assert imagenet_val(flat, labels, index).labels.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "synsets", "message"),
    [
        ("1\n2\n2\n3\n", None, "bare numbers, ILSVRC ids.* give synsets too"),
        ("1\n2\n2\n3\n", "\n".join(sorted(WNIDS)), "sorted by wnid"),
        ("0\n2\n2\n3\n", "\n".join(WNIDS), "must lie in 1..3, got 0..3"),
        ("1\n2\n2\n", "\n".join(WNIDS), "no label for ILSVRC2012_val_00000004.JPEG: it covers 3 images"),
        ("1\n2\n2\n3\n", "tench\nfox", "one wnid .* per class, each once; got 'tench'"),
        ("n02119789\nn02100735\nn02100735\nn09999999\n", "\n".join(WNIDS), "names n09999999"),
        ("ILSVRC2012_val_00000001.JPEG 1000\n", None, r"must lie in 0..999, got 1000; count from 0"),
        ("cat.jpg 1\n", None, "'cat.jpg' is no name like"),
        ("tench\nfox\nfox\ndog\n", None, "all numbers or all wnids, got 'tench'; accepted are LOC_val"),
        ("a b c\n1\n", None, r"lines of \[1, 3\] fields .*accepted are"),
        ("", None, "accepted are"),
        ("99999999999999999999\n1\n", None, "all numbers or all wnids"),
    ],
)
def test_an_ambiguous_label_file_is_refused(flat: Path, text: str, synsets: str | None, message: str) -> None:
    labels = write(flat.parent / "labels.txt", text.encode())
    given = None if synsets is None else write(flat.parent / "synsets.txt", synsets.encode())
    with pytest.raises(InputError, match=message) as error:
        imagenet_val(flat, labels, given)
    assert str(flat.parent) in str(error.value)


def test_flat_imagenet_says_what_is_missing(flat: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as text"):
        imagenet_val(flat, flat.parent / "nothing.txt")
    with pytest.raises(InputError, match="for class folders use ImageFolder"):
        imagenet_val(flat.parent, flat.parent / "nothing.txt")
    labels = write(flat.parent / "labels.txt", b"n02119789\n" * 4)
    write(flat / "ILSVRC2012_val_00000002.JPEG", b"no image")
    with pytest.raises(InputError, match=r"ILSVRC2012_val_00000002.JPEG is not a readable image"):
        imagenet_val(flat, labels)[1]
