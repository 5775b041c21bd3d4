"""The rest of the page in a real browser: figures, images, every screen, hostile names; it fetches nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browser import Opened
from oodshape import METHODS as EVERY
from oodshape.benchmark.results import Results
from oodshape.report import write_page
from oodshape.report.beside_paper import paper_figures
from synthetic import results as synthetic_results

METHODS = ("msp", "energy", "react", "optfs-e", "knn", "vim")


def test_two_methods_never_share_a_colour(opened: Opened, folder: Path) -> None:
    rows = {(r.model, r.method, r.ood): r for r in Results.load(folder).rows}
    for method in METHODS:
        for other in METHODS:
            opened.page.evaluate(
                "([a, b]) => { const at = (name) => DATA.methods.findIndex((m) => m.name === name);"
                " chosen.method = at(a); chosen.beside = at(b); drawDetail(); }",
                [method, other],
            )
            strokes = opened.page.eval_on_selector_all(
                "#detail .legend line", "all => all.map(line => getComputedStyle(line).stroke)"
            )
            assert len(set(strokes)) == len(strokes) == len({method, other})
            lines = opened.page.locator("#detail .figures figure:has-text('letters') .mini tbody tr").all_inner_texts()
            assert len(lines) == len({method, other})
            for name, line in zip((method, other), lines, strict=False):
                row = rows["ConvNet", name, "letters"]
                figures = (row.auroc, row.auroc_low, row.auroc_high, row.fpr95, row.fpr95_low, row.fpr95_high)
                assert line.replace("–", " ").split() == [name, *(f"{100 * value:.2f}" for value in figures)]


def test_a_method_shows_its_figures(opened: Opened) -> None:
    opened.page.click("#board [data-method=optfs-e] button")
    detail = opened.page.locator("#detail")
    assert "energy of optimally shaped features" in detail.inner_text()
    labels = opened.page.eval_on_selector_all(
        "#detail svg[role=img]", "all => all.map(s => s.getAttribute('aria-label'))"
    )
    assert sum(label.startswith("Shaping functions on ConvNet: optfs-e") for label in labels) == 1
    assert sum(label.startswith("Histogram of optfs-e scores") for label in labels) == 6
    assert sum(label.startswith("ROC curves on") for label in labels) == 6
    detail.locator("summary", has_text="ViT").click()
    opened.page.locator("#detail figure").nth(13).wait_for()  # not wait_for_function: the page forbids eval
    assert opened.page.locator("#detail figure").count() == 14
    assert opened.page.locator("#scatter circle").count() == len(METHODS)


@pytest.mark.parametrize("width", [1280, 360])
def test_names_in_the_picture_of_architectures_do_not_overlap(browser: Any, tmp_path: Path, width: int) -> None:
    made = synthetic_results(["convnet", "vit"], list(EVERY), ["noise"])
    families = {"convnet": "ConvNet", "vit": "transformer"}
    rows = tuple(replace(row, family=families[row.model]) for row in made.rows)
    write_page(replace(made, rows=rows), tmp_path / "page.html")
    shown = Opened(browser, tmp_path / "page.html", width)
    assert shown.page.locator("#scatter circle").count() == len(EVERY)
    boxes = shown.page.eval_on_selector_all(
        "#scatter .name",
        "all => all.map(text => { const b = text.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height]; })",
    )
    names = set(shown.page.locator("#scatter .name").all_text_contents())
    assert "optfs-e" in names
    below = shown.page.locator("#scatter p").all_text_contents()
    assert all(name in names or name in below[0] for name in EVERY)  # those without room are listed
    assert len(boxes) > len(EVERY) / 3
    for i, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[:i]:
            apart = right <= other[0] + 1 or left >= other[2] - 1 or bottom <= other[1] + 1 or top >= other[3] - 1
            assert apart, (boxes[i], other)
    shown.context.close()


def test_the_gallery_shows_the_worst_first(opened: Opened, folder: Path) -> None:
    gallery = opened.page.locator("#gallery")
    results = Results.load(folder)
    gallery.locator("select").first.select_option(label="ViT")
    gallery.locator("select").nth(1).select_option(label="optfs-e")
    picks = [pick for pick in results.samples.picks if (pick.model, pick.method) == ("ViT", "optfs-e")]
    worst = sorted((pick for pick in picks if pick.ood), key=lambda pick: -pick.shares[0])
    assert gallery.locator("h3").all_inner_texts()[0].startswith(worst[0].ood)
    assert gallery.locator("img").count() == 7 * 6
    said = gallery.locator("figcaption").first.inner_text()
    share = float(said.partition("more familiar than ")[2].partition(" %")[0])
    assert share == pytest.approx(100 * worst[0].shares[0], abs=0.0501)
    passing = sum(share >= 0.05 for pick in worst for share in pick.shares)
    assert gallery.locator("figure.wrong", has_text="wrong: passes").count() == passing
    assert gallery.locator("figure.right", has_text="right: rejected").count() == 6 * 6 - passing
    (inside,) = (pick for pick in picks if not pick.ood)
    rejected = sum(i / 80 < 0.05 for i in range(len(inside.images)))  # the lowest scores of 80 images
    assert gallery.locator("figure.wrong", has_text="wrong: rejected").count() == rejected
    assert opened.page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth === 16)")


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 360, "light")]
)
def test_every_screen(browser: Any, folder: Path, name: str, width: int, scheme: str) -> None:
    shown = Opened(browser, folder / "report.html", width, scheme)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    ground = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = "rgb(22, 23, 26)"
    assert (ground == dark) == (scheme == "dark")
    shown.page.screenshot(path=folder / f"{name}.png", full_page=True)
    assert (folder / f"{name}.png").stat().st_size > 50_000
    shown.page.click("#theme")
    assert (shown.page.evaluate("getComputedStyle(document.body).backgroundColor") == dark) != (scheme == "dark")
    shown.page.emulate_media(media="print")
    assert not shown.page.is_visible("#filters")
    assert shown.said == []
    shown.context.close()


def test_the_paper_beside_ours(browser: Any, tmp_path: Path) -> None:
    made = synthetic_results(["ResNet50", "SWIN-S"], ["msp", "knn"], ["SUN", "Texture"], settings="imagenet")
    write_page(made, tmp_path / "page.html")
    shown = Opened(browser, tmp_path / "page.html")
    shown.page.get_by_role("button", name="Beside the paper").click()
    figures = paper_figures()
    resnet = [figures["ood", "imagenet", "ResNet50", name]["msp"]["auroc"] for name in ("SUN", "Texture")]
    swin = figures["model", "imagenet", "SWIN-S", "Average"]["msp"]["auroc"]  # the paper has no figures by set for it

    def paper(column: str, method: str = "msp") -> str:
        place = shown.heads().index(column)
        text: str = shown.page.inner_text(f"#board [data-method={method}] td >> nth={place}")
        return text.partition("paper ")[2]

    ours = 100 * made.frame.groupby(["method", "model"])["auroc"].mean()["msp"]
    for column, theirs, value in (
        ("ResNet50", sum(resnet) / 2, ours["ResNet50"]),
        ("SWIN-S", swin, ours["SWIN-S"]),
        ("Average", (sum(resnet) / 2 + swin) / 2, ours.mean()),
    ):
        found, gap = paper(f"{column}|auroc").replace("−", "-").strip(")").split(" (")
        assert float(found) == pytest.approx(theirs, abs=0.0051)
        assert float(gap) == pytest.approx(value - theirs, abs=0.011)
    assert paper("Average|auroc", "knn") == ""
    shown.press("SUN", "ood")
    assert paper("SWIN-S|auroc") == ""
    assert paper("ResNet50|auroc").startswith(f"{resnet[0]:.2f} ")
    assert shown.said == []
    shown.context.close()
