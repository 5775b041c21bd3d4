"""Sentences in a terminal of 80 columns, and in a pipe."""

from __future__ import annotations

import shlex
import sys
from io import StringIO

import pytest

from oodshape.cli.terminal import say, say_command
from oodshape.core.errors import no_such

SENTENCE = "of images like the held-out ones, at most 5 % are rejected on average (split-conformal); " * 3


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def shown_in(stream: StringIO, monkeypatch: pytest.MonkeyPatch) -> StringIO:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", stream)
    return stream


def test_a_terminal_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = shown_in(Terminal(), monkeypatch)
    say(f"promise        {SENTENCE}", indent=15)
    say("short  table  line")
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) >= 4
    assert all(line.startswith(" " * 15) for line in lines[1:-1])
    assert " ".join(" ".join(lines[:-1]).split()) == " ".join(f"promise {SENTENCE}".split())
    assert lines[-1] == "short  table  line"
    say(30 * "5 % ")
    assert not any(line.startswith("%") for line in terminal.getvalue().splitlines())


def test_a_pipe_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = shown_in(StringIO(), monkeypatch)
    say(SENTENCE)
    say_command("next: ", ["oodshape", *30 * ["word"]])
    assert pipe.getvalue().count("\n") == 2


def test_a_long_command_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = shown_in(Terminal(), monkeypatch)
    words = ["oodshape", "score", "--guard", "a b.safetensors", *10 * ["--images", "FOLDER"]]
    say_command("next: ", words)
    head, *lines = terminal.getvalue().splitlines()
    assert head == "next:"
    assert max(map(len, lines)) <= 80
    assert shlex.split("\n".join(lines).replace("\\\n", " ")) == words


def test_a_mistyped_name_gets_the_nearest_and_no_list() -> None:
    known = ["react", *(f"method-{number}" for number in range(36))]
    assert str(no_such("method", "raect", known)) == "no method is called 'raect'; did you mean react?"
    assert "there are react, method-0" in str(no_such("method", "?", known))
