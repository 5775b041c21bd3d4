"""The page is one valid file that fetches nothing, escapes every name, and draws a method in one colour."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from oodshape import METHODS
from oodshape.curves import Theta
from oodshape.errors import InputError
from oodshape.report import figures, table, write_page
from oodshape.report.page import FEATURED
from oodshape.results import Results
from synthetic import results

VOID = {"meta", "wbr"}
HOSTILE = "<b>net</b> \"q\" & 'x' -->"


class Page(HTMLParser):
    """The tags, the attributes and the text of a page; fails where tags are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def written(made: Results, folder: Path) -> str:
    write_page(made, folder / "page.html")
    assert [path.name for path in folder.iterdir()] == ["page.html"]
    return (folder / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(results(limit=200), tmp_path_factory.mktemp("page"))


def test_the_page_is_whole_and_closes_its_tags(html: str) -> None:
    page = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    assert page.count("table") == 3  # all models, and one per model
    assert page.count("details") >= 4  # a model and an OOD set each
    assert page.count("summary") == page.count("details")
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    anchors = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert {f"#{name}" for name in ids} == set(anchors)


def test_the_page_fetches_nothing(html: str) -> None:
    page = Page(html)
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "embed", "base"}
        assert not {"src", "srcset", "data", "action", "xlink:href"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert "url(" not in html.lower()
    assert "@import" not in html
    elsewhere = re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", html)
    assert "http://" not in elsewhere
    assert "https://" not in elsewhere


def test_the_page_shows_the_tables_and_says_what_they_mean(html: str) -> None:
    page = Page(html)
    made = results(limit=200)
    shown = "".join(page.text)
    for part in (table(made), table(made, "ood", "convnet"), table(made, "ood", "vit")):
        for note in part.notes:
            assert note in shown
        for line in part.lines:
            assert all(pair.fp.text in page.text and pair.au.text in page.text for pair in line.pairs)
    cells = [c for part in (table(made), *(table(made, "ood", m) for m in ("convnet", "vit"))) for c in part.lines]
    ranks = [cell.rank for line in cells for pair in line.pairs for cell in (pair.fp, pair.au)]
    assert len(re.findall(r"<td><b>[\d.]+</b></td>", html)) == sum(rank == 1 for rank in ranks)
    assert len(re.findall(r"<td><u>[\d.]+</u></td>", html)) == sum(rank in (2, 3) for rank in ranks)
    assert "no folder data/photos" in shown
    assert "sha256:4567" in shown
    assert str(METHODS["react"]) in shown


def test_the_page_is_for_every_screen_and_for_the_keyboard(html: str) -> None:
    page = Page(html)
    assert "prefers-color-scheme: dark" in html
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    boxes = [attributes for tag, attributes in page.tags if tag == "div" and attributes.get("class") == "scroll"]
    assert len(boxes) == page.count("table")
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    assert all(
        attributes["role"] == "img" and attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"
    )
    assert figures.TEXT not in html


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    made = results(
        [HOSTILE], ["msp", HOSTILE, "_hidden", "$x^2$"], [HOSTILE], skipped=[(HOSTILE, HOSTILE)], note=HOSTILE
    )
    shapes = [Theta(model=HOSTILE, method=HOSTILE, z=(0.5, 1.0), theta=(0.5, 2.0))]
    html = written(replace(made, shapes=shapes), tmp_path)
    page = Page(html)
    assert "<b>net" not in html
    assert page.text.count(HOSTILE) >= 5
    assert "".join(page.text).count(HOSTILE) >= 10
    assert "$x^2$" in page.text
    assert "_hidden" in page.text


def test_three_models_eighteen_methods_and_six_sets_make_a_small_page(tmp_path: Path) -> None:
    sets = ("digits89", "letters", "photos", "textures", "gaussian", "uniform")
    html = written(results(["convnet", "vit", "mixer"], list(METHODS), sets), tmp_path)
    assert len(html.encode()) < 3_000_000
    page = Page(html)
    assert page.count("table") == 4
    assert 3 * (1 + 6 * (1 + len(FEATURED))) <= page.count("svg") <= 3 * (1 + 6 * (2 + len(FEATURED)))


def test_results_without_curves_still_make_a_page(tmp_path: Path) -> None:
    page = Page(written(replace(results(), curves=[], shapes=[]), tmp_path))
    assert page.count("svg") == 0
    assert page.count("table") == 3


def test_results_without_rows_make_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rows"):
        write_page(Results([], {}), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


# Figures


def strokes(svg: str) -> set[str]:
    """The colours of the lines in an SVG, but for the text's."""
    root = ElementTree.fromstring(svg)
    styles = " ".join(element.get("style", "") for element in root.iter())
    return set(re.findall(r"stroke: (#\w+)", styles))


def test_a_method_has_one_colour_in_every_figure() -> None:
    made = results()
    curves = {curve.method: curve for curve in made.curves}
    shapes = {shape.method: shape for shape in made.shapes}
    for method, curve in curves.items():
        color = figures.style(method).color.lower()
        assert strokes(figures.histogram(curve)) == {color}
        assert strokes(figures.roc([curve])) == {color}
        if method in shapes:
            assert strokes(figures.shaping([shapes[method]])) == {color}
    colors = {figures.style(method).color.lower() for method in curves}
    assert strokes(figures.roc(list(curves.values()))) == colors
    assert len(colors) == len(curves) - 1  # react and optfs-e share one, and differ in their dashes


def test_styles_are_all_different_and_do_not_depend_on_what_is_drawn() -> None:
    assert len({(style.color, str(style.dashes)) for style in map(figures.style, METHODS)}) == len(METHODS)
    own = figures.style("my-method")
    assert own == figures.style.__wrapped__("my-method")
    assert own.dashes not in [figures.style(method).dashes for method in METHODS]


def test_figures_are_labelled_and_alike_each_time() -> None:
    curve = results().curves[0]
    first = figures.histogram(curve, "msp (best)")
    assert first == figures.histogram(curve, "msp (best)")
    root = ElementTree.fromstring(first)
    assert root.get("aria-label") == "Histogram of msp (best) scores: ID and letters"
    assert not [element for element in root.iter() if element.get("id")]
    assert "currentColor" in first


def test_methods_with_one_shaping_function_share_a_line() -> None:
    z, theta = (0.5, 1.0), (1.5, 0.5)
    names = ("optfs-v", "optfs-e", "optfs-msp")
    alike = [Theta(model="net", method=name, z=z, theta=theta) for name in names]
    one = Theta(model="net", method="msp", z=z, theta=(1.0, 1.0))
    svg = figures.shaping([one, *alike])
    assert strokes(svg) == {figures.style("optfs-v").color.lower()}
    assert "optfs-v, optfs-e and 1 more" in svg
    assert ElementTree.fromstring(figures.shaping([one])).get("role") == "img"
