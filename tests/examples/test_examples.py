"""Every example runs as it stands, and says what it shows."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
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


@pytest.mark.parametrize("name", ["practitioner", "researcher"])
def test_the_notebooks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    shown = []
    for cell in json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), name, "exec"), names)
            shown += cell["outputs"]
    assert len(shown) >= 3  # they are stored with what they show


def test_every_example_is_shown() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SHOWN, "demo", "mlflow_guard", "lightning_callback"}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "hugging_face":
        pytest.importorskip("datasets")
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.fullmatch(SHOWN[name], printed), printed


def test_the_demo_ends_with_what_was_found(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--methods", "msp,optfs", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    end = done.stdout[done.stdout.index("\nfitted: auto (") :].strip().splitlines()
    assert len(end) <= 15
    assert re.fullmatch(r"false rejection rate: \d+\.\d % of 288 test images \(alpha 5 %\)", end[1])
    sets = [line.split()[0] for line in end[3:9]]
    assert sets == ["digits89", "letters", "photos", "textures", "gaussian", "uniform"]
    for name, line in (("check", end[-2]), ("report", end[-1])):
        assert line.endswith((tmp_path / f"{name}.html").as_uri())
        assert (tmp_path / f"{name}.html").is_file()
    assert "Lowest FPR95: DenseNet101 (CIFAR-10): " in (tmp_path / "report.html").read_text(encoding="utf-8")


GOLDEN = Path(__file__).parents[1] / "golden" / "0.2.0"


def run_with(package: str, *words: object, cwd: Path) -> str:
    """What an example prints, where the package that it needs can be imported; its warnings are not ours."""
    if subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{package} cannot be imported")
    allowed = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_URI": (cwd / "runs").as_uri()}
    command = [sys.executable, str(EXAMPLES / f"{words[0]}.py"), *map(str, words[1:])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ | allowed, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_guard_is_logged_and_loaded_by_mlflow(tmp_path: Path) -> None:
    images = [GOLDEN / "new" / name for name in ("00.png", "05.png")]
    printed = run_with("mlflow", "mlflow_guard", GOLDEN / "guarded.onnx", *images, cwd=tmp_path)
    assert printed.splitlines() == [f"{images[0]}: class a, accepted", f"{images[1]}: class a, rejected"]


def test_lightning_logs_figures_during_training(tmp_path: Path) -> None:
    printed = run_with("lightning", "lightning_callback", cwd=tmp_path)
    figures = dict(line.split(": ") for line in printed.splitlines())
    assert len(figures) == 9  # the accuracy, and two figures for each of two methods and two sets
    assert float(figures["ood/mds/photos/auroc"]) > 0.7 > float(figures["ood/mds/photos/fpr95"])


def test_monitoring_uses_metrics_that_the_service_has(tmp_path: Path) -> None:
    service = pytest.importorskip("oodshape.guard.service.metrics")
    known = set(re.findall(r"^# TYPE (\w+)", service.Metrics(watch=True).text().decode(), re.M))
    board, alerts = ((EXAMPLES / "monitoring" / name).read_text() for name in ("dashboard.json", "alerts.yml"))
    for text in (board, alerts):
        used = {each.removesuffix("_bucket") for each in re.findall(r"\boodshape_\w+", text)}
        assert used <= known
        assert len(used) > 7
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool, of Debian's package prometheus")
    queries = [each["expr"] for panel in json.loads(board)["panels"] for each in panel["targets"]]
    rules = [{"record": "r", "expr": query.replace("$__rate_interval", "5m")} for query in queries]  # to be parsed
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    for words in (("check", "rules", tmp_path / "panels.yml", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        subprocess.run(["promtool", *words], check=True, capture_output=True, cwd=EXAMPLES / "monitoring")


def test_triton_takes_what_an_exported_file_has() -> None:
    pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc]")
    from google.protobuf import text_format
    from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

    config = text_format.Parse((EXAMPLES / "triton_server" / "guarded" / "config.pbtxt").read_text(), ModelConfig())
    session = pytest.importorskip("onnxruntime").InferenceSession(str(GOLDEN / "guarded.onnx"))
    types = {"tensor(float)": "TYPE_FP32", "tensor(bool)": "TYPE_BOOL"}
    for stated, found in ((config.input, session.get_inputs()), (config.output, session.get_outputs())):
        assert [each.name for each in stated] == [each.name for each in found]
        assert [DataType.Name(each.data_type) for each in stated] == [types[each.type] for each in found]
        for each, real in zip(stated, found, strict=True):
            assert len(each.reshape.shape if each.HasField("reshape") else each.dims) == len(real.shape) - 1


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
