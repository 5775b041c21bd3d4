"""Files name types: those of the package by their own name for ever, others by module too."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="needs torch")

from data import features
from oodshape import METHODS, Detector, InputError, Method
from oodshape.core.values import Value, decode_value
from oodshape.methods.records import import_method_types
from oodshape.methods.shapes.clipping import Clip

HALVED = """
from dataclasses import dataclass
from oodshape import Shape, Shaper

@dataclass(frozen=True, eq=False, repr=False)
class Halved(Shape, Shaper):
    factor: float = 0.5

    def __call__(self, z, out=None):
        return z * self.factor

    def fit(self, train):
        return self
"""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types that a test makes are forgotten after it."""
    import_method_types()
    monkeypatch.setattr(Value, "known", dict(Value.known))


def run(module: str, code: str = HALVED) -> ModuleType:
    """What a module of the user's, or a cell of a notebook (`__main__`), defines."""
    made = ModuleType(module)
    exec(compile(code, module, "exec", dont_inherit=True), made.__dict__)
    return made


def saved(method: Method, path: Path) -> Path:
    method.fit(features(60)).save(path)
    return path


def test_a_class_of_ones_own_with_a_name_of_the_package_saves_and_loads(tmp_path: Path) -> None:
    mine = run("mine", HALVED.replace("Halved", "Clip")).Clip
    path = saved(Method(shape=mine(0.25)), tmp_path / "mine.safetensors")
    assert type(Detector.load(path).shape) is mine
    assert type(Detector.load(saved(METHODS["react"], tmp_path / "react.safetensors")).shape) is Clip


def test_a_cell_may_run_again(tmp_path: Path) -> None:
    run("__main__")
    path = saved(Method(shape=run("__main__").Halved(0.3)), tmp_path / "cell.safetensors")
    again = run("__main__").Halved
    assert type(Detector.load(path).shape) is again
    assert Detector.load(path).shape == again(0.3)


def test_a_script_that_saved_may_be_imported_by_the_program_that_loads(tmp_path: Path) -> None:
    path = saved(Method(shape=run("__main__").Halved()), tmp_path / "script.safetensors")
    Value.known.pop("__main__:Halved")
    with pytest.raises(InputError, match=r"type 'Halved' of the program that wrote it; import .* module .* defines it"):
        Detector.load(path)
    imported = run("script").Halved
    assert type(Detector.load(path).shape) is imported


def test_an_unknown_type_says_which_module_to_import(tmp_path: Path) -> None:
    path = saved(Method(shape=run("shop.shapes").Halved()), tmp_path / "mine.safetensors")
    Value.known.pop("shop.shapes:Halved")
    with pytest.raises(InputError, match=r"names code, the type 'shop.shapes:Halved' of a module .* --trust-code"):
        Detector.load(path)


@pytest.mark.parametrize("name", [None, 3, ["Clip"], "", ":", "a:", "Clip:Clip", "oodshape.methods:Clip"])
def test_a_name_that_is_none_is_refused(name: object) -> None:
    with pytest.raises(InputError, match="type"):
        decode_value({"type": name, "t": 1.0}, {})


def test_two_types_of_the_package_never_share_a_name() -> None:
    with pytest.raises(TypeError, match=r"Clip.*oodshape.methods.shapes.clipping"):
        type("Clip", (Value,), {"__module__": "oodshape.elsewhere"})
    assert Value.known["Clip"] is Clip
