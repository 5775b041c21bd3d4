"""What a page says first: the best method of each network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from html_page import Page, written
from oodshape.benchmark.comparisons import Ties
from oodshape.benchmark.results import Results
from oodshape.report.pages.benchmark_page import best_methods
from oodshape.report.tables.table import table
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


def test_the_best_methods_of_each_network_by_hand(known: Results) -> None:
    few = [row("net", "few", ood, auroc=0.8, fpr95=0.05) for ood in ("letters", "noise")]
    auto = [row("net", "auto", ood, auroc=0.88, fpr95=0.25) for ood in ("letters", "noise")]
    lucky = row("net", "lucky", "noise", auroc=1.0, fpr95=0.0)  # without a set it is not compared
    tied = (Ties(model="net", ood="", best="knn", tied=("knn", "optfs-e")),)
    net, vit, _ = best_methods(table(replace(known, rows=(*known.rows, *few, *auto, lucky))))
    assert net == ["net", "knn", "", "90.00", "30.00", "5.00 (few)", "88.00"]
    assert vit == ["vit", "msp", "", "97.00", "15.00", "15.00 (msp)", ""]
    assert best_methods(table(replace(known, ties=tied)))[0][2] == "optfs-e"
    many = tuple(row("net", name, auroc=0.8 + 0.01 * i) for i, name in enumerate("abcdef"))
    equal = (Ties(model="net", ood="", best="f", tied=tuple("abcde")),)
    assert best_methods(table(Results(many, {}, ties=equal)))[0][1:3] == ["f", "a, b, c, 2 others"]


def test_they_stand_at_the_top_of_the_page(known: Results, tmp_path: Path) -> None:
    text = " ".join("".join(Page(written(known, tmp_path)).text).split())
    assert "netknn90.0030.0030.00 (knn)" in text
