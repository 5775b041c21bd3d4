"""ImageNet as it is published: a flat folder with labels next to it, the official tars, Parquet; and ImageNet-V2."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import DAMAGE, one_line, reading
from oodshape.images import identity
from oodshape.images.datasets.matlab import Cell, read_struct
from oodshape.images.sources.archives import ParquetImages, TarImages
from oodshape.images.sources.image_files import ImageFiles, label_by_folder, open_labelled_folder

CLASSES = 1000
WNID = re.compile(r"n\d{8}")
ILSVRC_IDS = "ILSVRC2012_validation_ground_truth.txt"
LABELS = ("LOC_val_solution.csv", "val.txt", ILSVRC_IDS)
SYNSETS = ("meta.mat", "map_clsloc.txt")
ACCEPTED = (
    f"accepted are LOC_val_solution.csv; val.txt with lines `file label`, the labels 0-based or wnids; {ILSVRC_IDS} "
    f"together with {' or '.join(SYNSETS)}"
)


def imagenet_val(folder: str | Path, *, name: str = "imagenet") -> ImageFiles:
    """The images ILSVRC2012_val_*.JPEG of a folder, labelled by the rank of their class among the sorted wnids.

    The labels lie next to the folder, in the devkit unpacked there, or at the root of Kaggle's tree:
    `LOC_val_solution.csv`; `val.txt` with lines `file label`, the labels 0-based or wnids; or the devkit's
    `ILSVRC2012_validation_ground_truth.txt`, whose numbers need its `meta.mat` or `map_clsloc.txt`. With wnids these
    are needed only where the labels do not name every class. Class folders need none of this: see `ImageFolder`.
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
    found = open_labelled_folder(folder)
    if not found.classes or not all(each.isdecimal() for each in found.classes):
        raise InputError(f"{folder} must hold class folders called 0 to {CLASSES - 1}, as ImageNet-V2 is published")
    keys = identity.from_paths(found.files)
    fitted = identity.smallest(keys, len(keys) // 2, 0, "ImageNet-V2")
    rows = fitted if part == "train" else np.setdiff1d(np.arange(len(keys)), fitted)
    labels = np.array(found.classes, np.int64)[found.labels[rows]]
    return ImageFiles(name, folder, [found.files[row] for row in rows], labels)


def _labels_beside(images: Path, numbers: list[int]) -> NDArray[np.int64]:
    """The classes of the validation images of these numbers, by the files next to a folder or an archive."""
    labels, synsets = _paper_entries(images, LABELS), _paper_entries(images, SYNSETS)
    if labels is None:
        raise InputError(
            f"{images} has no class folders; put {' or '.join(LABELS)} (with meta.mat) at {images.parent}, or unpack "
            "ILSVRC2012_devkit_t12.tar.gz there"
        )
    known = _labels(labels, None if synsets is None else _synsets(synsets))
    missing = next((number for number in numbers if number not in known), None)
    if missing is not None:
        raise InputError(f"{labels} has no label for image {missing}: it covers {len(known)} images")
    return np.array([known[number] for number in numbers], np.int64)


def _paper_entries(images: Path, names: tuple[str, ...]) -> Path | None:
    """The first file of these names next to a folder, in the devkit unpacked there, or at the root of Kaggle's tree."""
    parent = images.parent
    places = [parent, parent / "ILSVRC2012_devkit_t12" / "data"]
    places += [parent.parents[2]] if parent.parts[-3:] == ("ILSVRC", "Data", "CLS-LOC") else []
    return next((place / name for name in names for place in places if (place / name).is_file()), None)


def _labels(path: Path, synsets: list[str] | None) -> dict[int, int]:
    """The class of each image, by the image's number."""
    rows = [line.replace(",", " ").split() for line in _text(path).splitlines() if line.strip()]
    if rows and rows[0] == ["ImageId", "PredictionString"]:
        rows = [row[:2] for row in rows[1:]]  # the rest of a row are boxes
    width = 1 if path.name == ILSVRC_IDS else 2
    if {len(row) for row in rows} != {width}:
        raise InputError(f"{path}: every line must have {width} fields; {ACCEPTED}")
    values = [row[-1] for row in rows]
    if width == 1:
        return dict(enumerate(_ranks_of_ids(path, _whole_numbers(path, values), synsets), 1))
    numbers = [_number(path, row[0]) for row in rows]
    if all(map(WNID.fullmatch, values)):
        return dict(zip(numbers, _ranks(path, values, synsets or sorted(set(values))), strict=True))
    classes = _whole_numbers(path, values)
    if max(classes) >= CLASSES:
        raise InputError(f"{path}: labels must lie in 0..{CLASSES - 1}, got {max(classes)}; count from 0")
    return dict(zip(numbers, classes, strict=True))


def _whole_numbers(path: Path, values: list[str]) -> list[int]:
    if not all(re.fullmatch("[0-9]{1,9}", value) for value in values):
        raise InputError(f"{path}: labels must be all numbers or all wnids, got {values[0]!r}; {ACCEPTED}")
    return list(map(int, values))


def _ranks_of_ids(path: Path, ids: list[int], synsets: list[str] | None) -> list[int]:
    """The class numbers that networks use, of ILSVRC ids."""
    if synsets is None:
        raise InputError(
            f"{path} holds ILSVRC ids, which are not the networks' class numbers; put the devkit's "
            f"{' or '.join(SYNSETS)} next to it"
        )
    if min(ids) < 1 or max(ids) > len(synsets):
        raise InputError(f"{path}: ILSVRC ids must lie in 1..{len(synsets)}, got {min(ids)}..{max(ids)}")
    return _ranks(path, [synsets[each - 1] for each in ids], synsets)


def _ranks(path: Path, wnids: list[str], synsets: list[str]) -> list[int]:
    """The place of each wnid among all, sorted: the class numbers that networks use."""
    place = {wnid: rank for rank, wnid in enumerate(sorted(synsets))}
    missing = sorted(set(wnids) - place.keys())
    if missing:
        raise InputError(f"{path} names {missing[0]}, which the synsets do not hold ({len(synsets)} classes)")
    return [place[wnid] for wnid in wnids]


def _number(path: Path, name: str) -> int:
    """50000 of val/ILSVRC2012_val_00050000.JPEG."""
    match = re.fullmatch(r"(?:.*/)?ILSVRC2012_val_(\d{8})(?:\.\w+)?", name)
    if match is None:
        raise InputError(f"{path}: {name!r} is no name like ILSVRC2012_val_00000001.JPEG; {ACCEPTED}")
    return int(match[1])


def _synsets(path: Path) -> list[str]:
    """The classes' wnids in the order of their ILSVRC ids, of the devkit's meta.mat or map_clsloc.txt."""
    if path.suffix == ".mat":
        wnids = _synsets_of_devkit(path)
    else:
        rows = [line.split() for line in _text(path).splitlines() if line.strip()]  # wnid, id, name
        if not all(len(row) > 1 and row[1].isdecimal() for row in rows):
            raise InputError(f"{path} must have lines `wnid id name`, as in the devkit of ILSVRC 2012")
        wnids = [row[0] for row in sorted(rows, key=lambda row: int(row[1]))]
    wrong = next((wnid for wnid in wnids if not WNID.fullmatch(str(wnid))), None)
    if wrong is not None or not wnids or len(set(wnids)) < len(wnids):
        raise InputError(f"{path} must give one wnid (like n01440764) per class, each once; got {wrong!r}")
    return wnids


def _synsets_of_devkit(path: Path) -> list[str]:
    """The wnids of meta.mat's leaves in the order of their ILSVRC ids."""
    try:
        rows = read_struct(path, "synsets", ["ILSVRC2012_ID", "WNID", "num_children"])
        leaves = [
            (int(_only(row["ILSVRC2012_ID"])), str(_only(row["WNID"])))
            for row in rows
            if int(_only(row["num_children"])) == 0
        ]
    except (OSError, *DAMAGE) as error:  # such as a cell of many values, or of none that is finite
        raise InputError(f"{path} is damaged or not the devkit's meta.mat ({one_line(error)})") from None
    return [wnid for _, wnid in sorted(leaves)]


def _only(cell: Cell) -> Any:
    """The one value of a cell; text is one value."""
    return cell if isinstance(cell, str) else cell.item()


def _text(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as text: {error}; {ACCEPTED}") from None
