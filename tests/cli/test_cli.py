"""The command line as a user runs it: commands, help texts, lines in a terminal."""

from __future__ import annotations

import re

import pytest
import typer
from typer.testing import CliRunner

import oodshape
from commands import call, call_new
from oodshape.benchmark.results import RunResults
from oodshape.cli.all_commands import app
from oodshape.methods.records import RECORDS
from oodshape.report.pages.benchmark_page import write_benchmark_page
from synthetic import results


def test_version() -> None:
    done = call_new("--version")
    assert (done.returncode, done.stdout.strip()) == (0, oodshape.__version__)


def test_bench_writes_a_table_a_page_and_rows(tmp_path) -> None:
    few = ("bench", "digits", "--models", "ViT", "--methods", "msp,optfs-e", "--limit", "50")
    done = call_new(*few, "--out", "here", "--cache", "cache", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stdout.rstrip().endswith("report.html")
    rows = RunResults.load(tmp_path / "here").rows
    assert {row.method for row in rows} == {"msp", "optfs-e"}
    assert len(rows) == 12
    quiet = call(*few, "--out", "here", "--cache", "cache", "--quiet", cwd=tmp_path)
    assert (quiet.returncode, quiet.stdout) == (0, "")


def test_the_report_again_from_results_alone(tmp_path) -> None:
    made = results()
    made.save(tmp_path / "run")
    write_benchmark_page(made, tmp_path / "same.html")
    for given in ("run", "run/results.json"):
        done = call("report", given, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "optfs-e" in done.stdout
        assert done.stdout.endswith("page: run/report.html\n")
        assert (tmp_path / "run" / "report.html").read_text() == (tmp_path / "same.html").read_text()
    missing = call("report", "nowhere", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (2, "error: there is no file nowhere\n")


def test_other_tables_and_the_other_convention_are_made_from_results(tmp_path) -> None:
    results(limit=30).save(tmp_path / "run")
    by_set = call("report", "run", "--table", "ood", "--columns", "aupr-in,fpr95-ood", cwd=tmp_path)
    assert by_set.returncode == 0, by_set.stderr
    for word in ("letters", "OpenOOD's convention", "FPR95-ood↓", "AUPR-in↑", "limit 30"):
        assert word in by_set.stdout
    assert "letters" in (tmp_path / "run" / "table.md").read_text()
    before = (tmp_path / "run" / "table.md").read_text()
    for word, message in (("--compare-paper", "needs the paper's settings"), ("--table=standard4", "is over iN")):
        done = call("report", "run", word, cwd=tmp_path)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert message in done.stderr
    assert (tmp_path / "run" / "table.md").read_text() == before


def test_lists_are_plain_when_piped(tmp_path) -> None:
    methods = call("methods", cwd=tmp_path).stdout.splitlines()
    assert len(methods) == 1 + len(RECORDS)
    assert all(len([cell for cell in line.split("\t") if cell]) == 6 for line in methods)
    one = dict(line.split("\t") for line in call("methods", "react", cwd=tmp_path).stdout.splitlines())
    assert "ReAct(q=0.9)" in one["recipe"]
    assert "no method is called 'raect'; did you mean react?" in call("methods", "raect", cwd=tmp_path).stderr
    models = call("models", cwd=tmp_path).stdout
    assert re.search(r"^digits-convnet +ConvNet +digits +8 +shipped", models, flags=re.MULTILINE)
    assert all(line.count("https://") <= 1 for line in models.splitlines())


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_commands_with_a_network_take_its_options_and_flags_show_no_type(name: str) -> None:
    known = {flag for option in COMMANDS[name].params for flag in option.opts}
    if known & {"--model", "--models"}:
        assert {"--weights", "--device", "--precision", "--trust-code"} <= known
    said = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "100"}).output
    assert "--help" in said
    assert "bool" not in said.lower()
    narrow = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, narrow.splitlines())) <= 80
    assert not re.search(r"<[^>│]*\|[^>]*│", narrow)  # a list of choices that goes on in the next line


def test_the_commands_have_few_options() -> None:
    slots = [each for name in COMMANDS for each in COMMANDS[name].params if each.param_type_name == "option"]
    assert len([each for each in slots if each.name != "help"]) <= 180
