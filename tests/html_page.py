"""A written page, read as a browser would: its tags in order, its text, its scripts, its data."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from oodshape.benchmark.results import RunResults
from oodshape.report.pages.benchmark_page import write_benchmark_page

VOID = {"meta", "br"}


class Page(HTMLParser):
    """The tags, the attributes and the text of a page; fails where tags are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.text).append(data)

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    @property
    def curves(self) -> list[dict[str, Any]]:
        """What stands behind the script that runs, by network."""
        return [json.loads(text) for text in self.scripts[2:]]


def written(made: RunResults, folder: Path) -> str:
    write_benchmark_page(made, folder / "page.html")
    assert [path.name for path in folder.iterdir()] == ["page.html"]
    return (folder / "page.html").read_text(encoding="utf-8")
