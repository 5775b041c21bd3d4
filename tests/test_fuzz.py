"""The fuzzer runs on every kind of file, is the same in every run, and sees what must not be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from oodshape import InputError

FUZZ = Path(__file__).parents[1] / "fuzz"
KINDS = (
    *("guard", "watch", "statistics", "moments", "results", "scores-csv", "scores-jsonl", "scores-parquet", "part"),
    *(
        "cache",
        "collected",
        "cifar",
        "mnist",
        "svhn",
        "imagenet",
        "imagenet-json",
        "lists",
        "toml",
        "paper",
        "npz",
        "weights",
    ),
)


@pytest.fixture(scope="module")
def run() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FUZZ))
    import run as module

    yield module
    sys.path.remove(str(FUZZ))


def test_every_kind_is_there(run: ModuleType) -> None:
    made = run.every()
    assert tuple(made) == KINDS


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_of_each_kind_end_well(run: ModuleType, name: str, tmp_path: Path) -> None:
    kind = run.every()[name]()
    said = {run.outcome(kind, number, 1, tmp_path / "files", {}) for number in range(8)}
    assert said <= {"refused", "read"}
    assert run.damaged(kind, 3, 1)[1] == run.damaged(kind, 3, 1)[1]


def test_what_must_not_be_is_seen(run: ModuleType, tmp_path: Path) -> None:
    def refuse(folder: Path) -> bytes:
        data = (folder / "a").read_bytes()
        if data != b"whole":
            raise {0: KeyError("x"), 1: InputError("two\nlines")}[len(data) % 2]
        return data

    def outcomes(kind: object) -> set[str]:
        return {run.outcome(kind, number, 0, tmp_path, {}) for number in range(40)}

    wrong = outcomes(run.Kind("a", ({"a": b"whole"},), refuse))
    assert any("KeyError" in said for said in wrong)
    assert any("no line" in said for said in wrong)
    believed = run.Kind("a", ({"a": b"whole"},), lambda folder: (folder / "a").read_bytes(), lambda a, b: a == b)
    assert "silent difference" in outcomes(believed)
