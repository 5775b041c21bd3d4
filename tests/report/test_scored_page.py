"""The page of a check and of scores in a real browser: slider, images, keyboard, phone, no request."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axe import violations
from browser import Opened
from folders_of_digits import write_digits, write_odd_files
from oodshape import Guard
from oodshape.core.options import RunOptions
from oodshape.guard.check import Check, check_guard
from oodshape.images.sources.open_images import stream_images
from oodshape.metrics.detection import auroc
from oodshape.report.method_styles import display_name
from oodshape.report.pages.check_page import write_check_page
from oodshape.report.pages.scored_page import Origin, ScoredRows, write_scored_page

MODEL = "zoo:digits-convnet"
QUIET = RunOptions(progress=False)


@pytest.fixture(scope="module")
def made(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Check]:
    """check.html and score.html of one guard."""
    folder = write_digits(tmp_path_factory.mktemp("judged"), train=200, val=90, test=3, ood=40)
    write_odd_files(folder / "inbox" / "odd")  # none has the size that this network accepts
    shutil.copytree(folder / "letters", folder / "inbox" / "letters")
    guard = Guard.fit(MODEL, images=folder / "train", calibrate=folder / "val", progress=False)
    source = guard.open_network(MODEL)
    check = check_guard(
        guard, source, str(folder / "val"), {"letters": str(folder / "letters")}, RunOptions(progress=False)
    )
    origin = Origin("oodshape check --id 'a <b>'", "some/guard.safetensors")
    write_check_page(check, folder / "check.html", source, origin)
    listing = stream_images(str(folder / "inbox"))
    scored_set = ScoredRows(guard, listing.name)
    for row in guard.score(folder / "inbox", MODEL):
        scored_set.add(row)
    write_scored_page(guard, source, listing, scored_set, folder / "score.html", Origin())
    return folder, check


@pytest.fixture
def shown(browser: Any, made: tuple[Path, Check]) -> Iterator[Opened]:
    opened = Opened(browser, made[0] / "check.html")
    yield opened
    assert opened.said == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [(made[0] / "check.html").as_uri()]
    opened.context.close()


pytestmark = pytest.mark.filterwarnings("ignore:.*are known to have been used")


def move(shown: Opened, alpha: float) -> None:
    tick = shown.page.evaluate("alpha => DATA.ticks.indexOf(alpha)", alpha)
    shown.page.locator("#alpha").evaluate("(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", tick)
    shown.page.locator("#said", has_text=f"alpha {100 * alpha:g} %").wait_for()


def test_the_slider_counts_every_image(shown: Opened, made: tuple[Path, Check]) -> None:
    check = made[1]
    strange, familiar = check.outside[0], check.inside
    for alpha in (0.05, 0.1, 0.3):
        move(shown, alpha)
        said = shown.page.inner_text("#said")
        for images, verb in ((familiar, "val (ID) rejected"), (strange, "letters (OOD) accepted")):
            line = next(line for line in said.splitlines() if line.startswith(verb))
            for scores, found in zip(images.judged.values(), re.findall(r"\((\d+) of (\d+)\)", line), strict=True):
                out = int((scores.p_values <= alpha).sum())
                wanted = out if images is familiar else len(scores.values) - out
                assert (int(found[0]), int(found[1])) == (wanted, len(scores.values))
        limit = np.sort(check.guard.detector.calibration)[int(alpha * (len(check.guard.detector.calibration) + 1)) - 1]
        assert float(re.search(r"threshold (\S+)\.", said)[1]) == pytest.approx(limit, rel=0.006)
        assert shown.page.is_visible("#back") == (alpha != 0.05)
        assert shown.page.inner_text("#command").startswith(f"oodshape calibrate guard.safetensors --alpha {alpha} ")
    shown.page.click("#back")
    assert "alpha 5 %" in shown.page.inner_text("#said")


def test_other_thresholds_are_told_without_asking(shown: Opened, made: tuple[Path, Check]) -> None:
    check = made[1]
    heads = shown.page.locator("#asked thead th").all_inner_texts()
    assert heads == ["alpha", "1 %", "5 % guard", "10 %", "20 %"]
    shares = [100 * (scores.p_values <= 0.1).mean() for scores in check.inside.judged.values()]
    shares += [100 * (scores.p_values > 0.1).mean() for scores in check.outside[0].judged.values()]
    cells = shown.page.locator("#asked tbody td:nth-child(4)").all_inner_texts()
    assert re.findall(r"[\d.]+ %", "\n".join(cells)) == [f"{share:.1f} %" for share in shares]
    shown.page.locator("#asked").get_by_role("button", name="10 %").click()
    assert "alpha 10 %" in shown.page.inner_text("#said")
    assert shown.page.locator("#asked thead [aria-current]").inner_text().startswith("10 %")


def test_roc_curves_and_the_points_of_the_threshold(shown: Opened, made: tuple[Path, Check]) -> None:
    inside, outside = made[1].inside, made[1].outside[0]
    for name, (fpr, tpr) in shown.page.evaluate("DATA.roc.letters").items():
        area = sum((b - a) * (c + d) / 2 for a, b, c, d in zip(fpr, fpr[1:], tpr, tpr[1:], strict=False))
        assert area == pytest.approx(auroc(inside.judged[name].values, outside.judged[name].values), abs=0.01)
    assert shown.page.locator("#roc circle").count() == 2


def test_an_image_says_how_its_members_make_one_score(shown: Opened) -> None:
    shown.page.locator("[data-item='3']").click()
    face = shown.page.evaluate("DATA.items.find((face) => face.number === 3)")
    told = re.search(
        r"the score (\S+) is the smaller of two ln p: of the sum (.+) \(Fisher", shown.page.inner_text("#why")
    )
    parts = [float(part.replace("−", "-")) for part in told[2].split()]
    assert parts == pytest.approx(sorted(np.log(p) for _, p in face["components"]), abs=0.006)
    assert float(told[1].replace("−", "-")) == pytest.approx(face["score"], abs=0.006)


def test_shares_are_printed_as_in_python(shown: Opened) -> None:
    pairs = [[13, 400], [15, 400], [1, 3], [0, 7], [7, 7], [1, 2000], [3, 2000], [1, 160], [37, 80]]
    wanted = [f"{100 * (part / whole):.1f} %" for part, whole in pairs]
    assert shown.page.evaluate("pairs => pairs.map(([a, b]) => share(a, b))", pairs) == wanted


def test_images_stand_by_verdict_and_p_value(shown: Opened, made: tuple[Path, Check]) -> None:
    strange = made[1].outside[0].guard
    heads = shown.page.locator("#walls h3").all_inner_texts()
    passing = f"OOD images accepted {strange.accepted}"
    assert (passing in heads) == bool(strange.accepted)
    assert f"OOD images rejected {40 - strange.accepted}" in heads
    for wall in shown.page.locator(".wall").all():
        values = [float(p) for p in re.findall(r"p = (\S+)\n?", "\n".join(wall.locator(".soft").all_inner_texts()))]
        assert values in (sorted(values), sorted(values, reverse=True))
    before = shown.page.locator(".is-wrong").count()
    shown.page.locator("#alpha").focus()
    shown.page.keyboard.press("End")  # the largest alpha rejects about half of the familiar images
    shown.page.wait_for_function("n => document.querySelectorAll('.is-wrong').length > n", arg=before + 10)
    assert "alpha 50 %" in shown.page.inner_text("#said")


def test_classes_are_ranked_at_the_threshold_of_the_guard(shown: Opened, made: tuple[Path, Check]) -> None:
    inside = made[1].inside
    names, p_values = [str(made[1].guard.label(label)) for label in inside.classes], inside.guard.p_values
    rows = "rows => rows.map(row => [...row.children].slice(0, 3).map(cell => cell.textContent))"
    out = Counter(name for name, p in zip(names, p_values, strict=True) if p <= 0.05)
    wanted = sorted(Counter(names).items(), key=lambda each: (each[1] < 10, -out[each[0]] / each[1], -each[1], each[0]))
    found = shown.page.eval_on_selector_all("#groups .scroll:first-of-type tbody tr", rows)
    assert found == [[name, str(images), str(out[name])] for name, images in wanted]


def test_an_image_says_why_and_the_keyboard_goes_on(shown: Opened, made: tuple[Path, Check]) -> None:
    check = made[1]
    shown.page.locator("[data-item='3']").focus()
    shown.page.keyboard.press("Enter")
    text = shown.page.inner_text("#why")
    face = shown.page.evaluate("DATA.items.find((face) => face.number === 3)")
    images = (check.inside, *check.outside)[face["set"]]
    row = [path for path, _ in images.pairs].index(face["path"])
    assert ("Accepted." in text) == bool(images.guard.passed[row])
    assert f"(p = {float(f'{images.guard.p_values[row]:.3g}'):g})" in text
    assert str(check.guard.label(int(images.classes[row]))) in shown.page.inner_text("#why-title")
    components = [display_name(component.name) for component in check.guard.detector.scorer.components]
    assert all(name in text for name in components)
    assert face["path"] in text
    shown.page.keyboard.press("ArrowRight")
    assert shown.page.inner_text("#why-title").startswith("#4:")
    shown.page.keyboard.press("ArrowLeft")
    shown.page.keyboard.press("ArrowLeft")
    assert shown.page.inner_text("#why-title").startswith("#2:")
    shown.page.keyboard.press("Escape")
    assert shown.page.is_hidden("#why")
    shown.page.wait_for_function("document.activeElement.dataset.item === '2'")


def test_scores_of_an_inbox(browser: Any, made: tuple[Path, Check]) -> None:
    opened = Opened(browser, made[0] / "score.html", 390, "dark")
    assert "Unreadable: 14" in opened.page.inner_text("body")
    opened.page.locator("[data-item]").first.click()
    assert opened.page.locator("#why").evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    opened.context.close()


@pytest.mark.parametrize(("name", "scheme", "width"), [("check.html", "light", 1280), ("score.html", "dark", 390)])
def test_nothing_stands_in_a_readers_way(name: str, scheme: str, width: int, browser: Any, made: Any) -> None:
    assert violations(browser, made[0] / name, width, scheme, click="[data-item]") == []
