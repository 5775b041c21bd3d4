"""Every Python block and every command of the guides and the README runs, in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from commands import call
from oodshape.benchmark.spec import Benchmark

ROOT = Path(__file__).parents[2]
DOCS, README = ROOT / "docs", (ROOT / "README.md").read_text()
GUIDES = DOCS / "guides"


def test_the_guides_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OODSHAPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    said: dict[str, str] = {}
    for guide in ("tutorial", "guides/fit", "guides/check"):
        text = (DOCS / f"{guide}.md").read_text()
        names: dict[str, object] = {}
        for language, block in re.findall(r"```(\w*)\n(.*?)```", text, flags=re.DOTALL):
            if language == "python":
                if file := re.match(r"# (\w+\.py)\n", block):  # a block that is a file of the user's
                    (tmp_path / file[1]).write_text(block)
                exec(compile(block, guide, "exec"), names)
            elif block.startswith("oodshape"):
                for line in block.replace("\\\n", " ").strip().splitlines():
                    done = call(*shlex.split(line)[1:], cwd=tmp_path)
                    assert done.returncode == 0, (line, done.stderr)
                    said[shlex.split(line)[1]] = done.stdout
    assert set(said) == {"fit", "calibrate", "inspect", "score", "check"}
    assert "guarantee: expected false rejection rate <= 5 %" in said["fit"]
    assert "consistent with the guarantee" in said["check"]
    for file in ("guard.safetensors", "mine.safetensors", "scores.csv", "scores.html", "check.html"):
        assert (tmp_path / file).stat().st_size > 1000
    assert "letters/0.png " in capsys.readouterr().out


def run(name: str, names: dict[str, object]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (GUIDES / name).read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), names)


@pytest.fixture
def names(folders: Path, net: torch.nn.Module) -> dict[str, object]:
    images = torch.randn(82, 3, 40, 48, generator=torch.Generator().manual_seed(0)).cumsum(2)
    parts = {"train_loader": images[:40], "val_loader": images[40:80], "new_loader": images[80:]}
    loaders = {name: DataLoader(TensorDataset(part, torch.zeros(len(part)))) for name, part in parts.items()}
    return {"net": net, **loaders}


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
    assert "up to 7.1 %" in printed  # the guide's 7.1 %
    alarm, at, since = printed.splitlines()[-1].split()
    assert alarm == "True"
    assert 2000 < int(at) < 2100
    assert abs(int(since) - 2000) < 50


def test_decide(names: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    run("decide.md", names)
    assert capsys.readouterr().out == "[True, True, True, False, False]\n"


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_python_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    first, comparison = blocks("python")
    assert len([line for line in first.splitlines() if line]) <= 6
    exec(compile(first, "README.md", "exec"), names := {})
    (shown,) = blocks("text")
    kept, now = shown.splitlines(), capsys.readouterr().out.splitlines()
    exec(compile(comparison, "README.md", "exec"), names)
    assert capsys.readouterr().out.startswith("OOD detection on evaluation: zoo:digits-vit")
    assert now[0] == kept[0]
    counts = [list(map(int, re.findall(r"\d+", line))) for line in (kept[1], now[1])]
    assert counts[0][1] == counts[1][1]
    assert abs(counts[0][0] - counts[1][0]) <= 0.02 * counts[0][1]  # `auto` may change a little


def test_commands_of_the_readme_are_narrow() -> None:
    lines = [line for block in blocks("") for line in block.splitlines()]
    assert all(len(line) <= 80 for line in lines if line.startswith(("oodshape", "  --")))


def test_toml() -> None:
    (text,) = blocks("toml", (GUIDES / "evaluate.md").read_text())
    assert Benchmark.parse(text, where="evaluate.md", base=Path()).models[0].title == "ResNet-18"
