"""ImageNet as it is published: a flat folder with labels next to it, the official tars, Parquet; and ImageNet-V2."""

from __future__ import annotations

import csv
import glob
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import reading
from oodshape.images import identity
from oodshape.images.datasets.matlab import Cell, read_struct
from oodshape.images.sources.archives import ParquetImages, TarImages
from oodshape.images.sources.image_files import ImageFiles, ImageFolder, label_by_folder

CLASSES = 1000
WNID = re.compile(r"n\d{8}")
KAGGLE, GROUND_TRUTH = "LOC_val_solution.csv", "ILSVRC2012_validation_ground_truth.txt"


def imagenet_val(folder: str | Path, *, name: str = "imagenet") -> ImageFiles:
    """The images ILSVRC2012_val_*.JPEG of a folder, labelled by the rank of their class among the sorted wnids.

    The labels lie next to the folder, in the devkit unpacked there, or at the root of Kaggle's tree: Kaggle's
    `LOC_val_solution.csv`, or the devkit's `ILSVRC2012_validation_ground_truth.txt` and `meta.mat`. Class folders need
    none of this: see `ImageFolder`.
    """
    folder = Path(folder)
    with reading(folder.parent):
        files = {int(path.stem[-8:]): path.name for path in folder.glob("ILSVRC2012_val_" + "[0-9]" * 8 + ".*")}
        if not files:
            raise InputError(f"no ILSVRC2012_val_*.JPEG in {folder}; for class folders use ImageFolder")
        numbers = sorted(files)
        return ImageFiles(name, folder, [files[number] for number in numbers], _labels_beside(folder, numbers))


def imagenet_val_tar(folder: Path, *, name: str) -> TarImages:
    """The images of ILSVRC2012_img_val.tar, read in place; labels lie next to it or in the devkit unpacked there."""
    archive = folder / "ILSVRC2012_img_val.tar"
    images = TarImages(str(archive), upright=True)
    numbers = [_number(archive, member) for member in images.members]
    images.name, images.labels = name, _labels_beside(archive, numbers)
    return images


def imagenet_train_tar(folder: Path, *, name: str) -> TarImages:
    """The images of ILSVRC2012_img_train.tar, a tar of one tar per class, read in place."""
    images = TarImages(str(folder / "ILSVRC2012_img_train.tar"), upright=True)
    images.name, (images.labels, images.classes) = name, label_by_folder(images.members)
    return images


def imagenet_parquet(folder: Path, *, name: str, files: str) -> ParquetImages:
    """The images of the Parquet files of huggingface.co/datasets/ILSVRC/imagenet-1k, labelled by their column."""
    images = ParquetImages(f"{glob.escape(str(folder))}/{files}", upright=True)
    images.name = name
    return images


def imagenet_v2(folder: Path, *, name: str, part: Literal["train", "test"]) -> ImageFiles:
    """One half of ImageNet-V2, whose class folders are called 0 to 999: the fitted one or the tested one."""
    found = ImageFolder(folder)
    if not found.classes or not all(each.isdecimal() for each in found.classes):
        raise InputError(f"{folder} must hold class folders called 0 to {CLASSES - 1}, as ImageNet-V2 is published")
    fitted = identity.smallest(found.identities, len(found) // 2, 0, "ImageNet-V2")
    rows = fitted if part == "train" else np.setdiff1d(np.arange(len(found)), fitted)
    labels = np.array(found.classes, np.int64)[found.labels[rows]]
    return ImageFiles(name, folder, [found.names[row] for row in rows], labels)


def _labels_beside(images: Path, numbers: list[int]) -> NDArray[np.int64]:
    """The classes of the validation images of these numbers, by the files next to a folder or an archive."""
    parent = images.parent
    places = [parent, parent / "ILSVRC2012_devkit_t12" / "data"]
    places += [parent.parents[2]] if parent.parts[-3:] == ("ILSVRC", "Data", "CLS-LOC") else []
    files = [place / name for name in (KAGGLE, GROUND_TRUTH) for place in places]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        raise InputError(
            f"{images} has no class folders; put {KAGGLE}, or {GROUND_TRUTH} and meta.mat, at {parent}, or unpack "
            "ILSVRC2012_devkit_t12.tar.gz there"
        )
    with reading(path, "get the published file again"):
        known = _read_kaggle(path) if path.name == KAGGLE else _read_devkit(path)
    missing = next((number for number in numbers if number not in known), None)
    if missing is not None:
        raise InputError(f"{path} has no label for image {missing}: it covers {len(known)} images")
    return np.array([known[number] for number in numbers], np.int64)


def _read_kaggle(path: Path) -> dict[int, int]:
    """The class of each image by the image's number, from rows `ILSVRC2012_val_00000001,n01751748 box ...`."""
    with path.open(encoding="utf-8", newline="") as file:
        wnids = {_number(path, row["ImageId"]): row["PredictionString"].split()[0] for row in csv.DictReader(file)}
    ranks = _rank_classes(wnids.values())
    if len(ranks) != CLASSES:
        raise InputError(f"it names {len(ranks)} classes, ImageNet has {CLASSES}")
    return {number: ranks[wnid] for number, wnid in wnids.items()}


def _read_devkit(path: Path) -> dict[int, int]:
    """The class of each image by the image's number: a line holds its ILSVRC id, and meta.mat the wnid of each id."""
    meta = path.with_name("meta.mat")
    if not meta.is_file():
        raise InputError(f"{path} holds ILSVRC ids, which are not the networks' class numbers; put meta.mat next to it")
    with reading(meta, "it must be the devkit's meta.mat"):
        rows = read_struct(meta, "synsets", ["ILSVRC2012_ID", "WNID", "num_children"])
        leaves = [row for row in rows if int(_only(row["num_children"])) == 0]
        wnids = {int(_only(row["ILSVRC2012_ID"])): str(_only(row["WNID"])) for row in leaves}
        ranks = _rank_classes(wnids.values())
        if not len(ranks) == len(wnids) == len(leaves):
            raise InputError("two of its classes have one id or one wnid")
    ids = [int(line) for line in path.read_text("utf-8").split()]
    wrong = next((each for each in ids if each not in wnids), None)
    if wrong is not None:
        raise InputError(f"it holds {wrong}, which is no ILSVRC id of {meta}")
    return {number: ranks[wnids[each]] for number, each in enumerate(ids, 1)}


def _rank_classes(wnids: Iterable[str]) -> dict[str, int]:
    """The place of each wnid among all, sorted: the class numbers that networks use."""
    classes = sorted(set(wnids))
    wrong = next((wnid for wnid in classes if not WNID.fullmatch(wnid)), None)
    if wrong is not None:
        raise InputError(f"a class has a wnid like n01440764, got {wrong!r}")
    return {wnid: rank for rank, wnid in enumerate(classes)}


def _number(path: Path, name: str) -> int:
    """50000 of val/ILSVRC2012_val_00050000.JPEG."""
    match = re.fullmatch(r"(?:.*/)?ILSVRC2012_val_(\d{8})(?:\.\w+)?", name)
    if match is None:
        raise InputError(f"{path}: {name!r} is no name like ILSVRC2012_val_00000001.JPEG")
    return int(match[1])


def _only(cell: Cell) -> Any:
    """The one value of a cell; text is one value."""
    return cell if isinstance(cell, str) else cell.item()
