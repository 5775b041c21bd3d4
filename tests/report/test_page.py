"""The page is one valid file that fetches nothing and escapes every name; methods have colours of their own."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from html_page import Page, written
from oodshape.benchmark.results import RunResults
from oodshape.core.errors import InputError
from oodshape.methods.describe import find_titles
from oodshape.methods.records import RECORDS
from oodshape.metrics.registry import METRICS
from oodshape.report import palette
from oodshape.report.method_styles import FAMILIES, method_family, method_style
from oodshape.report.pages.benchmark_page import write_benchmark_page
from synthetic import results


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(results(limit=200), tmp_path_factory.mktemp("page"))


def test_the_page_is_whole_and_its_anchors_lead_somewhere(html: str) -> None:
    page = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    anchors = {attributes["href"] for tag, attributes in page.tags if tag == "a"}
    assert len(anchors) == 6
    assert anchors <= {f"#{name}" for name in ids}
    assert "{{" not in html


def test_the_page_fetches_nothing_and_runs_its_own_script_only(html: str) -> None:
    page = Page(html)
    for tag, attributes in page.tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {"src", "srcset", "data", "action", "xlink:href"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert "url(" not in html.lower()
    assert "@import" not in html
    addresses = set(re.findall(r"https?://[^\"' ]+", html))
    papers = {address for record in RECORDS.values() for _, address in find_titles(record.citation)}
    assert addresses <= {"http://www.w3.org/2000/svg", *papers}  # a reader may go there, the page does not
    (policy,) = (attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{b64encode(sha256(page.scripts[1].encode()).digest()).decode()}'" in policy


def test_the_page_holds_every_figure(html: str) -> None:
    data, made = Page(html).data, results(limit=200)
    rows = {
        (data["models"][m]["name"], data["methods"][k]["name"], data["oods"][o]["name"]): values
        for m, k, o, *values in data["rows"]
    }
    assert [metric["name"] for metric in data["metrics"]] == [*METRICS, "near_fpr95", "far_fpr95"]
    for line in made.rows:
        values = rows.pop((line.model, line.method, line.ood))
        for metric in data["metrics"]:
            found, place = line.metrics[metric["name"].removeprefix("near_").removeprefix("far_")], metric["at"] - 3
            assert values[place : place + 3] == pytest.approx([found.value, found.low, found.high], abs=1e-6)
    assert not rows
    text = "".join(Page(html).text)
    for note in ("photos: no folder data/photos", "only a subset was used: at most 200 images of each set"):
        assert note in text


def test_results_without_rows_make_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rows"):
        write_benchmark_page(RunResults([], {}), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_no_method_has_the_colour_of_id_or_ood_images() -> None:
    assert len({ink.light for ink in palette.ALL.values()}) == len({ink.dark for ink in palette.ALL.values()})
    assert len({ink.light for ink in palette.ALL.values()}) == len(palette.ALL)
    for name in RECORDS:
        assert method_style(name).color not in (palette.ID_COLOR, palette.OOD_COLOR)
        assert method_style(name).family == method_family(name)
    assert {method_family(name) for name in RECORDS} | {"own"} == set(FAMILIES)
