"""What a page says first: the best method of each network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from html_page import Page, written
from oodshape.benchmark.comparisons import Ties
from oodshape.benchmark.results import Results
from oodshape.report.tables.summary import answers
from synthetic import row


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
    assert (net.best.method, net.best.main, net.best.error) == ("knn", pytest.approx(0.90), pytest.approx(0.3))
    assert net.lowest.method == "knn"
    assert (vit.best.method, vit.best.error) == ("msp", pytest.approx(0.15))


def test_the_method_that_lets_least_through_is_named_where_it_is_another(known: Results, tmp_path: Path) -> None:
    few = [row("net", "few", ood, auroc=0.8, fpr95=0.05) for ood in ("letters", "noise")]
    net, _ = answers(replace(known, rows=(*known.rows, *few)))
    assert (net.best.method, net.lowest.method) == ("knn", "few")
    text = "".join(Page(written(replace(known, rows=(*known.rows, *few)), tmp_path)).text)
    assert "Lowest FPR95: few; it accepts 5.00 % of OOD images." in text
    assert text.count("Lowest FPR95") == 1


def test_auto_is_told_on_each_network_where_it_is_a_row(known: Results, tmp_path: Path) -> None:
    auto = [row("net", "auto", ood, auroc=0.88, fpr95=0.25) for ood in ("letters", "noise")]
    auto += [row("vit", "auto", ood, auroc=0.99, fpr95=0.01) for ood in ("letters", "noise")]
    text = " ".join("".join(Page(written(replace(known, rows=(*known.rows, *auto)), tmp_path)).text).split())
    assert "auto, which chooses without OOD data: AUROC 88.00; it accepts 25.00 % of OOD images." in text
    assert "auto is bestAUROC 99.00; it accepts 1.00 % of OOD images.It chooses without OOD data." in text
    assert text.count("chooses without OOD data") == 2
    assert "without OOD data" not in "".join(Page(written(known, tmp_path)).text)


def test_who_cannot_be_told_from_the_best_is_tied_with_it(known: Results, tmp_path: Path) -> None:
    assert [answer.tied for answer in answers(known)] == [(), ()]
    tied = replace(known, ties=(Ties(model="net", ood="", best="knn", tied=("knn", "optfs-e")),))
    assert [answer.tied for answer in answers(tied)] == [("optfs-e",), ()]
    text = "".join(Page(written(tied, tmp_path)).text)
    assert "knn is tied with optfs-e" in text
    assert "knn is best" not in text
    alike = [row("vit", "twin", ood, auroc=0.97, fpr95=0.5) for ood in ("letters", "noise")]  # printed as msp's mean
    assert [answer.tied for answer in answers(replace(known, rows=(*known.rows, *alike)))][1] == ("twin",)


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
        "net ConvNetknn is bestAUROC 90.00; it accepts 30.00 % of OOD images.",
        "optfs-e is number 3 of 3 (AUROC 84.00, FPR95 41.75)",
    ):
        assert said in text
