"""The leaderboard in a real browser: it sorts, filters and averages, and follows the keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from browser import Opened
from oodshape.benchmark.results import Results

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


def test_the_head_stays_in_sight_and_a_wide_table_says_so(browser: Any, folder: Path) -> None:
    shown = Opened(browser, folder / "report.html", 360)
    box = shown.page.locator(".scroll")
    box.evaluate("box => { box.style.maxHeight = '120px'; box.scrollTop = 60; }")
    top = "e => e.getBoundingClientRect().top"
    assert shown.page.locator("#board thead").evaluate(top) == pytest.approx(box.evaluate(top) + 1, abs=1)
    assert shown.page.is_visible("#cue")
    assert shown.page.locator(".frame.more").count() == 1
    box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    shown.page.wait_for_selector(".frame:not(.more)")
    shown.page.set_viewport_size({"width": 1280, "height": 800})
    shown.page.wait_for_selector("#cue", state="hidden")
    shown.context.close()


def test_columns_by_ood_set_and_by_family(opened: Opened, folder: Path) -> None:
    frame = pd.read_csv(folder / "results.csv")
    for axis, values in (("ood", frame["ood"]), ("family", frame["family"] + "s")):
        opened.page.locator("#filters select").first.select_option(axis)
        assert {head.partition("|")[0] for head in opened.heads()} == {"", "Average", *values}
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
    cell = opened.page.inner_text("#board [data-method=knn] td >> nth=1").split()
    assert cell == [f"{100 * v:.2f}" for v in (row.auroc, row.auroc_low)] + ["–", f"{100 * row.auroc_high:.2f}"]
