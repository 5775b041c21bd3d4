"""The page of a benchmark in a real browser: it sorts, filters and averages, draws, and fetches nothing."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from axe import violations
from browser import Opened
from oodshape.benchmark.results import RunResults

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
    assert opened.column(-1) == [
        str(place) for place in auroc.round(2).rank(method="min", ascending=False)[opened.column(0)].astype(int)
    ]
    assert printed(opened.column(1)) == pytest.approx(auroc[opened.column(0)].to_list(), abs=HALF)
    opened.page.click("[data-sort='Average|fpr95']")
    assert fpr95[opened.column(0)].is_monotonic_increasing
    assert printed(opened.column(2)) == pytest.approx(fpr95[opened.column(0)].to_list(), abs=HALF)
    opened.page.click("[data-sort='Average|fpr95']")
    assert fpr95[opened.column(0)].is_monotonic_decreasing
    opened.page.click("[data-sort='|method']")
    assert opened.column(0) == sorted(METHODS)
    opened.page.locator("[data-sort='ViT|auroc']").focus()
    opened.page.keyboard.press("Enter")
    values = printed(opened.column(opened.heads().index("ViT|auroc")))
    assert values == sorted(values, reverse=True)
    assert opened.page.evaluate("document.activeElement.dataset.sort") == "ViT|auroc"
    assert opened.page.eval_on_selector_all("#board [aria-sort]", "all => all.map(h => h.ariaSort)") == ["descending"]


def test_figures_are_printed_as_in_python(opened: Opened) -> None:
    values = [0.98625, 0.98375, 0.98626, 0.5, 1.0, 0.0, 0.00125, 0.00375, 0.123456]
    assert opened.page.evaluate("values => values.map(percent)", values) == [f"{100 * v:.2f}" for v in values]


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
    opened.press("MLP-Mixer", "model")
    assert shown() == wanted(group=["near"], model=["MLP-Mixer"])
    opened.page.get_by_role("searchbox").fill("opt, KNN")
    assert sorted(shown()) == ["knn", "optfs-e"]


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
    (row,) = (r for r in RunResults.load(folder).rows if (r.model, r.method, r.ood) == ("ViT", "knn", "letters"))
    cell, found = opened.page.inner_text("#board [data-method=knn] td >> nth=1").split(), row.metrics["auroc"]
    assert cell == [f"{100 * v:.2f}" for v in (found.value, found.low)] + ["–", f"{100 * found.high:.2f}"]


def test_a_method_shows_its_figures(opened: Opened) -> None:
    opened.page.click("#board [data-method=optfs-e] button")
    detail = opened.page.locator("#detail")
    assert "energy of optimally shaped features" in detail.inner_text()
    labels = opened.page.eval_on_selector_all(
        "#detail svg[role=img]", "all => all.map(s => s.getAttribute('aria-label'))"
    )
    kinds = Counter(label.split(" on ")[0].split(" of ")[0] for label in labels)
    assert kinds == {"ROC curves": 6}
    assert opened.page.locator("#scatter circle").count() == len(METHODS)


def test_the_theme_button_and_the_printed_page(opened: Opened) -> None:
    grounds = []
    for _ in range(2):
        grounds.append(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        opened.page.click("#theme")
    assert "rgb(22, 23, 26)" in grounds  # dark
    assert len(set(grounds)) == 2
    opened.page.emulate_media(media="print")
    assert not opened.page.is_visible("#filters")


def board(shown: Opened) -> list[list[str]]:
    """The place, the method and the figures of every line."""
    cells = "rows => rows.map(row => [...row.children].map(cell => cell.firstChild.textContent))"
    found: list[list[str]] = shown.page.eval_on_selector_all("#board tbody tr", cells)
    return [[place, shown.column(0)[i], *rest] for i, (place, _, *rest) in enumerate(found)]


def test_the_table_can_be_saved_and_copied_as_it_is_shown(opened: Opened) -> None:
    opened.press("letters", "ood")
    opened.page.click("[data-sort='ViT|fpr95']")
    with opened.page.expect_download() as saving:
        opened.page.get_by_role("button", name="CSV").click()
    assert saving.value.suggested_filename == "leaderboard.csv"
    head, *lines = csv.reader(io.StringIO(saving.value.path().read_text(encoding="utf-8")))
    assert head[:4] == ["place", "method", "Average AUROC", "Average FPR95"]
    assert lines == board(opened)
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.page.get_by_role("button", name="Copy").click()
    opened.page.get_by_role("button", name="Copied").wait_for()
    text = opened.page.evaluate("navigator.clipboard.readText()")
    assert [line.split("\t") for line in text.splitlines()] == [head, *lines]
    assert opened.page.evaluate("taken.rows = [['=1+1', 'a,b', 'c\"d']], csv()") == '\'=1+1,"a,b","c""d"\n'


def test_a_link_shows_the_same_again(browser: Any, opened: Opened, folder: Path) -> None:
    opened.press("letters", "ood")
    opened.press("transformer", "family")
    opened.page.get_by_role("searchbox").fill("opt, knn, vim")
    opened.page.locator("#filters select").nth(1).select_option("fpr95")
    opened.page.click("[data-sort='|method']")
    opened.page.locator("#choice select").first.select_option(label="ReAct")
    opened.page.locator("#choice select").nth(1).select_option(label="none")
    again = Opened(browser, folder / "report.html")
    again.page.goto(opened.page.url)
    again.page.reload()
    assert board(again) == board(opened)
    assert again.heads() == opened.heads() == ["|method", "ViT|fpr95"]
    for part in ("#status", "#detail", "#filters"):
        assert again.page.inner_text(part) == opened.page.inner_text(part)
    assert again.page.input_value("input[type=search]") == "opt, knn, vim"
    assert "letters" in again.page.url
    again.page.click("#reset")
    assert "letters" not in again.page.url
    assert again.said == []
    again.context.close()


def test_a_link_with_names_that_are_not_here_is_the_usual_page(browser: Any, opened: Opened, folder: Path) -> None:
    other, address = Opened(browser, folder / "report.html"), (folder / "report.html").as_uri()
    opened.page.locator("#filters select").first.select_option("average")
    other.page.goto(f"{address}#ood=%5B%22nowhere%22%5D&method=x&show=y&sort=%5B1%5D&columns=z&images=%7B")
    other.page.reload()
    assert board(other) == board(opened)
    assert other.page.inner_text("#status") == opened.page.inner_text("#status")
    assert other.said == []
    other.context.close()


def test_the_page_and_its_menus_have_no_violations(browser: Any, folder: Path) -> None:
    assert violations(browser, folder / "report.html", click=".menu summary") == []
    assert violations(browser, folder / "report.html", 390, "dark") == []


def test_the_top_has_four_numbers_and_near_and_far(opened: Opened, folder: Path) -> None:
    tiles = opened.page.locator("#tiles > div").all_inner_texts()
    assert len(tiles) == 4
    assert f"{means(folder, 'auroc')['optfs-e']:.2f} %" in tiles[0]
    assert f"MSP {means(folder, 'fpr95')['msp']:.2f} %" in tiles[1]
    label = opened.page.get_attribute("#near-far svg", "aria-label")
    for name, shown in (("msp", "MSP"), ("optfs-e", "OptFS (E)")):
        near, far = (means(folder, "fpr95", group=[group])[name] for group in ("near", "far"))
        assert f"{shown} {near:.2f} and {far:.2f}" in label
