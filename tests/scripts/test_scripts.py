"""Every script can be imported, so that none names what is no longer there; importing runs nothing."""

from __future__ import annotations

import importlib.util
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
