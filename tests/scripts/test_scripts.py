"""Every script and benchmark can be imported; the page on speed shows what was measured; what an audit says."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
FOUND = sorted(SCRIPTS.rglob("*.py"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_script_can_be_imported(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), str(SCRIPTS / "docs"), *sys.path])
    monkeypatch.setattr(sys, "argv", [str(path), "--an-option-that-no-script-has"])
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as missing:
        if missing.name not in ("mkdocs", "griffe"):  # the extra `docs`
            raise
        pytest.skip(f"{missing.name} is not installed")
    assert capsys.readouterr().out == ""


ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))


draw_speed = importlib.import_module("draw_speed")


def test_the_page_is_what_its_figures_say() -> None:
    """Else: python scripts/draw_speed.py."""
    found = draw_speed.read(ROOT / "docs")
    page = (ROOT / "docs" / "speed.md").read_text()
    assert draw_speed.filled(page, found) == page
    assert draw_speed.filled(page, {**found, "minutes": found["minutes"] + 1}) != page
    methods = {cell["method"] for cell in found["cells"]}
    for name in methods:
        assert f"\n| {name} | " in page


BENCHES = Path(__file__).parents[2] / "benches"
FILES = sorted(path.name for path in BENCHES.glob("*.py"))


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    yield
    sys.modules.pop("harness", None)


@pytest.mark.parametrize("name", FILES)
def test_every_benchmark_imports(name: str) -> None:
    names = runpy.run_path(str(BENCHES / name), run_name="imported")
    assert name in ("harness.py", "pairs.py") or callable(names["main"])


def test_a_ratio_is_taken_within_each_round() -> None:
    import harness

    # the machine is ten times slower in two rounds of five: no ratio sees it
    busy = np.array([1.0, 10.0, 1.0, 10.0, 1.0])
    rounds = harness.Rounds({"a": np.stack([3 * busy, busy], 1), "b": np.stack([busy, 2 * busy], 1)})
    assert rounds.ratio("a", "b") == harness.Ratio(3.0, 3.0, 3.0)
    assert rounds.ratio("a", "b", cpu=True) == harness.Ratio(0.5, 0.5, 0.5)
