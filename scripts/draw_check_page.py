"""Renew docs/img/check-page.png: run the tutorial up to its check, and take a picture of the page in Chromium.

python scripts/draw_check_page.py
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "docs"))

WIDTH, HEIGHT = 1180, 1340


def run_tutorial(folder: Path) -> Path:
    """Run the first script and the commands `fit` and `check` of the tutorial; return the page."""
    import pages

    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    subprocess.run([sys.executable, "-c", pages.blocks(text, "python")[0]], cwd=folder, check=True)
    for block in pages.blocks(text, ""):
        words = shlex.split(block.replace("\\\n", ""))
        if words[:2] in (["oodshape", "fit"], ["oodshape", "check"]):
            subprocess.run([sys.executable, "-m", *words], cwd=folder, check=True)
    return folder / "check.html"


def photograph(page: Path, path: Path) -> None:
    """Write a picture of the top of a page."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        shown.goto(page.as_uri())
        shown.screenshot(path=path)
        browser.close()
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


def main() -> None:
    """Run the tutorial and renew the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img", help="folder of check-page.png")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        photograph(run_tutorial(Path(folder)), out / "check-page.png")
    print(out / "check-page.png")


if __name__ == "__main__":
    main()
