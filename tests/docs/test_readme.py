"""What the README shows runs, as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oodshape import InputError
from oodshape.benchmark.spec import Benchmark
from oodshape.networks.loading import built

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
AUTO = (ROOT / "docs" / "auto.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_python(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("python")
    assert len([line for line in block.splitlines() if line]) <= 6
    exec(compile(block, "README.md", "exec"), {})
    (shown,) = blocks("text")
    kept, now = shown.splitlines(), capsys.readouterr().out.splitlines()
    assert now[0] == kept[0]
    counts = [list(map(int, re.findall(r"\d+", line))) for line in (kept[1], now[1])]
    assert counts[0][1] == counts[1][1]
    assert abs(counts[0][0] - counts[1][0]) <= 0.02 * counts[0][1]  # `auto` may change a little


def test_commands_are_narrow() -> None:
    assert all(
        len(line) <= 80 for block in blocks("") for line in block.splitlines() if line.startswith(("oodshape", "  --"))
    )


def test_toml() -> None:
    (text,) = blocks("toml", (ROOT / "docs" / "results.md").read_text())
    benchmark = Benchmark.parse(text, where="results.md", base=Path())
    assert benchmark.models[0].title == "my net"
    with pytest.raises(InputError, match="cannot import 'mypackage.models:guarded_net'"):
        built(benchmark.models[0].name)


def test_commands_exist() -> None:
    from oodshape.cli.app import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    used = set(re.findall(r"^oodshape (\w+)", README + AUTO, flags=re.MULTILINE))
    assert used <= known
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
