"""Every example runs as it stands, and says what it shows."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from oodshape.cli.all_commands import app

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "pil_list": r"test: (8\d|9\d|100)% accepted\nphotos: \d\d?% accepted\n",
    "numpy_batch": r"(image \d: class \d, p = \d\.\d\d, (accepted|rejected)\n){3}AUROC .*: (0\.9\d|1\.00)\n",
    "hugging_face": r"digit \d: (accepted|rejected) \(p = \d\.\d\d\)\n(8|9|10) of 10 accepted\n",
    "data_loader": r"\[(True|False)(, (True|False)){31}\]\n\[(True|False)(, (True|False)){7}\]\n",
    "two_threads": r"digits: (3[5-9]|40) of 40 accepted\nphotos: \d\d? of 40 accepted\n",
}


class Fake(types.SimpleNamespace):
    """The little of Hugging Face's Dataset that is used, where it is not installed: the protocol is the same."""

    def __len__(self) -> int:
        return len(self.columns["image"])

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {name: values[row] for name, values in self.columns.items()}


FAKE = types.SimpleNamespace(
    Dataset=types.SimpleNamespace(from_dict=lambda columns, features: Fake(columns=columns, features=features)),
    Features=dict,
    Image=object,
    ClassLabel=types.SimpleNamespace,
)


def test_every_example_is_shown() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHOWN, "demo"}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "hugging_face" and find_spec("datasets") is None:
        monkeypatch.setitem(sys.modules, "datasets", FAKE)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.fullmatch(SHOWN[name], printed), printed


def test_the_demo_ends_with_what_was_found(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--methods", "msp,optfs", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    end = done.stdout[done.stdout.index("\nfitted: auto (") :].strip().splitlines()
    assert len(end) <= 15
    assert re.fullmatch(r"false rejection rate: \d+\.\d % of 288 test images \(target 5 %\)", end[1])
    sets = [line.split()[0] for line in end[3:9]]
    assert sets == ["digits89", "letters", "photos", "textures", "gaussian", "uniform"]
    for name, line in (("check", end[-2]), ("report", end[-1])):
        assert line.endswith((tmp_path / f"{name}.html").as_uri())
        assert (tmp_path / f"{name}.html").is_file()
    assert "Lowest FPR95: DenseNet101 (CIFAR-10): " in (tmp_path / "report.html").read_text(encoding="utf-8")


SCALE = Path(__file__).parents[2] / "examples" / "scale"


@pytest.mark.parametrize("name", ["slurm.sh", "kubernetes-job.yaml", "ray-cluster.yaml"])
def test_every_command_and_option_exists(name: str) -> None:
    text = re.sub(r"\\\n[#\s]*", " ", (SCALE / name).read_text())
    if name.endswith(".sh"):
        assert subprocess.run(["bash", "-n", str(SCALE / name)], check=False).returncode == 0
    else:
        yaml = pytest.importorskip("yaml", reason="needs PyYAML")
        assert isinstance(yaml.safe_load((SCALE / name).read_text()), dict)
    lines = re.findall(r"oodshape ((?:fit|collect|score|merge) [^\n;`']*)", text)
    assert lines
    group = typer.main.get_command(app)
    for line in lines:
        command, *words = shlex.split(line.replace("|| [ $? -eq 3 ]", ""), comments=True)
        known = {flag for option in group.commands[command].params for flag in option.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
