"""One record per method: light, complete, and the only place that knows a method; methods of one's own by name."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from oodshape import METHODS, InputError, Method, find_method, paper_methods
from oodshape.benchmark.plan import select_methods
from oodshape.benchmark.spec import Benchmark
from oodshape.core.values import Value
from oodshape.methods.describe import describe_deviations, describe_method, find_titles, format_recipe, method_rows
from oodshape.methods.records import RECORDS, REFERENCES, Record, import_method_types
from oodshape.methods.registry import find_record, make_method
from oodshape.report.method_styles import BLOCKS, FAMILIES, method_family, method_style
from oodshape.report.pages.benchmark_page import page_data
from oodshape.report.tables.table import make_table
from synthetic import results

BLOCKED = """
import sys
for name in ("torch", "numba", "pandas", "sklearn", "matplotlib"):
    sys.modules[name] = None
sys.argv = ["oodshape", *sys.argv[1:]]
from oodshape.cli import main
main()
"""


import_method_types()


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_and_its_recipe_agree(name: str) -> None:
    record = RECORDS[name]
    assert (record.family in FAMILIES, record.block in BLOCKS) == (True, True)
    method = make_method(record)
    assert method.exportable is not record.images_only
    assert method.wants_proxy is (record.family == "choice")
    names = {kind: known for kind, known in Value.known.items() if ":" not in kind}
    of_paper = paper_methods("cifar10")[name] if name in METHODS else method
    for text, wanted in ((format_recipe(record), method), (repr(method), method), (repr(of_paper), of_paper)):
        assert eval(text, names) == wanted
        assert hash(eval(text, names)) == hash(wanted)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Record:
    spec = {"shape": {"use": "shapes.clipping:ReAct", "q": 0.8}}
    record = Record(id="new", name="New", family="shaping", block="later", summary="a new idea", recipe=spec, role="")
    monkeypatch.setitem(RECORDS, "new", record)
    return record


def test_a_record_is_enough_for_lists_benchmarks_tables_pages_and_styles(added: Record) -> None:
    assert METHODS["new"].shape.q == 0.8
    assert list(METHODS)[-1] == "new"
    assert any(line[:3] == ("new", "New", "a new idea") for line in method_rows())
    assert dict(describe_method("New"))["recipe"] == "Method(shape=ReAct(q=0.8))"
    for settings in ("general", "imagenet", "openood"):
        assert select_methods(replace(Benchmark.load("digits"), settings=settings))["new"] == make_method(added)
    run = results(methods=("msp", "vim", "new", "mine"))
    lines = {line.method: line.rule for line in make_table(run).lines}
    assert lines == {"msp": False, "vim": True, "new": False, "mine": True}  # with those since the paper
    assert "Custom methods, which are not part of oodshape: mine." in make_table(run).notes
    shown = {method["name"]: method for method in page_data(run)["methods"]}
    assert (shown["new"]["kind"], shown["new"]["sentence"]) == ("since the paper", "a new idea")
    assert (shown["mine"]["kind"], shown["mine"].get("sentence")) == ("custom", None)
    assert (method_family("new"), method_style("new").color) == ("shaping", method_style("react").color)
    others = [method_style(name).dashes for name in RECORDS if method_family(name) == "shaping"][:-1]
    assert method_style("new").dashes not in others


def test_references_are_those_of_the_tests(shared) -> None:
    oracle = json.loads((shared / "oracle" / "cifar10_densenet101.json").read_text())["results"]
    against = {key: {name for name, record in RECORDS.items() if key in record.checked_against} for key in REFERENCES}
    assert {name.partition("(")[0] for name in oracle} == against["optfs"]
    assert {name for name, record in RECORDS.items() if record.openood.get("name")} == against["openood"]


@pytest.mark.parametrize("name", RECORDS)
def test_a_method_has_its_paper(name: str) -> None:
    record = RECORDS[name]
    found = find_titles(record.citation)
    assert [title for title, _ in found] == record.citation.split("*")[1::2]  # none without an address
    assert found or record.citation.startswith("Our own")
    assert all(address.startswith("https://") for _, address in found)
    assert not record.code or record.code.startswith("https://")
    assert describe_deviations(record).endswith(".")
    for words in (record.name, record.summary, record.needs, record.fails):
        assert words.strip(" .") == words != ""  # they stand inside lists and sentences


CODE = '''
from dataclasses import dataclass
from oodshape import METHODS, Method, Shape, Shaper

class Squared(Shape, Shaper):
    """Energy of squared features.

    More.
    """

    def __call__(self, z, out=None):
        return z * z.abs()

    def fit(self, train):
        return self

whole = Method(shape=Squared(), score=METHODS["mls"].score)
number = 3

class Needs(Squared):
    def __init__(self, setting):
        pass
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "own_idea.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Value, "known", dict(Value.known))
    monkeypatch.delitem(sys.modules, "own_idea", raising=False)
    importlib.invalidate_caches()
    return tmp_path


def test_a_class_or_a_method_is_found_by_its_module(place: Path) -> None:
    record = find_record("own_idea:Squared")
    assert (record.id, record.name, record.block) == ("own_idea:Squared", "Squared", "own")
    assert record.summary == "Energy of squared features"
    assert record.recipe == Method(shape=sys.modules["own_idea"].Squared())
    assert find_method("own_idea:whole") is sys.modules["own_idea"].whole
    for name, message in {
        "own_idea:Other": "cannot import 'own_idea:Other'.*a method is package.module:Name",
        "own_ide:Squared": "cannot import 'own_ide:Squared': No module named 'own_ide' .add its folder to PYTHONPATH",
        "own_idea:number": "own_idea:number must be a Method, or a recipe for one of its slots, got int",
        "own_idea:Needs": "own_idea:Needs.. failed: .*its settings need defaults",
    }.items():
        with pytest.raises(InputError, match=message):
            find_method(name)


def test_an_installed_package_names_its_methods(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place / "ideas-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ideas\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[oodshape.methods]\nsquared = own_idea:Squared\nmsp = own_idea:whole\n")
    monkeypatch.syspath_prepend(str(place))
    assert "own_idea" not in sys.modules
    assert find_record("msp").name == "MSP"  # a name of the package is its own
    assert "own_idea" not in sys.modules
    assert find_method("squared") == Method(shape=sys.modules["own_idea"].Squared())
