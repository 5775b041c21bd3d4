"""The paper's figures beside ours, the standard four sets and the families, checked by hand."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from oodshape import METHODS, InputError
from oodshape.benchmark.results import Results
from oodshape.benchmark.spec import Benchmark
from oodshape.report.tables.kinds import tables_of
from oodshape.report.tables.markdown_latex import to_latex, to_markdown
from oodshape.report.tables.paper import paper_figures
from oodshape.report.tables.table import Table
from oodshape.report.tables.terminal import to_text
from synthetic import row


def results(*rows, settings: str = "imagenet", **more) -> Results:
    return Results(rows, {"settings": {"settings": settings}, **more})


def cells(table: Table, method: str) -> dict[str, tuple[str, str]]:
    (line,) = (line for line in table.lines if line.method == method)
    return {name: tuple(c.text for c in entry.cells) for name, entry in zip(table.groups, line.entries, strict=True)}


# The data file


def test_the_figures_are_the_paper_s() -> None:
    figures = paper_figures()
    assert sum(len(place) for place in figures.values()) == 896
    assert figures["model", "cifar10", "DenseNet101", "Average"]["msp"] == {"fpr95": 52.66, "auroc": 91.42}
    assert figures["ood", "imagenet", "ResNet50", "iNaturalist"]["msp"] == {"fpr95": 52.77, "auroc": 88.42}
    assert figures["standard4", "imagenet", "ResNet50", "Average"]["msp"] == {"fpr95": 64.76, "auroc": 82.82}
    ours = {method for methods in figures.values() for method in methods}
    assert ours - set(METHODS) == {"Dynamic", "Gaussian", "Uniform", "Real"}  # variants of OptFS, from OOD images
    assert {"optfs-v", "optfs-e", "mls", "odin"} <= ours


def test_models_and_sets_of_the_figures_are_those_of_the_benchmarks() -> None:
    for id_set in ("imagenet", "cifar10", "cifar100"):
        made = Benchmark.load(id_set)
        models = {model for _, place, model, _ in paper_figures() if place == id_set}
        assert models - {"Average"} == {model.title for model in made.models}
    sets = {ood for table, _, _, ood in paper_figures() if table == "ood"}
    assert sets - {"Average"} == {ood.name for ood in Benchmark.load("imagenet").ood}


def test_the_printed_averages_follow_from_the_rows() -> None:
    for id_set in ("imagenet", "cifar10", "cifar100"):
        models = [model.title for model in Benchmark.load(id_set).models]
        for method, printed in paper_figures()["model", id_set, "Average", "Average"].items():
            for metric in ("fpr95", "auroc"):
                rows = [paper_figures()["model", id_set, model, "Average"][method][metric] for model in models]
                assert mean(rows) == pytest.approx(printed[metric], abs=0.011), (id_set, method)


# Beside ours


def test_differences_by_hand() -> None:
    made = results(row("ResNet50", "msp", "SUN", fpr95=0.70, auroc=0.75), row("ResNet50", "mls", "SUN"))
    (table,) = tables_of(made, paper=True)
    assert table.groups[:3] == ("ResNet50", "ResNet50 (paper)", "ResNet50 (difference)")
    found = cells(table, "msp")
    assert found["ResNet50"] == ("75.00", "70.00")
    assert found["ResNet50 (paper)"] == ("76.26", "69.30")
    assert found["ResNet50 (difference)"] == ("-1.26", "+0.70")
    assert len(table.groups) == 3  # one network is its own average
    assert cells(table, "mls")["ResNet50 (paper)"] == ("-", "-")  # only the tables for CIFAR have it
    for text in (to_text(table), to_markdown(table), to_latex(table)):
        assert "+0.70" in text
        assert "76.26" in text
        assert "eight OOD sets" in text


def test_by_ood_and_standard4_have_figures_of_their_own() -> None:
    made = results(
        row("ResNet50", "msp", "Species", fpr95=0.8, auroc=0.7), row("ResNet50", "msp", "SUN", fpr95=0.7, auroc=0.8)
    )
    (by_ood,) = tables_of(made, "ood", paper=True)
    found = cells(by_ood, "msp")
    assert found["Species (paper)"] == ("75.15", "79.53")
    assert found["SUN (difference)"] == ("-1.75", "+1.42")
    assert found["Average (paper)"] == (f"{(75.15 + 81.75) / 2:.2f}", f"{(79.53 + 68.58) / 2:.2f}")
    (four,) = tables_of(made, "standard4", paper=True)
    assert cells(four, "msp")["ResNet50"] == ("80.00", "70.00")  # SUN alone
    assert cells(four, "msp")["ResNet50 (paper)"] == ("82.82", "64.76")
    assert "standard four" in four.title
    assert any("1 OOD set (" in note for note in four.notes)


def test_models_that_the_paper_has_not_stand_without_figures() -> None:
    known, own = row("ResNet50", "msp", "SUN"), row("mine", "msp", "SUN")
    (table,) = tables_of(results(known, own), paper=True)
    assert cells(table, "msp")["mine (paper)"] == ("-", "-")
    assert cells(table, "msp")["Average (paper)"] == ("-", "-")  # not over the same models
    plain, beside = tables_of(results(own, known), "ood", paper=True)
    assert len(plain.groups) == 1
    assert len(beside.groups) == 3
    with pytest.raises(InputError, match="no figures for mine"):
        tables_of(results(own), paper=True)


def test_a_comparison_that_means_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="needs the paper's settings for cifar10, cifar100, imagenet, got 'general'"):
        tables_of(results(row("ResNet50"), settings="general"), paper=True)
    with pytest.raises(InputError, match="standard4 is over iNaturalist, SUN, Places, Texture; these results have let"):
        tables_of(results(row("ResNet50")), "standard4")


# Families


def test_groups_are_means_over_models_and_the_average_is_over_all() -> None:
    values = {"ResNet50": (0.1, "ConvNet"), "MobileNetV2": (0.2, "ConvNet"), "ViT-B-16": (0.6, "transformer")}
    rows = [row(name, "msp", "SUN", fpr95=fp, auroc=1 - fp, family=family) for name, (fp, family) in values.items()]
    (table,) = tables_of(results(*rows), "groups", paper=True)
    assert table.groups[::3] == ("ConvNets", "transformers", "Average")
    found = cells(table, "msp")
    assert found["ConvNets"] == ("85.00", "15.00")
    assert found["transformers"] == ("40.00", "60.00")
    assert found["Average"] == ("70.00", "30.00")  # over three models, not over two families
    assert [float(text) for text in found["ConvNets (paper)"]] == pytest.approx([76.835, 70.94], abs=0.0051)
    assert found["Average (paper)"][1] == f"{(69.30 + 72.58 + 69.84) / 3:.2f}"
    assert any("ConvNets: ResNet50, MobileNetV2; transformers: ViT-B-16" in note for note in table.notes)
    lacking = [*rows, replace(rows[2], method="mls")]
    (table,) = tables_of(results(*lacking), "groups")
    assert cells(table, "mls")["ConvNets"] == ("-", "-")
    assert table.lines[1].entries[-1].mark == " (1/3)"


def test_there_are_four_kinds() -> None:
    with pytest.raises(InputError, match="no table 'five'"):
        tables_of(results(row("ResNet50")), "five")  # type: ignore[arg-type]
