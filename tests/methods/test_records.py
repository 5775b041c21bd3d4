"""One record per method: light, complete, and the only place that knows a method."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from oodshape import METHODS, InputError
from oodshape.benchmark.plan import methods_of
from oodshape.benchmark.spec import Benchmark
from oodshape.core.values import Value
from oodshape.methods.describe import (
    cited,
    describe_deviations,
    describe_method,
    method_lines,
    show_recipe,
)
from oodshape.methods.records import RECORDS, REFERENCES, Record, import_types
from oodshape.methods.registry import authors_methods, find_record, make_method
from oodshape.report.method_styles import BLOCKS, FAMILIES, family, style
from oodshape.report.pages.benchmark_page import payload
from oodshape.report.tables.table import table
from synthetic import results

BLOCKED = """
import sys
for name in ("torch", "numba", "pandas", "sklearn", "matplotlib"):
    sys.modules[name] = None
sys.argv = ["oodshape", *sys.argv[1:]]
from oodshape.cli import main
main()
"""


@pytest.mark.parametrize("words", [("methods",), ("methods", "optfs-e+react"), ("methods", "auto"), ("methods", "ViM")])
def test_methods_are_listed_without_heavy_modules(words: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in (RECORDS if len(words) == 1 else ("method\t",)))


import_types()


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_and_its_recipe_agree(name: str) -> None:
    record = RECORDS[name]
    assert (record.family in FAMILIES, record.block in BLOCKS) == (True, True)
    method = make_method(record)
    assert method.exportable is not record.images_only
    assert method.wants_proxy is (record.family == "choice")
    again = eval(show_recipe(record), {kind: known for kind, known in Value.known.items() if ":" not in kind})
    assert again == method


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Record:
    spec = {"shape": {"use": "shapes.clipping:ReAct", "q": 0.8}}
    record = Record(id="new", name="New", family="shaping", block="later", summary="a new idea", recipe=spec, role="")
    monkeypatch.setitem(RECORDS, "new", record)
    return record


def test_a_record_is_enough_for_lists_benchmarks_tables_pages_and_styles(added: Record) -> None:
    assert METHODS["new"].shape.q == 0.8
    assert list(METHODS)[-1] == "new"
    assert any(line[:3] == ("new", "New", "a new idea") for line in method_lines())
    assert dict(describe_method("New"))["recipe"] == "Method(shape=ReAct(q=0.8))"
    for settings in ("general", "imagenet", "openood"):
        assert methods_of(replace(Benchmark.load("digits"), settings=settings))["new"] == make_method(added)
    run = results(methods=("msp", "vim", "new", "mine"))
    lines = {line.method: line.rule for line in table(run).lines}
    assert lines == {"msp": False, "vim": True, "new": False, "mine": True}  # with those since the paper
    assert "Custom methods, which are not part of oodshape: mine." in table(run).notes
    shown = {method["name"]: method for method in payload(run)["methods"]}
    assert (shown["new"]["kind"], shown["new"]["sentence"]) == ("since the paper", "a new idea")
    assert (shown["mine"]["kind"], shown["mine"]["sentence"]) == ("custom", "")
    assert (family("new"), style("new").color) == ("shaping", style("react").color)
    assert style("new").dashes not in [style(name).dashes for name in RECORDS if family(name) == "shaping"][:-1]


def test_settings_differ_from_the_general_ones_where_a_record_says_so(added: Record) -> None:
    changed = replace(added, paper={"cifar10": {"shape": {"q": 0.7}}}, authors={"cifar10": {"shape": {"q": 0.6}}})
    RECORDS["new"] = changed
    assert authors_methods("cifar10")["new"].shape.q == 0.6
    assert authors_methods("imagenet")["new"] == make_method(added)
    other = {"shape": {"use": "shapes.ash:AshS", "p": 0.5}}
    assert repr(make_method(added, other).shape) == "AshS(p=0.5)"
    with pytest.raises(InputError, match="no settings for 'svhn'; choose one of"):
        authors_methods("svhn")


def test_references_are_those_of_the_tests(shared) -> None:
    oracle = json.loads((shared / "oracle" / "cifar10_densenet101.json").read_text())["results"]
    against = {key: {name for name, record in RECORDS.items() if key in record.checked_against} for key in REFERENCES}
    assert {name.partition("(")[0] for name in oracle} == against["optfs"]
    assert {name for name, record in RECORDS.items() if record.openood.get("name")} == against["openood"]


@pytest.mark.parametrize("name", RECORDS)
def test_a_method_has_its_paper(name: str) -> None:
    record = RECORDS[name]
    found = cited(record.citation)
    assert [title for title, _ in found] == record.citation.split("*")[1::2]  # none without an address
    assert found or record.citation.startswith("Our own")
    assert all(address.startswith("https://") for _, address in found)
    assert not record.code or record.code.startswith("https://")
    assert describe_deviations(record).endswith(".")


def test_names_of_people_find_records() -> None:
    assert find_record("OptFS (E)").id == "optfs-e"
    assert find_record("optfs").id == "optfs"
    assert find_record("MDS++").id == "mds++"
