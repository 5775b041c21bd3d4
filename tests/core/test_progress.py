"""Progress on a terminal: bars stand one below the other, and end with their work whatever happens."""

from __future__ import annotations

import io
import re
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


def test_without_a_terminal_long_work_says_a_line_soon_and_then_now_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_bar("photos", 5000) as report:
        for now[0], done in ((4.0, 100), (10.0, 500), (39.0, 1950), (50.0, 3000), (60.0, 3600)):
            report(done)
    assert shown.getvalue().splitlines() == [
        "photos: 500 of 5,000 images, 50 images/s, 1:30 left",
        "photos: 3,000 of 5,000 images, 60 images/s, 0:33 left",
    ]


def test_speed_and_time_left_are_said_from_the_first_batch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = opened(monkeypatch), [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress_bar("photos", 6400) as report:
        now[0] = 2.0
        report(64)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "32 images/s 3:18 left" in plain


def test_what_an_earlier_run_has_done_does_not_count_as_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    pace = progress.Pace()
    pace.at(5000)
    assert (pace.speed, pace.said("images"), pace.left(6000)) == (None, "", None)
    now[0] = 10.0
    pace.at(5500)
    assert (pace.speed, pace.left(6000)) == (50.0, 10.0)
    now[0] = 14.0  # nothing new for four seconds
    assert pace.left(6000) == 6.0
