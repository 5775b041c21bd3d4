"""Every type of page in Chromium, on a screen and a phone, light and dark: layout and accessibility."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axe import violations
from browser import Opened, bad_layout
from docs.test_text import retired
from folders_of_digits import write_digits
from oodshape import Guard, Watch
from oodshape.core.options import RunOptions
from oodshape.guard.check import check_guard
from oodshape.guard.scoring.score_formats import ScoreRow
from oodshape.images.sources.open_images import stream_images
from oodshape.report.pages.check_page import write_check_page
from oodshape.report.pages.scored_page import Origin, ScoredRows, write_scored_page
from oodshape.report.pages.watch_page import write_watch_page

MODEL = "zoo:digits-convnet"
PAGES = ("report.html", "check.html", "score.html", "calm.html", "alarm.html")


@pytest.fixture(scope="module")
def pages(one_thread: None, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages in one folder."""
    made = write_digits(tmp_path_factory.mktemp("pages"), train=200, val=90, test=60, ood=40)
    (made / "report.html").write_bytes((folder / "report.html").read_bytes())
    guard = Guard.fit(MODEL, images=made / "train", calibrate=made / "val", method="msp", progress=False)
    source = guard.open_network(MODEL)
    sets = {"letters": str(made / "letters")}
    check = check_guard(guard, source, str(made / "test"), sets, RunOptions(progress=False))
    write_check_page(check, made / "check.html", source, Origin("oodshape check", "guard.safetensors"))
    rows = ScoredRows(guard, "letters")
    for row in guard.score(made / "letters", MODEL, progress=False):
        rows.add(row)
    write_scored_page(guard, source, stream_images(str(made / "letters")), rows, made / "score.html", Origin())
    calm = np.random.default_rng(0).integers(1, 1001, 700) / 1000
    watch = Watch.begin(alpha=0.05, n_calibration=999).after(calm)
    write_watch_page(watch, made / "calm.html")
    alarmed = watch.after(calm**4 + 1e-3).reset().after(calm**4 + 1e-3)
    paths = [*(made / "letters").iterdir(), made / "gone.png"]
    rejected = [ScoreRow(0.01, "cat", None, {"path": str(path)}) for path in paths]
    write_watch_page(alarmed, made / "alarm.html", enumerate(rejected, 1400))
    return made


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_nothing_is_too_small_or_too_wide(name: str, width: int, scheme: str, browser: Any, pages: Path) -> None:
    shown = Opened(browser, pages / name, width, scheme)
    assert bad_layout(shown.page) == []
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.textContent") == "Skip to content"
    assert shown.page.evaluate("document.querySelector(document.activeElement.getAttribute('href')).tagName") == "MAIN"
    said = {"calm.html": "OK: the stream agrees", "alarm.html": "ALARM since image "}.get(name, "")
    text = shown.page.locator("main").inner_text()
    assert said in text
    assert retired(text) == []
    assert shown.said == []
    shown.context.close()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_violates_a_rule(name: str, scheme: str, browser: Any, pages: Path) -> None:
    assert violations(browser, pages / name, scheme=scheme) == []
