"""What mkdocs calls while it builds: generated pages, inline figures, formulas as MathML, the methods by family."""

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
from fill import FAMILIES
from inline_figures import inline, site_css
from oodshape.methods.records import RECORDS

FIGURE = re.compile(r'(<p>)?<img alt="([^"]*)" src="([^"]+\.svg)" ?/?>(?(1)</p>)')
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_config(config: Any) -> Any:
    """Draw the figures of new methods, and list the methods by family and all guides in the navigation."""
    make_docs_figures.draw_missing(Path(config.docs_dir))
    for entry in config.nav:
        if "How-to guides" in entry:
            listed = entry["How-to guides"]
            guides = (f"guides/{path.name}" for path in sorted(Path(config.docs_dir, "guides").glob("*.md")))
            listed += [guide for guide in guides if guide not in listed]
        if "Methods" in entry:
            entry["Methods"] = ["methods/index.md", *_families()]
    return config


def _families() -> list[Any]:
    found = []
    for family, title in FAMILIES.items():
        names = [name for name, record in RECORDS.items() if record.family == family]
        found.append({title: [{RECORDS[name].name: f"methods/{pages.page_name(name)}.md"} for name in names]})
    return found


def on_files(files: Any, config: Any) -> Any:
    """The pages, with the generated ones and one for every method that nobody has written words for."""
    methods = [f"methods/{pages.page_name(name)}.md" for name in RECORDS]
    for uri in [*methods, *pages.GENERATED]:
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=""))
    files.append(File.generated(config, "css/palette.css", content=site_css()))
    return files


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The page for addresses that do not exist says where to go on."""
    if template_name != "404.html":
        return output_content
    start = re.search(r'<a href="([^"]*index\.html)"', output_content)
    assert start is not None
    advice = f'<h1>Page not found</h1>\n<p>Search above, or go to <a href="{start[1]}">the start page</a>.</p>'
    return output_content.replace("<h1>404 - Not found</h1>", advice)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page with its generated parts."""
    return pages.complete(page.file.src_uri, markdown, Path(config.docs_dir))


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """The page's HTML with formulas as MathML, and its figures written into it: there they follow light and dark."""
    folder = Path(config.docs_dir) / PurePosixPath(page.file.src_uri).parent

    def drawn(found: re.Match[str]) -> str:
        path = folder / found[3]
        figure = inline(path.read_text(encoding="utf-8"), html.unescape(found[2]), path.stem)
        if found[1]:
            return f'<figure class="drawn">{figure}</figure>'
        return f'<span class="drawn">{figure}<small>{found[2]}</small></span>'  # one of several: it says what it shows

    def shown(found: re.Match[str]) -> str:
        formula = html.unescape(found[2]).strip()
        if found[1] == "span":
            return convert(formula)
        return f'<div class="formula">{convert(formula, display="block")}</div>'

    return FIGURE.sub(drawn, FORMULA.sub(shown, content))
