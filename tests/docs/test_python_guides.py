"""Every Python block of these guides runs, in order, as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def run(name: str, names: dict[str, object]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (GUIDES / name).read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), names)


@pytest.fixture
def names(folders: Path) -> dict[str, object]:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 16, 9, stride=8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    images = torch.randn(82, 3, 40, 48, generator=torch.Generator().manual_seed(0)).cumsum(2)
    parts = {"train_loader": images[:40], "val_loader": images[40:80], "new_loader": images[80:]}
    loaders = {name: DataLoader(TensorDataset(part, torch.zeros(len(part)))) for name, part in parts.items()}
    return {"net": torch.nn.Sequential(*layers, torch.nn.Linear(16, 2)), **loaders}


@pytest.mark.filterwarnings("ignore:no method separates", "ignore:the network gives")  # it is not trained
def test_python(names: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    run("python.md", names)
    printed = capsys.readouterr().out
    assert re.search(r"^\[(True|False), (True|False)\]$", printed, flags=re.MULTILINE)
    assert re.match(r"(\[(True|False)\]\n){2}(class)?[01] [01] \S+ [01]\.\d+ (True|False) \S+\n", printed)
    assert "[ 1 -1]" in printed
    assert Path("guarded.pt2").is_file()


def test_export(names: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    for library in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(library)
    run("export.md", names)
    assert "guarded.onnx: 8 images in onnxruntime and torch" in capsys.readouterr().out
    np.testing.assert_array_equal(names["strict"], np.asarray(names["score"]) >= 9.0)
    run("serve.md", names)
    assert re.fullmatch(r"(cat|dog) (True|False)\n", capsys.readouterr().out)
    assert names["pixels"].shape == (2, 3, 224, 224)


def test_watch(names: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    run("watch.md", names)
    printed = capsys.readouterr().out
    assert "no alarm; evidence " in printed
    assert "up to 7.14%" in printed  # the guide's 7.1 %
    alarm, at, since = printed.splitlines()[-1].split()
    assert alarm == "True"
    assert 2000 < int(at) < 2100
    assert abs(int(since) - 2000) < 50


def test_decide(names: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    run("decide.md", names)
    assert capsys.readouterr().out == "[True, True, True, False, False]\n"
