"""Progress on a terminal: bars stand one below the other, and end with their work whatever happens."""

from __future__ import annotations

import io
import sys

import pytest

from oodshape.core import progress
from oodshape.core.progress import progress_bar, tracked


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
    for name, number in tracked({"msp": 1, "[knn]": 2}.items(), "ViT", None, "methods"):
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


def test_nothing_is_shown_when_asked_to_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    assert list(tracked({"msp": 1}.items(), "ViT", False, "methods")) == [("msp", 1)]
    assert terminal.getvalue() == ""


def test_without_a_terminal_long_work_says_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, clock = io.StringIO(), iter([0.0, 10.0, 40.0, 40.0, 50.0, 75.0, 75.0])
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress_bar("photos", 5000) as report:
        for done in (100, 1000, 2000, 3000):
            report(done)
    assert shown.getvalue() == "photos: 1,000 of 5,000 images\nphotos: 3,000 of 5,000 images\n"
