"""Names from outside are text on every page: in a real browser they run nothing, load nothing and add no element."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from browser import Opened
from folders_of_digits import write_digits
from oodshape import Guard
from oodshape.benchmark.results import RunResults
from oodshape.core.options import RunOptions
from oodshape.guard.check import check_guard
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.sources.open_images import stream_images
from oodshape.report.pages.benchmark_page import write_benchmark_page
from oodshape.report.pages.check_page import write_check_page
from oodshape.report.pages.scored_page import Origin, ScoredRows, write_scored_page
from synthetic import results

# Each ends what it may stand in (text, an attribute, a script, a comment, a template), then brings something along.
EVIL = (
    "</script></title></style>--><img src=x onerror=window.hacked=1>",
    '" onmouseover="window.hacked=1" x="<script>window.hacked=1</script>',
    "'><meta http-equiv=refresh content='0;url=https://example.org/'><iframe src=https://example.org>",
    "{{data}}${window.hacked=1}<svg onload=window.hacked=1><form action=https://example.org>",
)
MODEL = "zoo:digits-convnet"
ADDED = "img[src=x], iframe, form, meta[http-equiv=refresh], svg[onload], [onmouseover], [onerror]"


@contextmanager
def harmless(browser: Any, path: Path) -> Iterator[Opened]:
    """The page, which must stay the one it is."""
    shown = Opened(browser, path)
    yield shown
    shown.page.wait_for_timeout(100)  # for a refresh, or an error of an image
    assert shown.page.evaluate("window.hacked") is None
    assert shown.page.locator(ADDED).count() == 0
    assert shown.page.url.partition("#")[0] == path.as_uri()  # behind it stands what was picked
    assert [url for url in shown.requests if not url.startswith("data:")] == [path.as_uri()]
    assert shown.said == []
    shown.context.close()


def spoiled(evil: str) -> RunResults:
    """Results with the name wherever a name or a setting can stand."""
    made = results([evil, "vit"], ["msp", evil, "optfs-e"], [evil, "noise"], skipped=((evil, evil),))
    rows = tuple(replace(row, benchmark=evil, family=evil, group=evil) for row in made.rows)
    origin = made.provenance
    origin |= {"settings": {"limit": evil, evil: evil, "settings": evil}, evil: {evil: evil}, "methods": {evil: evil}}
    return replace(made, rows=rows, provenance=origin)


@pytest.mark.parametrize("evil", EVIL)
def test_the_page_of_a_benchmark(evil: str, browser: Any, tmp_path: Path) -> None:
    write_benchmark_page(spoiled(evil), tmp_path / "page.html")
    with harmless(browser, tmp_path / "page.html") as shown:
        shown.page.locator("#choice select").first.select_option(label=evil)
        shown.page.evaluate("followState()")  # the name comes back from the address
        assert shown.page.locator("#choice option:checked").first.inner_text().strip() == " ".join(evil.split())
        assert evil in shown.column(0)
        assert f"at most {evil} images of each set" in shown.page.inner_text("body")


@pytest.fixture(scope="module")
def guard(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Guard:
    folder = write_digits(tmp_path_factory.mktemp("hostile"), train=120, val=60, test=3, ood=3)
    return Guard.fit(MODEL, images=folder / "train", calibrate=folder / "val", method="optfs-e", progress=False)


@pytest.mark.filterwarnings("ignore:.*are known to have been used")
@pytest.mark.parametrize("evil", EVIL)
def test_the_page_of_a_check(evil: str, guard: Guard, browser: Any, tmp_path: Path) -> None:
    names = (evil, *guard.about.classes[1:])
    spoilt = Guard(guard.detector, replace(guard.about, classes=names, model=evil, weights=evil, method=evil))
    source = guard.open_network(MODEL)
    folder, other = tmp_path / "in", tmp_path / "out"
    for place in range(12):
        name = f"{evil.replace('/', chr(0x2215))[:90]}{place}.png"
        path = (folder if place < 6 else other) / name
        path.parent.mkdir(exist_ok=True)
        PIL.Image.fromarray(load_digits_sets()["test"][place]).save(path)
    (folder / "broken.png").write_text(evil)
    check = check_guard(spoilt, source, str(folder), {evil: str(other)}, RunOptions(progress=False))
    write_check_page(check, tmp_path / "check.html", source, Origin(evil, evil))
    with harmless(browser, tmp_path / "check.html") as shown:
        assert shown.page.inner_text("h1").startswith(f"Check: {' '.join(evil.split())}, ")
        assert evil in shown.page.inner_text("#short")
        assert evil in shown.page.inner_text("#said")
        assert shlex.split(shown.page.inner_text("#command"))[2] == Path(evil).name
        shown.page.locator("[data-item]").first.click()
        assert "in" in shown.page.inner_text("#why")
    listing = stream_images(str(folder))
    scored_set = ScoredRows(spoilt, evil)
    for row in spoilt.score(folder, MODEL):
        scored_set.add(row)
    write_scored_page(spoilt, source, listing, scored_set, tmp_path / "score.html", Origin(evil, evil))
    with harmless(browser, tmp_path / "score.html") as shown:
        assert evil in shown.page.inner_text("#said")
