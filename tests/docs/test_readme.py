"""What the README shows runs, as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from oodshape import Detector, InputError
from oodshape.benchmark.spec import Benchmark
from oodshape.networks.loading import built

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
AUTO = (ROOT / "docs" / "auto.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def small_net() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 16, 9, stride=8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.Linear(16, 2))


@pytest.mark.filterwarnings("ignore:the network gives")  # it is not trained
def test_python(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"net": small_net()}
    (block,) = blocks("python")
    assert len(block.strip().splitlines()) <= 6
    exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\S+\.png \S+: (?:accepted|rejected) \(p = [01]\.\d+\)$", printed, flags=re.MULTILINE)) == 2
    assert Detector.load(folders / "guard.safetensors").alpha == 0.05


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
