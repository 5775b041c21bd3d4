"""A method of one's own by its name: from a file in the working directory, or from an installed package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from commands import call
from folders_of_digits import write_digits
from oodshape import Guard, InputError, Method, find_method
from oodshape.benchmark.results import Results
from oodshape.core.values import Value
from oodshape.methods.registry import find_record

CODE = '''
from dataclasses import dataclass
from oodshape import METHODS, Method, Shape, Shaper

@dataclass(frozen=True, eq=False, repr=False)
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
FEW = ("--limit", "20", "--device", "cpu")


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
        "own_ide:Squared": "cannot import 'own_ide:Squared': No module named",
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


def test_it_runs_wherever_a_method_does(place: Path) -> None:
    """Bench names and marks it; repeat needs trust, or says what is missing."""
    few = ("--models", "ConvNet", "--samples", "0", "--cache", "none", *FEW)
    done = call("bench", "digits", "--methods", "own_idea:Squared,Energy", "--out", "out", *few, cwd=place)
    assert done.returncode == 0, done.stderr
    found = Results.load(place / "out")
    assert found.names("method") == ["energy", "own_idea:Squared"]
    assert found.provenance["methods"]["own_idea:Squared"] == "Method(shape=Squared(), score=Energy())"
    assert "Custom methods, which are not part of oodshape: own_idea:Squared." in done.stdout
    assert '"kind":"custom"' in (place / "out" / "report.html").read_text().replace('": "', '":"')
    done = call("repeat", "out", cwd=place)
    assert done.returncode == 2
    assert "the results name a method that is code to import: 'own_idea:Squared'" in done.stderr
    assert "the figures agree" in call("repeat", "out", "--trust-code", cwd=place).stdout
    (place / "own_idea.py").rename(place / "elsewhere.py")
    del sys.modules["own_idea"]
    done = call("repeat", "out", "--trust-code", cwd=place)
    assert (done.returncode, "cannot import 'own_idea:Squared': No module named" in done.stderr) == (2, True)


def test_a_guard_of_it_is_opened_with_trust(place: Path) -> None:
    write_digits(place)
    model = ("--model", "zoo:digits-convnet", "--device", "cpu", "--images")
    fit = ("--calibrate", "val", "--method", "own_idea:Squared", "--cache", "none", "--out", "guard.safetensors")
    done = call("fit", *model, "train", *fit, cwd=place)
    assert done.returncode == 0, done.stderr
    score = ("score", "--guard", "guard.safetensors", *model, "test", "--out", "scores.csv")
    assert call(*score, cwd=place).returncode == 0  # in this process the module is imported

    del sys.modules["own_idea"]
    for name in [name for name in Value.known if name.startswith("own_idea:")]:
        del Value.known[name]
    done = call(*score, cwd=place)
    assert done.returncode == 2
    assert "the type 'own_idea:Squared' of a module that is not imported" in done.stderr
    assert "--trust-code" in done.stderr
    assert "own_idea" not in sys.modules
    assert call(*score, "--trust-code", cwd=place).returncode == 0
    assert Guard.load(place / "guard.safetensors", trust_code=True).detector.method == find_method("own_idea:Squared")
