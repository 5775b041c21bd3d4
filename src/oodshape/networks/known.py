"""The zoo's networks by name, from `known.csv`: family, ID set, number of classes; importable without torch."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Literal, NamedTuple, cast

Family = Literal["ConvNet", "transformer", "MLP"]


class Known(NamedTuple):
    """What is known of a network without building it."""

    family: Family
    id_set: str
    classes: int


_TEXT = (files("oodshape.networks") / "known.csv").read_text(encoding="utf-8")
KNOWN: dict[str, Known] = {
    row["name"]: Known(cast(Family, row["family"]), row["id_set"], int(row["classes"]))
    for row in csv.DictReader(_TEXT.splitlines())
}
