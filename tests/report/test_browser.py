"""The page of a benchmark in a real browser: it sorts, filters and averages, draws, and fetches nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from browser import Opened
from oodshape import METHODS as EVERY
from oodshape.benchmark.results import Results
from oodshape.report.pages.benchmark_page import write_page
from oodshape.report.tables.paper import paper_figures
from synthetic import results as synthetic_results

HALF = 0.00501  # what printing two decimals may change
METHODS = ("msp", "energy", "react", "optfs-e", "knn", "vim")


def printed(cells: list[str]) -> list[float]:
    return [float(cell) for cell in cells]


def means(folder: Path, metric: str, **only: list[str]) -> pd.Series[float]:
    """The mean of each method over the rows that are left, in percent: each network counts the same."""
    frame = pd.read_csv(folder / "results.csv")
    for name, values in only.items():
        frame = frame[frame[name].isin(values)]
    return 100 * frame.groupby(["method", "model"])[metric].mean().groupby("method").mean()


def test_a_click_on_a_head_sorts(opened: Opened, folder: Path) -> None:
    auroc, fpr95 = means(folder, "auroc"), means(folder, "fpr95")
    assert auroc[opened.column(0)].is_monotonic_decreasing
    assert printed(opened.column(1)) == pytest.approx(auroc[opened.column(0)].to_list(), abs=HALF)
    opened.page.click("[data-sort='Average|fpr95']")
    assert fpr95[opened.column(0)].is_monotonic_increasing
    assert printed(opened.column(2)) == pytest.approx(fpr95[opened.column(0)].to_list(), abs=HALF)
    opened.page.click("[data-sort='Average|fpr95']")
    assert fpr95[opened.column(0)].is_monotonic_decreasing
    opened.page.click("[data-sort='|method']")
    assert opened.column(0) == sorted(METHODS)
    for head in opened.heads():
        opened.page.click(f"[data-sort='{head}']")
        sorted_heads = opened.page.eval_on_selector_all("#board [aria-sort]", "all => all.map(h => h.ariaSort)")
        assert len(sorted_heads) == 1
        values = opened.column(opened.heads().index(head))
        keys = [float(value) for value in values] if "method" not in head else values
        assert keys == sorted(keys, reverse=sorted_heads[0] == "descending")  # type: ignore[type-var]


def test_figures_are_printed_as_in_python(opened: Opened) -> None:
    values = [0.98625, 0.98375, 0.98626, 0.5, 1.0, 0.0, 0.00125, 0.00375, 0.123456]
    assert opened.page.evaluate("values => values.map(percent)", values) == [f"{100 * v:.2f}" for v in values]


def test_the_keyboard_sorts_and_keeps_its_place(opened: Opened) -> None:
    head = opened.page.locator("[data-sort='ViT|auroc']")
    head.focus()
    opened.page.keyboard.press("Enter")
    first = opened.column(opened.heads().index("ViT|auroc"))
    assert [float(value) for value in first] == sorted(map(float, first), reverse=True)
    assert opened.page.evaluate("document.activeElement.dataset.sort") == "ViT|auroc"
    opened.page.keyboard.press("Space")
    assert opened.column(opened.heads().index("ViT|auroc")) == first[::-1]
    assert head.locator("..").get_attribute("aria-sort") == "ascending"


def test_filters_change_the_averages(opened: Opened, folder: Path) -> None:
    def shown() -> dict[str, float]:
        return dict(zip(opened.column(0), printed(opened.column(1)), strict=True))

    def wanted(**only: list[str]) -> Any:
        return pytest.approx(means(folder, "auroc", **only).to_dict(), abs=HALF)

    opened.press("letters", "ood")
    opened.press("photos", "ood")
    assert shown() == wanted(ood=["letters", "photos"])
    opened.press("transformer", "family")
    assert shown() == wanted(ood=["letters", "photos"], family=["transformer"])
    opened.press("ConvNet", "model")
    opened.page.get_by_role("searchbox").fill("opt")
    assert "No result" in opened.page.inner_text("#status")  # no transformer is called ConvNet
    assert not any(opened.page.is_visible(name) for name in ("#board", "#architectures", "#method", "#images"))
    opened.page.click("#reset")
    assert opened.page.input_value("input[type=search]") == ""
    assert opened.page.is_hidden("#reset")
    assert shown() == wanted()
    opened.press("near", "group")
    assert shown() == wanted(group=["near"])
    opened.press("MLP-Mixer", "model")
    assert shown() == wanted(group=["near"], model=["MLP-Mixer"])
    opened.page.get_by_role("searchbox").fill("opt, KNN")
    assert sorted(shown()) == ["knn", "optfs-e"]


def test_a_filter_keeps_the_order_and_names_what_is_left(opened: Opened, folder: Path) -> None:
    fpr95 = means(folder, "fpr95", model=["ViT"])
    opened.page.click("[data-sort='ViT|fpr95']")
    before = opened.column(0)
    assert fpr95[before].is_monotonic_increasing
    for name in ("ViT", "ViT", "MLP-Mixer"):  # on, off, and to a network whose column is another
        opened.press(name, "model")
        heads = opened.heads()
        if "Average|auroc" in heads:
            assert (opened.column(0), "3 networks" in opened.page.inner_text("#status")) == (before, True)
            continue
        assert heads == ["|method", f"{name}|auroc", f"{name}|fpr95"]
        assert means(folder, "fpr95", model=[name])[opened.column(0)].is_monotonic_increasing
        assert "means over 1 network and" in opened.page.inner_text("#status")
        assert f"1 network ({name})" in (opened.page.text_content("#over") or "")
        assert opened.page.locator("#gallery select").first.inner_text() == name
    opened.page.click("#reset")
    assert opened.column(0) == before


def test_places_follow_the_order_and_the_filters(opened: Opened, folder: Path) -> None:
    def places(values: pd.Series[float], ascending: bool) -> list[str]:
        ranks = values.round(2).rank(method="min", ascending=ascending).astype(int)
        return [str(ranks[method]) for method in opened.column(0)]

    assert opened.column(-1) == places(means(folder, "auroc"), ascending=False)
    opened.page.click("[data-sort='Average|auroc']")  # the worst on top
    assert opened.column(-1) == places(means(folder, "auroc"), ascending=False)
    opened.press("ViT", "model")
    opened.page.click("[data-sort='ViT|fpr95']")
    assert opened.column(-1) == places(means(folder, "fpr95", model=["ViT"]), ascending=True)


def test_columns_by_ood_set_and_by_family(opened: Opened, folder: Path) -> None:
    frame = pd.read_csv(folder / "results.csv")
    opened.page.locator("#filters select").first.select_option("ood")
    near = (100 * frame[frame["group"] == "near"].groupby("method")["fpr95"].mean())[opened.column(0)]
    assert printed(opened.column(opened.heads().index("near|fpr95"))) == pytest.approx(near.to_list(), abs=HALF)
    for axis, values in (("ood", frame["ood"]), ("family", frame["family"] + "s")):
        opened.page.locator("#filters select").first.select_option(axis)
        assert {head.partition("|")[0] for head in opened.heads()} - {"near", "far"} == {"", "Average", *values}
        wanted = 100 * frame.groupby(["method", values])["fpr95"].mean()
        for name in values.unique():
            place = opened.heads().index(f"{name}|fpr95")
            values_here = [wanted[method, name] for method in opened.column(0)]
            assert printed(opened.column(place)) == pytest.approx(values_here, abs=HALF)


def test_the_best_of_each_column_is_marked_and_intervals_come_on_request(opened: Opened, folder: Path) -> None:
    best = opened.page.eval_on_selector_all(
        "#board .best", "all => all.map(c => [c.cellIndex - 1, c.firstChild.textContent])"
    )
    for place in range(1, 9):
        values = [float(value) for value in opened.column(place)]
        value = max(values) if place % 2 else min(values)
        assert {float(text) for at, text in best if at == place} == {value}
    opened.press("ViT", "model")
    opened.press("letters", "ood")
    opened.page.get_by_role("button", name="95 % intervals").click()
    (row,) = (r for r in Results.load(folder).rows if (r.model, r.method, r.ood) == ("ViT", "knn", "letters"))
    cell, found = opened.page.inner_text("#board [data-method=knn] td >> nth=1").split(), row.metrics["auroc"]
    assert cell == [f"{100 * v:.2f}" for v in (found.value, found.low)] + ["–", f"{100 * found.high:.2f}"]


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
