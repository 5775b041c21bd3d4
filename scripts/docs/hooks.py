"""What mkdocs calls while it builds: generated parts, inline figures, formulas as MathML, the nav's folders."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import make_docs_figures
from latex2mathml.converter import convert
from mkdocs.structure.files import File

import pages
from api import api_packages
from inline_figures import inline, site_css
from oodshape.methods.records import RECORDS
from oodshape.studies.catalog import STUDIES

FIGURE = re.compile(r'(<p>)?<img alt="([^"]*)" src="([^"]+\.svg)" ?/?>(?(1)</p>)?')
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_config(config: Any) -> Any:
    """Draw the figures of new methods, and replace every folder of the nav written as `folder/*` by its pages."""
    docs = Path(config.docs_dir)
    make_docs_figures.draw_missing(docs)
    config.nav = [_unfolded(entry, docs, config.extra) for entry in config.nav]
    return config


def _unfolded(entry: Any, docs: Path, extra: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    ((title, inside),) = entry.items()
    if not isinstance(inside, list):
        return entry
    items: list[Any] = []
    for item in inside:
        if item == "methods/*":
            items += [{record.name: f"methods/{pages.page_name(name)}.md"} for name, record in RECORDS.items()]
        elif item == "api/*":
            items += [{package: f"api/{package}.md"} for package in api_packages()]
        elif isinstance(item, str) and item.endswith("/*"):
            folder, order = item.removesuffix("/*"), [*extra.get("order", []), *STUDIES]
            found = [path.stem for path in (docs / folder).glob("*.md") if path.stem != "index"]
            found.sort(key=lambda stem: (order.index(stem) if stem in order else len(order), stem))
            items += [f"{folder}/{stem}.md" for stem in found]
        else:
            items.append(_unfolded(item, docs, extra))
    return {title: items}


def on_files(files: Any, config: Any) -> Any:
    """The pages, with one for every package of the API and every method that nobody has written words for."""
    methods = [f"methods/{pages.page_name(name)}.md" for name in RECORDS]
    for uri in [*methods, *(f"api/{package}.md" for package in api_packages())]:
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=""))
    files.append(File.generated(config, "css/palette.css", content=site_css()))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """The nav without sections that have no pages yet."""
    nav.items = [item for item in nav.items if not item.is_section or item.children]
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page with its generated parts."""
    return pages.complete(page.file.src_uri, markdown, Path(config.docs_dir))


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """The page's HTML with formulas as MathML, and its figures written into it: there they follow light and dark."""
    folder = Path(config.docs_dir) / PurePosixPath(page.file.src_uri).parent

    def drawn(found: re.Match[str]) -> str:
        path = folder / found[3]
        tag = "figure" if found[1] else "span"
        figure = inline(path.read_text(encoding="utf-8"), html.unescape(found[2]), path.stem)
        return f'<{tag} class="drawn">{figure}</{tag}>'

    def shown(found: re.Match[str]) -> str:
        formula = html.unescape(found[2]).strip()
        if found[1] == "span":
            return convert(formula)
        return f'<div class="formula">{convert(formula, display="block")}</div>'

    return FIGURE.sub(drawn, FORMULA.sub(shown, content))
