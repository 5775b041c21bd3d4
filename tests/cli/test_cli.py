"""The command line as a user runs it: in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oodshape
from commands import call_new as call
from oodshape.benchmark.results import Results
from oodshape.methods.records import RECORDS
from oodshape.report.pages.benchmark_page import write_page
from synthetic import results


def test_version() -> None:
    done = call("--version")
    assert (done.returncode, done.stdout.strip()) == (0, oodshape.__version__)


def test_bench_writes_a_table_a_page_and_rows(tmp_path) -> None:
    few = ("bench", "digits", "--models", "ViT", "--methods", "msp,optfs-e", "--limit", "50", "--samples", "1")
    done = call(*few, "--out", "here", "--cache", "cache", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "optfs-e" in done.stdout
    assert "50" in done.stdout  # the limit is said
    assert done.stdout.rstrip().endswith("report.html")
    page = (tmp_path / "here" / "report.html").read_text()
    assert 7 <= page.count("data:image/png;base64") <= 2 * 7  # the worst of 7 sets for 2 methods at most
    rows = Results.load(tmp_path / "here").rows
    assert {row.method for row in rows} == {"msp", "optfs-e"}
    assert len(rows) == 12
    quiet = call(*few, "--out", "here", "--cache", "cache", "--quiet", cwd=tmp_path)
    assert (quiet.returncode, quiet.stdout) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "digitz"), "no benchmark 'digitz'; did you mean digits?"),
        (("bench", "--models", "VGG"), "digits has no model 'VGG'"),
        (("bench", "--methods", "magic"), "no method is called 'magic'"),
        (("bench", "cifar10", "--weights", "nowhere"), "no network of cifar10 has weights here; DenseNet101 needs"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], message: str, tmp_path) -> None:
    done = call(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_wrong_options_are_refused(tmp_path) -> None:
    done = call("bench", "--limit", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert call("bench", "--limt", "5", cwd=tmp_path).returncode == 2


def test_the_report_again_from_results_alone(tmp_path) -> None:
    made = results()
    made.save(tmp_path / "run")
    write_page(made, tmp_path / "same.html")
    for words, folder in ((("run",), "run"), (("run/results.json", "-o", "mine"), "mine")):
        done = call("report", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "optfs-e" in done.stdout
        assert done.stdout.endswith(f"page: {folder}/report.html\n")
        assert (tmp_path / folder / "report.html").read_text() == (tmp_path / "same.html").read_text()
    missing = call("report", "nowhere", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (2, "error: there is no file nowhere\n")


def test_other_tables_and_the_other_convention_are_made_from_results(tmp_path) -> None:
    results(limit=30).save(tmp_path / "run")
    groups = call(
        "report", "run", "--table", "groups", "--columns", "auroc,fpr95-ood", "--sort", "aupr-in", cwd=tmp_path
    )
    assert groups.returncode == 0, groups.stderr
    for word in ("ConvNets", "OpenOOD's convention", "FPR95-ood↓", "AUPR-in↑", "limit 30"):
        assert word in groups.stdout
    assert "ConvNets" in (tmp_path / "run" / "table.md").read_text()
    before = (tmp_path / "run" / "table.md").read_text()
    wrong = {
        "--compare-paper": "--compare-paper needs the paper's settings",
        "--table=standard4": "standard4 is over iN",
    }
    for word, message in wrong.items():
        done = call("report", "run", word, cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert message in done.stderr
    assert (tmp_path / "run" / "table.md").read_text() == before


def test_lists_are_plain_when_piped() -> None:
    methods = call("methods").stdout.splitlines()
    assert len(methods) == 1 + len(RECORDS)
    assert all(line.count("\t") == 5 for line in methods)
    assert all(all(cell for cell in line.split("\t")) for line in methods)
    assert any("OptFS(" in line for line in methods)
    one = dict(line.split("\t") for line in call("methods", "react").stdout.splitlines())
    assert one["method"] == "react"
    assert "ReAct(q=0.9)" in one["recipe"]
    assert call("methods", "raect").stderr.startswith("error: no method is called 'raect'; did you mean react?")
    models = call("models").stdout
    assert re.search(r"^digits-convnet +ConvNet +digits +8 +shipped", models, flags=re.MULTILINE)
    assert all(line.count("https://") <= 1 for line in models.splitlines())


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("be", ["bench"]),
        ("fit --method rea", ["react"]),
        ("bench dig", ["digits"]),
        ("bench --methods msp,neco,klm,bfa", ["msp,neco,klm,bfact"]),
        ("study interv", ["intervals"]),
    ],
)
def test_the_shell_completes_commands_and_names(typed: str, completed: list[str]) -> None:
    program = Path(sys.executable).with_name("oodshape")
    if not program.exists():
        pytest.skip("the command is not installed beside this Python")
    words = {
        "_OODSHAPE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"oodshape {typed}",
        "COMP_CWORD": str(len(typed.split())),
    }
    done = subprocess.run([program], env=os.environ | words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == completed, done.stderr
