"""Every Python block of the README runs, in order, as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from oodshape import Detector, InputError
from oodshape.benchmark import Benchmark
from oodshape.sources import built

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture
def folders(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    for name, count in (("train", 40), ("val", 40), ("inbox", 2)):
        for i in range(count):
            path = tmp_path / name / f"class{i % 2}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(40, 50, 3), dtype=np.uint8)).save(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 16, 9, stride=8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    names = {"net": torch.nn.Sequential(*layers, torch.nn.Linear(16, 2))}
    assert len(blocks("python")) == 4
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert re.search(r"^\d -?\d+\.\d+ [01]\.\d+ (accepted|rejected)$", printed, flags=re.MULTILINE)
    figures = dict(re.findall(r"^(\S+) +AUROC (\d\.\d+)", printed, flags=re.MULTILINE))
    assert set(figures) == {"msp", "energy", "react", "optfs-e"}
    assert float(figures["optfs-e"]) > 0.9
    assert Detector.load(folders / "guard.safetensors").alpha == 0.05


def test_toml() -> None:
    (text,) = blocks("toml")
    benchmark = Benchmark.parse(text, where="README", base=Path())
    assert benchmark.models[0].title == "my net"
    with pytest.raises(InputError, match="cannot import 'mypackage.models:guarded_net'"):
        built(benchmark.models[0].name)


def test_commands_exist() -> None:
    from oodshape.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    used = set(re.findall(r"^oodshape (\w+)", README, flags=re.MULTILINE))
    assert used <= known
    makefile = (Path(__file__).parents[1] / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
