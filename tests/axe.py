"""axe-core, the checker of accessibility, where it is installed: `npm install axe-core` in any folder above, or -g."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@cache
def _script() -> str | None:
    folders = [Path(__file__).parents[1] / "node_modules"]
    if "OODSHAPE_AXE" in os.environ:
        folders.insert(0, Path(os.environ["OODSHAPE_AXE"]))
    try:
        found = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, timeout=30, check=True)
        folders.append(Path(found.stdout.strip()))
    except (OSError, subprocess.SubprocessError):
        pass
    for folder in folders:
        for path in (folder / "axe.min.js", folder / "axe-core" / "axe.min.js"):
            if path.is_file():
                return path.read_text(encoding="utf-8")
    return None


def violations(browser: Any, path: Path | str, width: int = 1280, scheme: str = "light", click: str = "") -> list[str]:
    """What axe-core finds wrong on a page, and again after a click where one is named."""
    script = _script()
    if script is None:
        pytest.skip("need axe-core (npm install axe-core, or OODSHAPE_AXE=folder of axe.min.js)")
    # the page's own policy refuses foreign scripts, as it must
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(path if isinstance(path, str) else path.as_uri())
    page.evaluate(script)
    found = page.evaluate("axe.run()")["violations"]
    if click:
        page.locator(click).first.click()
        found += page.evaluate("axe.run()")["violations"]
    context.close()
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]
