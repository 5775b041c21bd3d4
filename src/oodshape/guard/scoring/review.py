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
from urllib.parse import quote

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.guard.scoring.score_formats import WRITTEN, Cells, open_text, read_scores, write_csv
from oodshape.images import identity
from oodshape.images.sources.storage import is_remote

OOD, ID = LABELS = ("ood", "id")
COLUMNS = ("path", "label", "class", "p_value", "reason")
SAMPLE = "random sample"  # the reason of an image that was drawn, which its label comes back with
NEAR = 2.0  # times the largest p-value of a rejected image
INTERFACE = (
    '<View><Image name="image" value="$image"/><Text name="reason" value="$reason"/>'
    '<Choices name="label" toName="image"><Choice value="ood"/><Choice value="id"/></Choices></View>'
)


def select_rows(scores: str) -> list[Cells]:
    """Return rejected images and accepted ones with at most twice the p-value of any of them, lowest p-values first."""
    rows = _readable(scores)
    rejected = [p for p, accepted, _ in rows if not accepted]
    if not rejected:
        raise InputError(f"{scores} has no rejected image to label; --sample N draws from all images")
    limit = NEAR * max(rejected)
    found = []
    for p, accepted, cells in rows:
        reason = f"borderline: accepted with p-value {p:.3g}, at most {limit:.3g}"
        if not accepted or p <= limit:
            values = (cells["path"], "", cells["class"], p, reason if accepted else f"rejected: p-value {p:.3g}")
            found.append(dict(zip(COLUMNS, values, strict=True)))
    return sorted(found, key=lambda row: float(row["p_value"]))


def sample_rows(scores: str, count: int) -> list[Cells]:
    """Draw images at random, accepted and rejected alike; which ones depends on their paths and the seed alone.

    Class and p-value are left out: they would influence the labels.
    """
    paths = [cells["path"] for _, _, cells in _readable(scores)]
    if not 1 <= count <= len(paths):
        raise InputError(f"--sample must be from 1 to the {len(paths):,} readable images of {scores}, got {count:,}")
    chosen = identity.smallest(identity.hash_each(map(os.fsencode, paths)), count, 0, "review")
    return [dict(zip(COLUMNS, (paths[place], "", "", None, SAMPLE), strict=True)) for place in chosen]


def _readable(scores: str) -> list[tuple[float, bool, Cells]]:
    """(p-value, whether it is accepted, all columns) of each image that could be read."""
    found = []
    for row in read_scores(scores):
        if not row.cells.keys() >= {*WRITTEN, "path", "class"}:
            raise InputError(f"{scores} was not written by `oodshape score`: its columns are {', '.join(row.cells)}")
        if row.p_value is not None:
            found.append((row.p_value, bool(row.accepted), row.cells))
    return found


def write_review(rows: Iterable[Cells], out: Path, served: Path | None = None) -> None:
    """Write a table with an empty column `label`, or tasks for Label Studio, which serves the folder `served`."""
    with replacing(out) as temporary, open_text(temporary) as file:
        if served is None:
            write_csv(rows, file, COLUMNS)
        else:
            json.dump([{"data": {"image": _address(row["path"], served)} | row} for row in rows], file, indent=1)


def _address(path: str, served: Path) -> str:
    inside = os.path.relpath(path, served)
    if is_remote(path):
        return path
    if inside.startswith(os.pardir):
        raise InputError(f"{path} is not in the folder {served}, which Label Studio serves; give --root")
    return "/data/local-files/?d=" + quote(inside.replace(os.sep, "/"), errors="surrogateescape")


def read_labels(labels: Path, wanted: str) -> tuple[list[str], Counter[str], bool]:
    """Return (images with the label `wanted`, number of images by label, whether p-values selected any of them).

    The label of an image without one clear label is empty.

    Args:
        labels: A Label Studio export (.json) of tasks of `write_review`, or the table with its labels filled in.
        wanted: `ood` or `id`; for `id` every labelled image must have been drawn at random.
    """
    if not labels.is_file():
        raise InputError(f"there is no file {labels}")
    try:
        rows = list(_tasks(labels) if labels.suffix.lower() == ".json" else _table(labels))
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error, RecursionError) as error:
        raise InputError(
            f"{labels} is not a table of `oodshape review` or Label Studio's JSON export of its tasks "
            f"({type(error).__name__})"
        ) from None
    for path, label, reason in rows:
        if label not in (*LABELS, ""):
            raise InputError(f"{labels}: {path} has the label {label!r}; the labels are {' and '.join(LABELS)}")
        if wanted == ID and label and reason != SAMPLE:
            raise InputError(
                f"{labels} is no calibration set: {path} was selected by its p-value, and a calibration set is a "
                "random sample of valid inputs, accepted and rejected alike; label images of oodshape review --sample N"
            )
    given: dict[str, set[str]] = {}
    for path, label, _ in rows:
        given.setdefault(path, set()).update({label} - {""})
    clear = {path: next(iter(each)) if len(each) == 1 else "" for path, each in given.items()}
    found = [path for path, label in clear.items() if label == wanted]
    if not found:
        raise InputError(f"{labels} has no image with the label {wanted}")
    return found, Counter(clear.values()), any(label and reason != SAMPLE for _, label, reason in rows)


def _table(labels: Path) -> Iterator[tuple[str, str, str]]:
    with labels.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        for row in csv.DictReader(file):
            yield row["path"], row["label"].strip().lower(), row["reason"]


def _tasks(labels: Path) -> Iterator[tuple[str, str, str]]:
    for task in json.loads(labels.read_text(encoding="utf-8")):
        valid = [each["result"] for each in task["annotations"] if not each.get("was_cancelled")]
        given = {choice for results in valid for each in results for choice in each["value"].get("choices", [])}
        yield task["data"]["path"], given.pop().strip().lower() if len(given) == 1 else "", task["data"]["reason"]


def write_list(paths: Iterable[str], out: Path) -> None:
    """Write a CSV list of images that commands take; its paths are relative to its own folder."""
    if out.suffix.lower() != ".csv":
        raise InputError(f"{out} must end in .csv: it is a list of images")
    fixed = (path if is_remote(path) or os.path.isabs(path) else os.path.relpath(path, out.parent) for path in paths)
    with replacing(out) as temporary, open_text(temporary) as file:
        write_csv(({"path": path} for path in fixed), file, ["path"])
