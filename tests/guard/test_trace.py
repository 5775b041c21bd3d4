"""How straight the way through the code is: a reader who follows Guard.fit changes files this often."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import oodshape
from oodshape import Guard

SOURCE = str(Path(oodshape.__file__).parent)
SWITCHES, FILES = 400, 34  # 0.1.0 had 348 over 31 files; the goal is 120: lower these as the way becomes straighter


def test_a_fit_does_not_wander(digits: Path) -> None:
    """Two calls in a row into different files of the package are a switch; in this process, imports left out."""
    given = {"images": digits / "train", "calibrate": digits / "val", "method": "msp", "progress": False}
    Guard.fit("zoo:digits-convnet", **given)  # everything is imported
    files: list[str] = []

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            files.append(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        Guard.fit("zoo:digits-convnet", **given)
    finally:
        sys.setprofile(before)
    switches = sum(one != next_one for one, next_one in pairwise(files))
    assert 0 < switches <= SWITCHES
    assert len(set(files)) <= FILES
