"""How straight the way through the code is: how often a reader who follows Guard.fit changes files."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import oodshape
from oodshape import Guard

SOURCE = str(Path(oodshape.__file__).parent)
Step = tuple[str, str, str, str]
# The threads that decode included, without which there are 105. 0.1.0 had 120 over 31 files, and neither limits, nor
# large pictures, nor a check of a value's fields.
STEPS, FILES = 116, 48
SWITCHES = 279  # every call of this thread, those of the ten batches too; 0.1.0: 842


def test_a_fit_does_not_wander(digits: Path) -> None:
    """A step is a function that calls one in another file: counted once, however often a loop repeats it."""
    given = {"images": digits / "train", "calibrate": digits / "val", "method": "msp", "progress": False}
    Guard.fit("zoo:digits-convnet", **given)  # everything is imported
    steps: set[Step] = set()
    switches: list[Step] = []  # of this thread: those that decode go over every image
    here = threading.get_ident()

    def place(code: CodeType) -> tuple[str, str]:
        return code.co_filename, code.co_qualname.partition(".<locals>")[0]

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCE):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCE):
            caller = caller.f_back
        if caller is not None and frame.f_code.co_filename != caller.f_code.co_filename:
            step = (*place(caller.f_code), *place(frame.f_code))
            steps.add(step)
            if threading.get_ident() == here:
                switches.append(step)

    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(called)
    sys.setprofile(called)
    try:
        Guard.fit("zoo:digits-convnet", **given)
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])  # type: ignore[arg-type]  # None is what it was
    files = {file for step in steps for file in (step[0], step[2])}
    assert 0 < len(steps) <= STEPS, sorted(steps)
    assert len(files) <= FILES
    assert len(switches) <= SWITCHES, sorted(switches)
