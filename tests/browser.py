"""A page in a real browser, which notes whatever it asks for and says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# figures that are smaller than a reader can use, and tables that leave their column without a way to scroll
SMALL = """() => [...document.querySelectorAll("main svg[role=img], main figure, main img")].filter((each) => {
  const { width, height } = each.getBoundingClientRect();
  return each.checkVisibility() && (width < 60 || height < 60);
}).map((each) => each.outerHTML.slice(0, 120))"""
WIDE = """() => [...document.querySelectorAll("main table")].filter((each) => {
  if (!each.checkVisibility()) return false;
  for (let box = each.parentElement; box.tagName !== "MAIN"; box = box.parentElement) {
    const { overflowX, backgroundImage } = getComputedStyle(box);
    if (["auto", "scroll"].includes(overflowX)) return box.tabIndex < 0 || !backgroundImage.includes("gradient");
  }
  return each.scrollWidth > each.closest("main").clientWidth + 1;
}).map((each) => each.outerHTML.slice(0, 120))"""


def bad_layout(page: Any) -> list[str]:
    """What is too small, too wide or cut off on a page."""
    wide = page.evaluate("document.documentElement.scrollWidth") - page.viewport_size["width"]
    return [*page.evaluate(SMALL), *page.evaluate(WIDE), *([f"the page is {wide} px too wide"] if wide > 0 else [])]


class Opened:
    """A page that notes every request, error and line of its console."""

    def __init__(self, browser: Any, path: Path | str, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda line: self.said.append(line.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(path if isinstance(path, str) else path.as_uri())

    def column(self, place: int) -> list[str]:
        """The cells of a column from top to bottom; 0 is the method, -1 the place."""
        cell = f"row.children[{place + 1}].firstChild.textContent" if place else "row.dataset.method"
        cells = f"rows => rows.map(row => {cell})"
        found: list[str] = self.page.eval_on_selector_all("#board tbody tr", cells)
        return found

    def heads(self) -> list[str]:
        """`column|metric` of every head that sorts."""
        found: list[str] = self.page.eval_on_selector_all("#board [data-sort]", "all => all.map(b => b.dataset.sort)")
        return found

    def press(self, name: str, filter: str) -> None:
        """Open the menu of a filter, press one of its chips, and close it."""
        self.page.locator(f".menu:has([data-filter={filter}]) summary").click()
        self.page.locator(f"[data-filter={filter}] button", has_text=name).first.click()
        self.page.keyboard.press("Escape")
