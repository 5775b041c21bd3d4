"""How straight the way through the code is: how often a reader who follows Guard.fit changes files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import oodshape
from oodshape import Guard

SOURCE = str(Path(oodshape.__file__).parent)
STEPS, FILES = 158, 53  # 0.1.0, counted alike: 120 over 31 files, and no value was checked; short files cost six


def test_a_fit_does_not_wander(digits: Path) -> None:
    """A step is a function that calls one in another file: counted once, however often a loop repeats it."""
    given = {"images": digits / "train", "calibrate": digits / "val", "method": "msp", "progress": False}
    Guard.fit("zoo:digits-convnet", **given)  # everything is imported
    steps: set[tuple[str, str, str, str]] = set()

    def place(code: CodeType) -> tuple[str, str]:
        return code.co_filename, code.co_qualname.partition(".<locals>")[0]

    def called(frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCE):
            caller = caller.f_back
        if event != "call" or caller is None or not frame.f_code.co_filename.startswith(SOURCE):
            return
        if frame.f_code.co_filename != caller.f_code.co_filename:
            steps.add((*place(caller.f_code), *place(frame.f_code)))

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        Guard.fit("zoo:digits-convnet", **given)
    finally:
        sys.setprofile(before)
    files = {file for step in steps for file in (step[0], step[2])}
    assert 0 < len(steps) <= STEPS, sorted(steps)
    assert len(files) <= FILES
