"""Progress on a terminal: bars stand one below the other, and end with their work whatever happens."""

from __future__ import annotations

import io
import sys

import pytest

from oodshape.core import progress
from oodshape.core.progress import progress_bar, track_named


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def opened(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stderr as a terminal; inside a test, since pytest puts its own back after a fixture."""
    shown = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


def test_a_bar_inside_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    seen = []
    for name, number in track_named({"msp": 1, "[knn]": 2}.items(), "ViT", None, "methods"):
        with progress_bar("photos", 50) as report:
            report(50)
        seen.append((name, number))
    assert seen == [("msp", 1), ("[knn]", 2)]
    text = terminal.getvalue()
    for words in ("ViT: msp", "ViT: [knn]", "photos", "50/50", "1/2"):
        assert words in text
    assert progress._running == []


def test_an_error_ends_every_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    with pytest.raises(ZeroDivisionError), progress_bar("outer", 2), progress_bar("inner", 2):
        1 / 0  # noqa: B018
    assert progress._running == []
    with progress_bar("again", 1) as report:
        report(1)
    assert "again" in terminal.getvalue()


def test_without_a_terminal_long_work_writes_a_line_soon_and_then_every_half_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_bar("photos", 6000) as report:
        for now[0], done in ((0.1, 1000), (4.0, 1100), (10.0, 1500), (39.0, 2950), (50.0, 4000), (60.0, 4600)):
            report(done)  # an earlier run has done the first 1,000, which is no speed
    assert shown.getvalue().splitlines() == [
        "photos: 1,500 of 6,000 images, 50 images/s, 0:01:30 left",
        "photos: 4,000 of 6,000 images, 60 images/s, 0:00:33 left",
    ]
