"""Every script can be imported and runs nothing then; the page on speed shows what was measured."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
FOUND = sorted(SCRIPTS.rglob("*.py"))


def test_scripts_are_found() -> None:
    assert {"draw_auto.py", "make_docs_figures.py", "pages.py"} <= {path.name for path in FOUND}


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
    found = json.loads((ROOT / "docs" / "speed.json").read_text())
    page = (ROOT / "docs" / "speed.md").read_text()
    assert draw_speed.filled(page, found) == page
    assert draw_speed.filled(page, {**found, "minutes": found["minutes"] + 1}) != page
    methods = {cell["method"] for cell in found["cells"]}
    for name in methods:
        assert f"\n| {name} | " in page
