"""The page on speed shows what was measured, and says where ours is behind."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
draw_speed = importlib.import_module("draw_speed")


def side(fit: float | None, score: float, scored: int = 100, **more) -> dict:
    found = {"score": score, "score_mb": 10, "scored": scored, **more}
    return found if fit is None else {**found, "fit": fit, "fit_mb": 20}


def cell(method: str, images: int, ours: dict, theirs: dict, **ratio: float) -> dict:
    return {"method": method, "images": images, "ours": ours, "theirs": theirs, "ratio": ratio}


FOUND = {
    "cells": [
        cell("msp", 100, side(0.1, 1.0), side(None, 2.0), score=2.0),
        cell("vim", 100, side(0.5, 1.0), side(1.0, 300.0, scored=10), fit=2.0, score=300.0),
        cell("vim", 400, side(0.5, 1.0), {"failed": "needs more than 18 GB"}),
        cell("nci", 100, side(1.0, 1.0), side(0.5, 0.99), fit=0.5, score=0.99),
    ]
}


def test_a_cell_says_the_ratio_and_what_could_not_be_run() -> None:
    lines = draw_speed.table(FOUND, "score").splitlines()
    assert lines[0] == "| method | 100 images | 400 images |"
    assert lines[2] == "| msp | **2x** (1 s, 10 MB; 2 s, 10 MB) |  |"
    assert lines[3] == ("| vim | **300x** (1 s, 10 MB; 300* s, 10 MB) | 1 s, 10 MB; theirs needs more than 18 GB |")
    fits = draw_speed.table(FOUND, "fit")
    assert "msp" not in fits, "theirs has nothing to fit"
    assert "| 0.5 s, 20 MB; theirs needs more than 18 GB |" in fits


def test_where_ours_is_behind_is_said_with_a_reason() -> None:
    assert draw_speed.behind(FOUND) == (f"- nci, fit, 100 images: 2x the time ({draw_speed.MEAN})")
    assert draw_speed.behind({"cells": FOUND["cells"][:2]}) == "In no cell."


def test_a_cell_that_is_behind_without_a_reason_stops_the_page() -> None:
    slow = cell("gradnorm", 100, side(0.1, 2.0), side(None, 1.0), score=0.5)
    with pytest.raises(SystemExit, match=r"gradnorm, score, 100 images: ours takes 2x the time, and nobody knows why"):
        draw_speed.behind({"cells": [*FOUND["cells"], slow]})
    benches = (ROOT / "benches" / "pairs.py").read_text()
    for name, step in draw_speed.WHY:
        assert f'"{name}"' in benches, "a reason for a method that is not measured"
        assert step in ("fit", "score")


def test_the_page_is_what_its_figures_say() -> None:
    """Else: python scripts/draw_speed.py."""
    found = json.loads((ROOT / "docs" / "speed.json").read_text())
    page = (ROOT / "docs" / "speed.md").read_text()
    assert draw_speed.filled(page, found) == page
    assert draw_speed.filled(page, {**found, "minutes": found["minutes"] + 1}) != page
    methods = {cell["method"] for cell in found["cells"]}
    for name in methods:
        assert f"\n| {name} | " in page
