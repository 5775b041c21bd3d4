"""ImageNet's validation images as they come: one flat folder, and a file that says their classes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.reading import DAMAGE, one_line, reading
from oodshape.images.folders import ImageFiles
from oodshape.images.readers.matlab import Cell, table

CLASSES = 1000
WNID = re.compile(r"n\d{8}")
LABELS = ("LOC_val_solution.csv", "val.txt", "ILSVRC2012_validation_ground_truth.txt")
SYNSETS = ("meta.mat", "map_clsloc.txt")
ACCEPTED = (
    "accepted are LOC_val_solution.csv; lines `file label` with 0-based labels or wnids; "
    "one wnid per line; ILSVRC2012_validation_ground_truth.txt together with synsets"
)


def imagenet_val(
    folder: str | Path,
    labels: str | Path | None = None,
    synsets: str | Path | None = None,
    *,
    name: str = "imagenet",
) -> ImageFiles:
    """The images ILSVRC2012_val_*.JPEG of a folder, labelled by their class's place among the sorted wnids.

    `labels` is one of: `LOC_val_solution.csv`; a list with lines `file label`, the labels 0-based or wnids;
    a list with one wnid per line, in the images' order; the devkit's
    `ILSVRC2012_validation_ground_truth.txt`, whose numbers only `synsets` explains. Without it, the file
    (and the synsets) is looked for beside the folder, under the names in LABELS (and SYNSETS).
    `synsets` gives the classes in the order of their ILSVRC ids: the devkit's `meta.mat` or
    `map_clsloc.txt`, or a text file with one wnid per line. With labels that are wnids it is needed only
    where they do not name every class. Class folders need none of this: `ImageFolder` reads them.
    """
    folder = Path(folder)
    with reading(labels or folder):
        return _imagenet_val(folder, labels, synsets, name)


def _imagenet_val(folder: Path, labels: str | Path | None, synsets: str | Path | None, name: str) -> ImageFiles:
    files = {int(path.stem[-8:]): path.name for path in folder.glob("ILSVRC2012_val_" + "[0-9]" * 8 + ".*")}
    if not files:
        raise InputError(f"no ILSVRC2012_val_*.JPEG in {folder}; for class folders use ImageFolder({str(folder)!r})")
    if labels is None:
        labels, synsets = _beside(folder, LABELS), synsets or _beside(folder, SYNSETS)
    if labels is None:
        raise InputError(f"{folder} has no class folders; put {' or '.join(LABELS)} (with meta.mat) at {folder.parent}")
    known = _labels(Path(labels), None if synsets is None else _synsets(Path(synsets)))
    order = sorted(files)
    for number in order:
        if number not in known:
            raise InputError(f"{labels} has no label for {files[number]}: it covers {len(known)} images")
    return ImageFiles(name, folder, [files[n] for n in order], np.array([known[n] for n in order], np.int64))


def _beside(folder: Path, names: tuple[str, ...]) -> Path | None:
    """The first file of these names beside a folder, or in the devkit unpacked there."""
    places = (folder.parent, folder.parent / "ILSVRC2012_devkit_t12" / "data")
    return next((place / name for name in names for place in places if (place / name).is_file()), None)


def _labels(path: Path, synsets: list[str] | None) -> dict[int, int]:
    """The class of each image, by the image's number."""
    rows = [line.replace(",", " ").split() for line in _text(path).splitlines() if line.strip()]
    if rows and rows[0] == ["ImageId", "PredictionString"]:
        rows = [row[:2] for row in rows[1:]]  # the rest of a row are boxes
    widths = {len(row) for row in rows}
    if widths == {1}:
        numbers, values = list(range(1, len(rows) + 1)), [row[0] for row in rows]
    elif widths == {2}:
        numbers, values = [_number(path, row[0]) for row in rows], [row[1] for row in rows]
    else:
        raise InputError(f"{path}: lines of {sorted(widths)} fields are no label file; {ACCEPTED}")
    if all(WNID.fullmatch(value) for value in values):
        return dict(zip(numbers, _ranks(path, values, synsets or sorted(set(values))), strict=True))
    if not all(re.fullmatch("[0-9]{1,9}", value) for value in values):
        raise InputError(f"{path}: labels must be all numbers or all wnids, got {values[0]!r}; {ACCEPTED}")
    classes = np.array(values, np.int64)
    if widths == {2}:
        if classes.max() >= CLASSES:
            raise InputError(f"{path}: labels must lie in 0..{CLASSES - 1}, got {classes.max()}; count from 0")
        return dict(zip(numbers, classes.tolist(), strict=True))
    if synsets is None:
        raise InputError(
            f"{path} holds bare numbers, ILSVRC ids, which are not the networks' class numbers; "
            "give synsets too: the devkit's meta.mat or map_clsloc.txt"
        )
    if synsets == sorted(synsets) and len(synsets) > 1:
        raise InputError(f"{path} needs synsets in the order of their ILSVRC ids, but those given are sorted by wnid")
    if classes.min() < 1 or classes.max() > len(synsets):
        raise InputError(f"{path}: ILSVRC ids must lie in 1..{len(synsets)}, got {classes.min()}..{classes.max()}")
    return dict(zip(numbers, _ranks(path, [synsets[i - 1] for i in classes], synsets), strict=True))


def _ranks(path: Path, wnids: list[str], synsets: list[str]) -> list[int]:
    """The place of each wnid among all, sorted: the class numbers that networks use."""
    place = {wnid: rank for rank, wnid in enumerate(sorted(synsets))}
    missing = sorted(set(wnids) - place.keys())
    if missing:
        raise InputError(f"{path} names {missing[0]}, which synsets do not hold ({len(synsets)} classes)")
    return [place[wnid] for wnid in wnids]


def _number(path: Path, name: str) -> int:
    """50000 of val/ILSVRC2012_val_00050000.JPEG."""
    match = re.fullmatch(r"(?:.*/)?ILSVRC2012_val_(\d{8})(?:\.\w+)?", name)
    if match is None:
        raise InputError(f"{path}: {name!r} is no name like ILSVRC2012_val_00000001.JPEG; {ACCEPTED}")
    return int(match[1])


def _synsets(path: Path) -> list[str]:
    """The classes' wnids in the file's own order."""
    if path.suffix == ".mat":
        wnids = _synsets_of_devkit(path)
    elif path.suffix == ".json":
        try:
            index = json.loads(_text(path))
            wnids = [index[str(number)][0] for number in range(len(index))]
        except DAMAGE:
            raise InputError(f'{path} must map "0", "1", ... to [wnid, name]') from None
    else:
        rows = [line.split() for line in _text(path).splitlines() if line.strip()]
        if all(len(row) > 1 and row[1].isdecimal() for row in rows):  # map_clsloc.txt: wnid, id, name
            rows.sort(key=lambda row: int(row[1]))
        wnids = [row[0] for row in rows]
    wrong = next((wnid for wnid in wnids if not WNID.fullmatch(str(wnid))), None)
    if wrong is not None or not wnids or len(set(wnids)) < len(wnids):
        raise InputError(f"{path} must give one wnid (like n01440764) per class, each once; got {wrong!r}")
    return wnids


def _synsets_of_devkit(path: Path) -> list[str]:
    """The wnids of meta.mat's leaves in the order of their ILSVRC ids."""
    try:
        rows = table(path, "synsets", ["ILSVRC2012_ID", "WNID", "num_children"])
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
