"""The page is one valid file that fetches nothing, escapes every name, and answers first what a reader asks first."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from html_page import Page, written
from oodshape import METHODS
from oodshape.benchmark.curves import Theta
from oodshape.benchmark.hardest_images import Pick, Samples
from oodshape.benchmark.results import Results
from oodshape.core.errors import InputError
from oodshape.methods.describe import cited
from oodshape.methods.records import RECORDS
from oodshape.metrics.registry import METRICS
from oodshape.report import write_page
from oodshape.report.pages.benchmark_page import payload
from oodshape.report.tables.paper import paper_figures
from oodshape.report.tables.table import caveats
from synthetic import results

HOSTILE = "</script><img src=x onerror=alert(1)> \"q\" & 'x' -->"


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
    papers = {address for record in RECORDS.values() for _, address in cited(record.citation)}
    assert addresses <= {"http://www.w3.org/2000/svg", *papers}  # a reader may go there, the page does not
    (policy,) = (attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{b64encode(sha256(page.scripts[1].encode()).digest()).decode()}'" in policy


def test_the_page_holds_every_figure_and_says_what_they_mean(html: str) -> None:
    page, made = Page(html), results(limit=200)
    shown, data = "".join(page.text), page.data
    assert all(note in shown for note in caveats(made, incomplete=False) if not note.startswith("Skipped"))
    assert all(metric.note in shown for metric in METRICS.values())
    assert "Not measured: photos" in shown
    assert "photos: no folder data/photos" in shown
    assert "Only a subset was used: at most 200 images of each set." in shown
    assert "sha256:4567" in shown
    rows = {
        (data["models"][m]["name"], data["methods"][k]["name"], data["oods"][o]["name"]): values
        for m, k, o, *values in data["rows"]
    }
    assert [metric["name"] for metric in data["metrics"]] == list(METRICS)
    for line in made.rows:
        values = rows.pop((line.model, line.method, line.ood))
        for metric in data["metrics"]:
            found, place = line.metrics[metric["name"]], metric["at"] - 3
            assert values[place : place + 3] == pytest.approx([found.value, found.low, found.high], abs=1e-6)
    assert not rows
    react = next(method for method in data["methods"] if method["name"] == "react")
    assert react["recipe"] == "Method(shape=ReAct(q=0.9), score=Energy())"
    assert "clipping large features" in react["sentence"]
    curve, points = made.curves[0], page.curves[0]["0,0"]
    assert [len(each) for each in page.curves] == [8, 8]  # four methods on two sets
    assert points[2] == list(curve.id_counts)
    assert points[5] == pytest.approx([1000 * rate for rate in curve.tpr], abs=0.5)


# Names, sizes, what is missing


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    made = results(
        [HOSTILE], ["msp", HOSTILE, "optfs-e"], [HOSTILE], skipped=[(HOSTILE, HOSTILE)], note=HOSTILE, seed=3
    )
    shapes = [Theta(model=HOSTILE, method=HOSTILE, z=(0.5, 1.0), theta=(0.5, 2.0))]
    pick = {"images": (0,), "scores": (1.0,), "shares": (0.5,), "predicted": (1,), "labels": (-1,)}
    samples = Samples(("data:,",), (Pick(model=HOSTILE, method=HOSTILE, ood=HOSTILE, **pick),))
    html = written(replace(made, shapes=shapes, samples=samples), tmp_path)
    assert "<img" not in html
    page = Page(html)
    assert [page.data[part][-1]["name"] for part in ("models", "oods")] == [HOSTILE, HOSTILE]
    assert page.data["methods"][1]["name"] == HOSTILE
    assert "".join(page.text).count(HOSTILE) >= 5
    assert len(page.scripts) == 3


def test_three_models_every_method_and_six_sets_make_a_small_page(tmp_path: Path) -> None:
    sets = ("digits89", "letters", "photos", "textures", "gaussian", "uniform")
    html = written(results(["convnet", "vit", "mixer"], list(METHODS), sets), tmp_path)
    assert len(html.encode()) < 2_000_000  # images take less than the rest


def test_results_without_curves_still_make_a_page(tmp_path: Path) -> None:
    page = Page(written(replace(results(), curves=[], shapes=[]), tmp_path))
    assert (page.curves, page.data["shapes"]) == ([], {})
    assert page.data["samples"] == {"images": [], "picks": []}


def test_results_without_rows_make_no_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rows"):
        write_page(Results([], {}), tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


# The paper


def test_the_papers_figures_stand_in_the_page_where_there_are_any() -> None:
    names = (["ResNet50", "mine"], ["msp", "optfs-e", "knn"], ["SUN", "Texture"])
    assert payload(results(*names))["paper"] is None  # other settings
    assert payload(results(["mine"], settings="imagenet"))["paper"] is None  # not the paper's network
    paper = payload(results(*names, settings="imagenet"))["paper"]
    figures = paper_figures()

    def at(place: str) -> dict[str, float]:
        return dict(zip(paper["metrics"], paper["figures"][place], strict=True))

    assert at("ood,0,0,1") == figures["ood", "imagenet", "ResNet50", "Texture"]["msp"]
    assert at("model,0,1") == figures["model", "imagenet", "ResNet50", "Average"]["optfs-e"]
    assert at("standard4,0,0") == figures["standard4", "imagenet", "ResNet50", "Average"]["msp"]
    assert len(paper["figures"]) == 2 * (1 + 1 + 2)  # nothing for `mine` and for knn
    assert paper["standard4"] == []  # two of the four sets are missing
    four = payload(results(["ResNet50"], ["msp"], ["Texture", "SUN", "Places", "iNaturalist"], settings="imagenet"))
    assert four["paper"]["standard4"] == [3, 1, 2, 0]


# Styles
