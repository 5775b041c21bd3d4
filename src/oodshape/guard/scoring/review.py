"""Review by people: what of a score file they label, in Label Studio or in a table, and what their labels are for.

Labels of rejected images make an OOD set. A calibration set must be a random sample of valid inputs, accepted and
rejected alike, so only labels of a random sample make one. This module does without torch.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.guard.scoring.score_formats import DECISIONS, WRITTEN, open_text, read_scores, write_csv
from oodshape.images import identity
from oodshape.images.sources.storage import is_remote

OOD, ID = "ood", "id"
LABELS = (OOD, ID)
SAMPLE = "random sample"  # the reason of an image that was drawn, which its label comes back with
NEAR = 2.0  # times the largest p-value of a rejected image
INTERFACE = (
    '<View><Image name="image" value="$image"/><Text name="reason" value="$reason"/>'
    '<Choices name="label" toName="image"><Choice value="ood"/><Choice value="id"/></Choices></View>'
)


class ReviewRow(NamedTuple):
    """An image to label; class and p-value are left out of a random sample, or they would influence its labels."""

    path: str
    label: str = ""
    class_: str = ""
    p_value: float | None = None
    reason: str = SAMPLE

    def cells(self) -> dict[str, Any]:
        """Return the columns by their names."""
        return {name.rstrip("_"): value for name, value in self._asdict().items()}


def select_rows(scores: str, *, up_to: float | None = None) -> list[ReviewRow]:
    """Return rejected and borderline images, lowest p-values first.

    Args:
        scores: The score file.
        up_to: The largest p-value of a borderline image; None: twice the largest of a rejected one.
    """
    rows = [row for row in _readable(scores) if row.p_value is not None]
    rejected = [row.p_value for row in rows if row.p_value and not DECISIONS[row.cells["accepted"]]]
    if up_to is None and not rejected:
        raise InputError(f"{scores} has no rejected image; give --up-to P to review accepted ones with low p-values")
    limit = NEAR * max(rejected, default=0.0) if up_to is None else up_to
    found = []
    for row in rows:
        p = row.p_value or 0.0
        if not DECISIONS[row.cells["accepted"]]:
            reason = f"rejected: p-value {p:.3g}"
        elif p <= limit:
            reason = f"borderline: accepted with p-value {p:.3g}, at most {limit:.3g}"
        else:
            continue
        found.append(ReviewRow(str(row.cells["path"]), "", row.label, p, reason))
    return sorted(found, key=lambda each: each.p_value or 0.0)


def sample_rows(scores: str, count: int, seed: int = 0) -> list[ReviewRow]:
    """Draw images at random, accepted and rejected alike; which ones depends on their paths and the seed alone."""
    paths = [str(row.cells["path"]) for row in _readable(scores)]
    if not 1 <= count <= len(paths):
        raise InputError(f"--sample must be from 1 to the {len(paths):,} readable images of {scores}, got {count:,}")
    chosen = identity.smallest(identity.hashed(map(os.fsencode, paths)), count, seed, "review")
    return [ReviewRow(paths[place]) for place in chosen]


def _readable(scores: str) -> Iterator[Any]:
    for row in read_scores(scores):
        if not row.cells.keys() >= {*WRITTEN, "path"}:
            raise InputError(f"{scores} was not written by `oodshape score`: its columns are {', '.join(row.cells)}")
        if row.p_value is not None:
            yield row


def write_table(rows: Iterable[ReviewRow], out: Path) -> None:
    """Write a CSV table whose column `label` is empty."""
    with replacing(out) as temporary, open_text(temporary) as file:
        write_csv((row.cells() for row in rows), file, list(ReviewRow("").cells()))


def write_tasks(rows: Iterable[ReviewRow], out: Path, root: Path) -> None:
    """Write the tasks that Label Studio imports; it serves the images in the folder `root`."""
    tasks = [{"data": {"image": _address(row.path, root)} | row.cells()} for row in rows]
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(tasks, indent=1), encoding="utf-8")


def _address(path: str, root: Path) -> str:
    if is_remote(path):
        return path
    inside = os.path.relpath(path, root)
    if inside.startswith(os.pardir):
        raise InputError(f"{path} is not in the folder {root}, which Label Studio serves; give --root")
    return "/data/local-files/?d=" + quote(inside.replace(os.sep, "/"), errors="surrogateescape")


class Labels(NamedTuple):
    """The images of one label, and how many had which; `""`: none, or labels that contradict each other."""

    paths: list[str]
    counts: Counter[str]


def read_labels(labels: Path, wanted: str) -> Labels:
    """Read the images that people gave the label `wanted`, from a Label Studio export or a filled-in table.

    Raises:
        InputError: There is no such image, or `id` is asked for and a labelled image was not drawn at random.
    """
    if not labels.is_file():
        raise InputError(f"there is no file {labels}")
    try:
        rows = list(_tasks(labels) if labels.suffix.lower() == ".json" else _table(labels))
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{labels} is not a table of `oodshape review` or Label Studio's JSON export of its tasks "
            f"({type(error).__name__})"
        ) from None
    for path, label, _ in rows:
        if label not in (*LABELS, ""):
            raise InputError(f"{labels}: {path} has the label {label!r}; the labels are {' and '.join(LABELS)}")
    chosen = next((path for path, label, reason in rows if label and reason != SAMPLE), None)
    if wanted == ID and chosen is not None:
        raise InputError(
            f"{labels} is no calibration set: {chosen} was selected by its p-value, and a calibration set is a random "
            "sample of valid inputs, accepted and rejected alike; label the images of oodshape review --sample N"
        )
    found = list(dict.fromkeys(path for path, label, _ in rows if label == wanted))
    if not found:
        raise InputError(f"{labels} has no image with the label {wanted}")
    return Labels(found, Counter(label for _, label, _ in rows))


def _table(labels: Path) -> Iterator[tuple[str, str, str]]:
    with labels.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        for row in csv.DictReader(file):
            yield row["path"], row["label"].strip().lower(), row["reason"]


def _tasks(labels: Path) -> Iterator[tuple[str, str, str]]:
    for task in json.loads(labels.read_text(encoding="utf-8")):
        given = {
            choice.strip().lower()
            for annotation in task["annotations"]
            if not annotation.get("was_cancelled")
            for result in annotation["result"]
            for choice in result["value"].get("choices", [])
        }
        yield task["data"]["path"], given.pop() if len(given) == 1 else "", task["data"]["reason"]


def write_list(paths: Iterable[str], out: Path) -> None:
    """Write a CSV list of images that commands take; its paths are relative to its own folder."""
    if out.suffix.lower() != ".csv":
        raise InputError(f"{out} must end in .csv: it is a list of images")
    folder = out.absolute().parent
    local = (path if is_remote(path) or os.path.isabs(path) else os.path.relpath(path, folder) for path in paths)
    with replacing(out) as temporary, open_text(temporary) as file:
        write_csv(({"path": path} for path in local), file, ["path"])
