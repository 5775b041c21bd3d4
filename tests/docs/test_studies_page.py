"""The stored tables are what `oodshape study` prints, and the script that stores them sees a difference."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from oodshape import METHODS
from oodshape.studies.catalog import STUDIES
from oodshape.studies.network import load_folder

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
fill = importlib.import_module("fill_studies")
KEPT = fill.read_stored()["tables"]
NETWORK = "imagenet_deit_tiny"  # the smallest features


def test_every_study_of_the_paper_is_stored_and_named_on_a_page() -> None:
    own = {"samples"}  # is answered in the guide to fitting
    assert set(KEPT) == {name for name, study in STUDIES.items() if not study.needs_proxy} - own
    pages = "".join(path.read_text(encoding="utf-8") for path in fill.STORED.parents[1].rglob("*.md"))
    assert all(f"`oodshape study {name}" in pages for name in KEPT)


def test_every_method_on_features_is_in_the_generalisation_table() -> None:
    """ODIN's step in the image is 0 on ImageNet; `auto` needs a proxy."""
    names = [line.split("|")[1].strip() for line in KEPT["generalisation"][2:]]
    assert names == [name for name, method in METHODS.items() if not method.wants_proxy]


def test_the_generalisation_table_is_what_the_command_prints(shared: Path) -> None:
    """One network of three; scripts/fill_studies.py --check compares everything."""
    network = load_folder(shared / "features" / NETWORK)
    now = fill.compute_table("generalisation", [network])
    place = KEPT["generalisation"][0].split("|").index(f" {NETWORK} ")
    ours = [[line.split("|")[at].strip() for at in (1, place)] for line in KEPT["generalisation"][2:]]
    theirs = [[cell.strip() for cell in line.split("|")[1:3]] for line in now[2:]]
    drawn = {"ash-rand", "knn", "nnguide", "vim"}  # these hang on a draw
    for (name, kept), (same, value) in zip(ours, theirs, strict=True):
        assert name == same
        assert float(kept) == pytest.approx(float(value), abs=2.0 if name in drawn else 0.3), name


def test_differences_are_seen_and_last_digits_are_not() -> None:
    table = ["| method | AUROC |", "| --- | ---: |", "| msp | 81.58 |"]
    assert not list(fill.differences(table, [*table[:2], "| msp | 81.60 |"]))
    assert list(fill.differences(table, [*table[:2], "| msp | 84.60 |"]))
    assert list(fill.differences(table, [*table[:2], "| mls | 81.58 |"]))
    assert list(fill.differences(table, table[:2]))
    assert not list(fill.differences(["| a | 0.958 |"], ["| a | 0.960 |"]))
    assert list(fill.differences(["| a | 0.958 |"], ["| a | 0.900 |"]))
