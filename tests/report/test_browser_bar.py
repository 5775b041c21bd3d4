"""The bar of the page in a real browser: a table to take away, a link that keeps what was picked, large images."""

from __future__ import annotations

import csv
import io
import re
import zlib
from pathlib import Path
from typing import Any

from axe import violations
from browser import Opened
from oodshape.methods.describe import cited
from oodshape.methods.table import ROWS
from oodshape.report import write_page
from synthetic import results as synthetic_results


def board(shown: Opened) -> list[list[str]]:
    """The place, the method and the figures of every line."""
    cells = "rows => rows.map(row => [...row.children].map(cell => cell.firstChild.textContent))"
    found: list[list[str]] = shown.page.eval_on_selector_all("#board tbody tr", cells)
    return [[place, shown.column(0)[i], *rest] for i, (place, _, *rest) in enumerate(found)]


def test_the_bar_is_one_line_and_the_table_as_wide_as_the_screen(browser: Any, folder: Path, tmp_path: Path) -> None:
    shown = Opened(browser, folder / "report.html")
    tops = shown.page.eval_on_selector_all(
        "#filters > *", "all => all.map(e => Math.round(e.getBoundingClientRect().top + e.offsetHeight / 2))"
    )
    assert len(tops) >= 7
    assert max(tops) - min(tops) <= 4
    shown.context.close()
    write_page(synthetic_results([f"network {i}" for i in range(8)], ["msp", "knn"]), tmp_path / "page.html")
    wide = Opened(browser, tmp_path / "page.html", 2400)
    assert wide.page.locator("#board").evaluate("table => table.offsetWidth") > 2300
    assert wide.page.locator("h1").evaluate("head => head.offsetWidth") < 1300
    assert wide.page.is_hidden("#cue")
    wide.context.close()


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
    assert [(link.inner_text(), link.get_attribute("href"))] == cited(ROWS["knn"].paper)
    assert link.get_attribute("rel") == "noopener noreferrer"
    means = dict(zip(opened.column(0), opened.column(1), strict=True))
    last = opened.page.locator("#detail .beside tbody tr").last.inner_text().split()
    assert last[:2] == ["mean", means["knn"]]
    assert last[3] == means["optfs-e"]
    gap = float(last[5].replace("−", "-"))
    assert abs(gap - (float(means["knn"]) - float(means["optfs-e"]))) < 0.001


def test_the_table_stands_before_the_curves_have_come(browser: Any, folder: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(
        "document.addEventListener('DOMContentLoaded', () => { window.early = ['#board tbody tr', '#detail h3'].map("
        "part => document.querySelectorAll(part).length); }, true);"
    )
    page.goto((folder / "report.html").as_uri())
    assert page.evaluate("early") == [6, 0]
    assert page.locator("#detail h3").count() == 1
    context.close()


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


def sheets(pdf: bytes) -> list[int]:
    """How many texts are printed on each page."""
    at = {int(found[1]): found.end() for found in re.finditer(rb"(?:^|\n)(\d+) 0 obj", pdf)}
    counts = []
    for start in at.values():
        head = pdf[start : start + 3000].partition(b"endobj")[0]
        content = re.search(rb"/Contents (\d+) 0 R", head)
        if not re.search(rb"/Type\s*/Page\b", head) or content is None:
            continue
        stream = re.compile(rb"stream\r?\n").search(pdf, at[int(content[1])])
        assert stream is not None
        body = pdf[stream.end() : pdf.index(b"endstream", stream.end())]
        text = zlib.decompressobj().decompress(body) if body[:1] == b"\x78" else body
        counts.append(len(re.findall(rb"T[jJ]", text)))
    return counts


def test_no_printed_page_is_blank(opened: Opened) -> None:
    counts = sheets(opened.page.pdf(format="A4"))
    assert len(counts) > 2
    assert all(counts), counts


def test_the_page_and_its_menus_have_no_violations(browser: Any, folder: Path) -> None:
    for click in (".menu summary", "#gallery .zoom"):
        assert violations(browser, folder / "report.html", click=click) == []
    assert violations(browser, folder / "report.html", 390, "dark") == []
