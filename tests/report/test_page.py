"""The page is one valid file that fetches nothing, escapes every name, and answers first what a reader asks first."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from oodshape import METHODS, paper_methods
from oodshape.benchmark.curves import Theta
from oodshape.benchmark.hardest_images import Pick, Samples
from oodshape.benchmark.results import Results
from oodshape.core.errors import InputError
from oodshape.methods.table import NEWER
from oodshape.report import write_page
from oodshape.report.beside_paper import paper_figures
from oodshape.report.headline import answers, gaps
from oodshape.report.page_data import payload
from oodshape.report.pivot import caveats
from oodshape.report.styles import PALETTE, style
from synthetic import results, row

VOID = {"meta", "br"}
HOSTILE = "</script><img src=x onerror=alert(1)> \"q\" & 'x' -->"


class Page(HTMLParser):
    """The tags, the attributes and the text of a page; fails where tags are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.text).append(data)

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def written(made: Results, folder: Path) -> str:
    write_page(made, folder / "page.html")
    assert [path.name for path in folder.iterdir()] == ["page.html"]
    return (folder / "page.html").read_text(encoding="utf-8")


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
    assert set(re.findall(r"https?://[^\"' ]+", html)) == {"http://www.w3.org/2000/svg"}
    (policy,) = (attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{b64encode(sha256(page.scripts[1].encode()).digest()).decode()}'" in policy


def test_the_page_holds_every_figure_and_says_what_they_mean(html: str) -> None:
    page, made = Page(html), results(limit=200)
    shown, data = "".join(page.text), page.data
    assert all(note in shown for note in caveats(made, incomplete=False) if not note.startswith("Skipped"))
    assert not re.search(r"\b(FP|AU):", shown)  # the names of the other tables' columns
    assert "Not measured: photos" in shown
    assert "photos: no folder data/photos" in shown
    assert "Only a subset was used: at most 200 images of each set." in shown
    assert "sha256:4567" in shown
    rows = {
        (data["models"][m]["name"], data["methods"][k]["name"], data["oods"][o]["name"]): values
        for m, k, o, *values in data["rows"]
    }
    assert data["metrics"] == ["fpr95", "auroc", "aupr_in", "aupr_out"]
    for line in made.rows:
        values = rows.pop((line.model, line.method, line.ood))
        assert values[:6] == pytest.approx(
            [line.fpr95, line.fpr95_low, line.fpr95_high, line.auroc, line.auroc_low, line.auroc_high], abs=1e-6
        )
    assert not rows
    react = next(method for method in data["methods"] if method["name"] == "react")
    assert react["recipe"] == "Method(shape=ReAct(q=0.9), score=Energy())"
    assert "cutting large features" in react["sentence"]
    curve, points = made.curves[0], data["curves"]["0,0,0"]
    assert points[2] == list(curve.id_counts)
    assert points[5] == pytest.approx([1000 * rate for rate in curve.tpr], abs=0.5)


def test_the_page_is_for_every_screen_and_for_the_keyboard(html: str) -> None:
    page = Page(html)
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    assert "color-scheme: light dark" in html
    assert "@media print" in html
    (box,) = (attributes for _, attributes in page.tags if attributes.get("class") == "scroll")
    assert box["tabindex"] == "0"
    assert box["aria-labelledby"] == "leaderboard-title"


# What is said first


@pytest.fixture
def known() -> Results:
    """Two networks and two sets; optfs-e is best on one of the four pairs."""
    figures = {
        ("net", "letters"): {"msp": (0.90, 0.40), "optfs-e": (0.80, 0.60), "knn": (0.85, 0.5)},
        ("net", "noise"): {"msp": (0.70, 0.70), "optfs-e": (0.99, 0.02), "knn": (0.95, 0.1)},
        ("vit", "letters"): {"msp": (0.96, 0.20), "optfs-e": (0.60, 0.90), "knn": (0.90, 0.3)},
        ("vit", "noise"): {"msp": (0.98, 0.10), "optfs-e": (0.97, 0.15), "knn": (0.97, 0.12)},
    }
    rows = [
        row(model, method, ood, auroc=auroc, fpr95=fpr95)
        for (model, ood), methods in figures.items()
        for method, (auroc, fpr95) in methods.items()
    ]
    return Results(tuple(rows), {})


def test_the_best_method_of_each_network_by_hand(known: Results) -> None:
    net, vit = answers(known)
    assert (net.best.method, net.best.auroc, net.best.fpr95) == ("knn", pytest.approx(0.90), pytest.approx(0.3))
    assert net.lowest.method == "knn"
    assert net.ours is not None
    assert (net.ours.place, net.methods, net.ours.auroc) == (2, 3, pytest.approx(0.895))
    assert net.worst is not None
    assert (net.worst.ours.ood, net.worst.best.method) == ("letters", "msp")
    assert (vit.best.method, vit.best.fpr95) == ("msp", pytest.approx(0.15))
    assert vit.ours is not None
    assert vit.ours.place == 3
    assert [round(gap.auroc, 6) for gap in gaps(known)] == [0.36, 0.10, 0.01, 0.0]


def test_the_method_that_lets_least_through_is_named_where_it_is_another(known: Results, tmp_path: Path) -> None:
    few = [row("net", "few", ood, auroc=0.8, fpr95=0.05) for ood in ("letters", "noise")]
    net, _ = answers(replace(known, rows=(*known.rows, *few)))
    assert (net.best.method, net.lowest.method) == ("knn", "few")
    text = "".join(Page(written(replace(known, rows=(*known.rows, *few)), tmp_path)).text)
    assert "By FPR95 few is: it lets 5.00 % of OOD images through." in text
    assert text.count("By FPR95") == 1


def test_auto_is_told_on_each_network_where_it_is_a_row(known: Results, tmp_path: Path) -> None:
    auto = [row("net", "auto", ood, auroc=0.88, fpr95=0.25) for ood in ("letters", "noise")]
    auto += [row("vit", "auto", ood, auroc=0.99, fpr95=0.01) for ood in ("letters", "noise")]
    text = " ".join("".join(Page(written(replace(known, rows=(*known.rows, *auto)), tmp_path)).text).split())
    assert "auto, which chooses without OOD data: AUROC 88.00; it lets 25.00 % of OOD images through." in text
    assert "auto is bestAUROC 99.00; it lets 1.00 % of OOD images through.It chooses without OOD data." in text
    assert text.count("chooses without OOD data") == 2
    assert "without OOD data" not in "".join(Page(written(known, tmp_path)).text)


def test_a_network_named_as_its_family_is_named_once(known: Results, tmp_path: Path) -> None:
    rows = tuple(replace(line, model=line.model.replace("net", "ConvNet")) for line in known.rows)
    text = "".join(Page(written(replace(known, rows=rows), tmp_path)).text)
    assert "ConvNet ConvNet" not in text
    assert "vit ConvNetmsp is best" in text


def test_a_method_without_a_set_is_not_the_best(known: Results) -> None:
    lucky = row("net", "lucky", "noise", auroc=1.0, fpr95=0.0)
    net, _ = answers(replace(known, rows=(*known.rows, lucky)))
    assert net.best.method == "knn"


def test_the_answers_stand_at_the_top_in_words(known: Results, tmp_path: Path) -> None:
    text = " ".join("".join(Page(written(known, tmp_path)).text).split())
    for said in (
        "net ConvNetknn is bestAUROC 90.00; it lets 30.00 % of OOD images through.",
        "optfs-e is number 2 of 3: AUROC 89.50; it lets 31.00 % of OOD images through. It loses most on letters:"
        " AUROC 80.00 against 90.00 (msp).",
        "Another method has a higher AUROC on 3 of 4 pairs",
        "vit on letters: AUROC 60.00 against 96.00 of msp; optfs-e lets 90.00 % of OOD images through, msp 20.00 %.",
        "It is the best on net (noise).",
    ):
        assert said in text


def test_without_optfs_nothing_is_said_of_it(known: Results, tmp_path: Path) -> None:
    rows = tuple(line for line in known.rows if line.method != "optfs-e")
    text = "".join(Page(written(replace(known, rows=rows), tmp_path)).text)
    assert "Where OptFS" not in text
    assert "is number" not in text


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
    assert len(page.scripts) == 2


def test_three_models_every_method_and_six_sets_make_a_small_page(tmp_path: Path) -> None:
    sets = ("digits89", "letters", "photos", "textures", "gaussian", "uniform")
    html = written(results(["convnet", "vit", "mixer"], list(METHODS), sets), tmp_path)
    assert len(html.encode()) < 2_000_000  # images take less than the rest


def test_results_without_curves_still_make_a_page(tmp_path: Path) -> None:
    page = Page(written(replace(results(), curves=[], shapes=[]), tmp_path))
    assert page.data["curves"] == page.data["shapes"] == {}
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
    assert (
        payload(replace(results(*names), provenance={"positive": "ood", "settings": {"settings": "imagenet"}}))["paper"]
        is None
    )
    paper = payload(results(*names, settings="imagenet"))["paper"]
    figures = paper_figures()
    assert paper["figures"]["ood,0,0,1"] == figures["ood", "imagenet", "ResNet50", "Texture"]["msp"]
    assert paper["figures"]["model,0,1"] == figures["model", "imagenet", "ResNet50", "Average"]["optfs-e"]
    assert paper["figures"]["standard4,0,0"] == figures["standard4", "imagenet", "ResNet50", "Average"]["msp"]
    assert len(paper["figures"]) == 2 * (1 + 1 + 2)  # nothing for `mine` and for knn
    assert paper["standard4"] == []  # two of the four sets are missing
    four = payload(results(["ResNet50"], ["msp"], ["Texture", "SUN", "Places", "iNaturalist"], settings="imagenet"))
    assert four["paper"]["standard4"] == [3, 1, 2, 0]


# Styles


def test_styles_are_all_different_and_do_not_depend_on_what_is_drawn() -> None:
    assert len({(style(name).color, str(style(name).dashes)) for name in METHODS}) == len(METHODS)
    own = style("my-method")
    assert own == style.__wrapped__("my-method")
    assert own.dashes not in [style(method).dashes for method in METHODS]
    assert style("my-method").color in PALETTE


def test_a_method_has_its_colour_on_the_page_too() -> None:
    shown = payload(results())["methods"]
    assert [(entry["color"], entry["dashes"]) for entry in shown] == [style(entry["name"]).web for entry in shown]
    kinds = {
        entry["name"]: entry["kind"] for entry in payload(results(["net"], list(paper_methods("imagenet"))))["methods"]
    }
    assert {name for name, kind in kinds.items() if kind == "since the paper"} == set(NEWER)
    assert {name for name, kind in kinds.items() if kind == "OptFS"} == {name for name in METHODS if "optfs" in name}
    assert [name for name, kind in kinds.items() if kind == "chooses among them"] == ["auto"]
    assert kinds["msp"] == kinds["react"] == "the paper's baselines"
    assert payload(results(["net"], ["mine"]))["methods"][0]["kind"] == "your own"
