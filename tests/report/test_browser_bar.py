"""The bar of the page in a real browser: a table to take away, a link that keeps what was picked, large images."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from axe import violations
from browser import Opened
from oodshape.methods.describe import cited
from oodshape.methods.records import RECORDS


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
    opened.page.get_by_role("button", name="95 % intervals").click()
    assert "Average AUROC low" in opened.page.evaluate("taken.rows[0]")
    assert opened.page.evaluate("taken.rows = [['=1+1', 'a,b', 'c\"d']], csv()") == '\'=1+1,"a,b","c""d"\n'


def test_a_link_shows_the_same_again(browser: Any, opened: Opened, folder: Path) -> None:
    assert "#" not in opened.page.url
    opened.press("letters", "ood")
    opened.press("transformer", "family")
    opened.page.get_by_role("searchbox").fill("opt, knn, vim")
    opened.page.locator("#filters select").nth(1).select_option("fpr95")
    opened.page.click("[data-sort='|method']")
    opened.page.locator("#choice select").first.select_option(label="react")
    opened.page.locator("#choice select").nth(1).select_option(label="none")
    again = Opened(browser, folder / "report.html")
    again.page.goto(opened.page.url)
    again.page.reload()
    assert board(again) == board(opened)
    assert again.heads() == opened.heads() == ["|method", "ViT|fpr95"]
    for part in ("#status", "#detail", "#filters"):
        assert again.page.inner_text(part) == opened.page.inner_text(part)
    assert again.page.input_value("input[type=search]") == "opt, knn, vim"
    again.page.click("a[href='#method']")
    assert "at=method" in again.page.url  # the section goes along with what was picked
    assert "letters" in again.page.url
    again.page.click("#reset")
    assert "letters" not in again.page.url
    assert again.said == []
    again.context.close()


def test_a_link_with_names_that_are_not_here_is_the_usual_page(browser: Any, opened: Opened, folder: Path) -> None:
    other = Opened(browser, folder / "report.html")
    other.page.goto(f"{opened.page.url}#ood=%5B%22nowhere%22%5D&method=x&show=y&sort=%5B1%5D&columns=z&images=%7B")
    other.page.reload()
    assert board(other) == board(opened)
    assert other.page.inner_text("#status") == opened.page.inner_text("#status")
    assert other.said == []
    other.context.close()


def test_a_method_has_its_paper_and_its_means_beside_another(opened: Opened) -> None:
    opened.page.click("#board [data-method=knn] button")
    link = opened.page.locator("#detail .facts a")
    assert [(link.inner_text(), link.get_attribute("href"))] == cited(RECORDS["knn"].citation)
    assert link.get_attribute("rel") == "noopener noreferrer"
    means = dict(zip(opened.column(0), opened.column(1), strict=True))
    last = opened.page.locator("#detail .beside tbody tr").last.inner_text().split()
    assert last[:2] == ["mean", means["knn"]]
    assert last[3] == means["optfs-e"]
    gap = float(last[5].replace("−", "-"))
    assert abs(gap - (float(means["knn"]) - float(means["optfs-e"]))) < 0.001


def test_images_enlarge_and_the_keyboard_goes_on(opened: Opened) -> None:
    first = opened.page.locator("#gallery .zoom").first
    first.focus()
    opened.page.keyboard.press("Enter")
    large = opened.page.locator("#large")
    source = large.locator("img").get_attribute("src")
    assert source == first.locator("img").get_attribute("src")
    assert large.locator("img").evaluate("image => image.offsetWidth") > 300
    opened.page.keyboard.press("ArrowRight")
    assert large.locator("img").get_attribute("src") != source
    opened.page.keyboard.press("ArrowLeft")
    assert large.locator("img").get_attribute("src") == source
    opened.page.keyboard.press("Escape")
    assert large.is_hidden()
    assert opened.page.evaluate("document.activeElement.dataset.image") == "0"


def test_the_page_and_its_menus_have_no_violations(browser: Any, folder: Path) -> None:
    for click in (".menu summary", "#gallery .zoom"):
        assert violations(browser, folder / "report.html", click=click) == []
    assert violations(browser, folder / "report.html", 390, "dark") == []
