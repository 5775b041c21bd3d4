"""The paper's and OpenOOD's figures next to ours, checked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oodshape import METHODS, InputError
from oodshape.benchmark.results import RunResults
from oodshape.benchmark.spec import Benchmark
from oodshape.methods.records import RECORDS
from oodshape.report.benchmark_files import make_named_tables
from oodshape.report.tables.markdown_latex import to_latex, to_markdown
from oodshape.report.tables.openood import BOARDS, explain_not_comparable, load_leaderboard, openood_tables
from oodshape.report.tables.paper import paper_figures, paper_sets
from oodshape.report.tables.table import Table
from oodshape.report.tables.terminal import to_text
from synthetic import row


def results(*rows, settings: str = "imagenet", **more) -> RunResults:
    return RunResults(rows, {"settings": {"settings": settings}, **more})


def cells(table: Table, method: str) -> dict[str, tuple[str, str]]:
    (line,) = (line for line in table.lines if line.method == method)
    return {name: tuple(c.text for c in entry.cells) for name, entry in zip(table.groups, line.entries, strict=True)}


# The data file


def test_the_figures_are_the_paper_s() -> None:
    figures = paper_figures()
    assert sum(len(place) for place in figures.values()) == 752
    assert figures["model", "cifar10", "DenseNet101", "Average"]["msp"] == {"fpr95": 52.66, "auroc": 91.42}
    ours = {method for methods in figures.values() for method in methods}
    assert ours - set(METHODS) == {"Dynamic", "Gaussian", "Uniform", "Real"}  # variants of OptFS, from OOD images


def test_models_and_sets_of_the_figures_are_those_of_the_benchmarks() -> None:
    for id_set in ("imagenet", "cifar10", "cifar100"):
        made = Benchmark.load(id_set)
        models = {model for _, place, model, _ in paper_figures() if place == id_set}
        assert models - {"Average"} == {model.title for model in made.models}
    sets = {ood for table, _, _, ood in paper_figures() if table == "ood"}
    assert sets - {"Average"} == {ood.name for ood in Benchmark.load("imagenet").ood}


# Beside ours


def test_differences_by_hand() -> None:
    made = results(
        *(row("ResNet50", "msp", name, fpr95=0.70, auroc=0.75) for name in paper_sets("imagenet")),
        *(row("ResNet50", "mls", name) for name in paper_sets("imagenet")),
    )
    (table,) = make_named_tables(made, paper=True)
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
    few = replace(made, rows=tuple(each for each in made.rows if each.ood != "SUN"))
    (table,) = make_named_tables(few, paper=True)
    assert cells(table, "msp")["ResNet50 (difference)"] == ("-", "-")  # means over other sets
    assert "No difference where our mean is over other OOD sets than the paper's." in table.notes


def test_by_ood_and_standard4_have_figures_of_their_own() -> None:
    made = results(
        row("ResNet50", "msp", "Species", fpr95=0.8, auroc=0.7), row("ResNet50", "msp", "SUN", fpr95=0.7, auroc=0.8)
    )
    (by_ood,) = make_named_tables(made, "ood", paper=True)
    found = cells(by_ood, "msp")
    assert found["Species (paper)"] == ("75.15", "79.53")
    assert found["SUN (difference)"] == ("-1.75", "+1.42")
    assert found["Average (paper)"] == (f"{(75.15 + 81.75) / 2:.2f}", f"{(79.53 + 68.58) / 2:.2f}")
    (four,) = make_named_tables(made, "standard4", paper=True)
    assert cells(four, "msp")["ResNet50"] == ("80.00", "70.00")  # SUN alone
    assert cells(four, "msp")["ResNet50 (paper)"] == ("82.82", "64.76")
    assert "standard four" in four.title
    assert any("1 OOD set (" in note for note in four.notes)


def test_models_that_the_paper_has_not_stand_without_figures() -> None:
    known, own = row("ResNet50", "msp", "SUN"), row("mine", "msp", "SUN")
    (table,) = make_named_tables(results(known, own), paper=True)
    assert cells(table, "msp")["mine (paper)"] == ("-", "-")
    assert cells(table, "msp")["Average (paper)"] == ("-", "-")  # not over the same models
    plain, beside = make_named_tables(results(own, known), "ood", paper=True)
    assert len(plain.groups) == 1
    assert len(beside.groups) == 3
    with pytest.raises(InputError, match="no figures for mine"):
        make_named_tables(results(own), paper=True)


def test_a_comparison_that_means_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="needs the paper's settings for cifar10, cifar100, imagenet, got 'general'"):
        make_named_tables(results(row("ResNet50"), settings="general"), paper=True)
    with pytest.raises(InputError, match="standard4 is over iNaturalist, SUN, Places, Texture; these results have let"):
        make_named_tables(results(row("ResNet50")), "standard4")
    with pytest.raises(InputError, match="no table 'five'"):
        make_named_tables(results(row("ResNet50")), "five")  # type: ignore[arg-type]


RUNS = ("ResNet18 s0", "ResNet18 s1", "ResNet18 s2")
NEAR, FAR = ("ssb_hard", "ninco"), ("inaturalist", "textures", "openimage_o")
THREE = ("energy", "ash-b", "optfs-e")


def value(run: int, method: int, ood: int, figure: int) -> float:
    return 0.5 + 0.01 * run + 0.03 * method + 0.02 * ood + 0.001 * figure


def made(name: str = "openood-imagenet200", runs: tuple[str, ...] = RUNS, **settings) -> RunResults:
    rows = [
        row(
            run,
            method,
            ood,
            benchmark=name,
            group="near" if ood in NEAR else "far",
            auroc=value(i, j, k, 0),
            fpr95=value(i, j, k, 1),
            fpr95_ood=value(i, j, k, 2),
            aupr_in=value(i, j, k, 3),
            aupr_out=value(i, j, k, 4),
            id_accuracy=0.86 + 0.01 * i,
        )
        for i, run in enumerate(runs)
        for j, method in enumerate(THREE)
        for k, ood in enumerate((*NEAR, *FAR))
    ]
    said = {"settings": "openood", "limit": None, **settings}
    if runs == RUNS:
        said["runs"] = dict.fromkeys(runs, "ResNet18")
    return RunResults(tuple(rows), {"settings": said})


def test_the_table_has_means_over_runs_and_the_published_figures() -> None:
    ((frame, title, notes),) = openood_tables(made())
    assert title == ("openood-imagenet200 (OpenOOD v1.5): ResNet18, mean ± standard deviation of 3 training runs")
    line = dict(zip(frame.columns, frame.iloc[0], strict=True))
    auroc = 100 * np.mean([[value(i, 0, k, 0) for k in (0, 1)] for i in range(3)], axis=1)
    assert line["near AUROC"] == f"{auroc.mean():.2f} ± {auroc.std():.2f}" == "52.00 ± 0.82"
    assert line["near published"] == "82.50"  # EBO of the leaderboard
    assert line["near difference"] == "-30.50"
    assert line["far published"] == "90.86"
    paper = 100 * np.mean([[value(i, 0, k, 1) for k in (2, 3, 4)] for i in range(3)], axis=1)
    assert line["far FPR95 (paper)"] == f"{paper.mean():.2f} ± {paper.std():.2f}"
    assert line["far FPR95 (OpenOOD)"] == f"{paper.mean() + 0.1:.2f} ± {paper.std():.2f}"
    assert frame.iloc[2]["near published"] == frame.iloc[2]["near difference"] == "-"  # no OptFS there
    said = " ".join(notes)
    assert "near: ssb_hard, ninco; far: inaturalist, textures, openimage_o" in said
    assert "ID accuracy: 87.00 ± 0.82" in said
    assert "searched on OOD validation images: ash-b." in said


def test_several_networks_have_tables_and_one_run_no_deviation() -> None:
    given = made("openood-imagenet-fs", ("ResNet50", "ViT-B/16"), spectrum="fs", shifted=["imagenet_v2"])
    tables = list(openood_tables(given))
    assert [frame.iloc[0]["near published"] for frame, _, _ in tables] == ["56.61", "51.65"]
    assert "Full spectrum (fs): ID are the test images and those of imagenet_v2." in tables[0][2]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (made("openood-cifar10-fs"), "no table for it"),
        (made(limit=20), "only 20 images"),
        (made(lists="as they are"), "not the published ones"),
        (replace(made(), skipped=(("ninco", "not here"),)), "ninco is missing"),
    ],
)
def test_what_cannot_be_compared_is_said(given: RunResults, reason: str) -> None:
    assert reason in explain_not_comparable(given)
    ((_, _, notes),) = openood_tables(given)
    assert any("Not comparable with the leaderboard: " in note for note in notes)


def test_a_set_that_is_missing_leaves_no_mean() -> None:
    whole = made()
    given = replace(whole, rows=tuple(r for r in whole.rows if (r.model, r.ood) != ("ResNet18 s1", "ninco")))
    ((frame, _, _),) = openood_tables(given)
    assert set(frame["near AUROC"]) == {"-"}
    assert "-" not in set(frame["far AUROC"])


def test_published_figures_belong_to_networks_and_methods_that_are_here() -> None:
    places = load_leaderboard()
    assert len(places) == 258
    assert {board for board, _, _ in places} == set(BOARDS.values())
    for name, board in BOARDS.items():
        models = {spec.title for spec in Benchmark.load(name.removesuffix("-fs")).models}
        assert {network for where, network, _ in places if where == board} == models
    names = {name for _, _, name in places}
    ours = {record.openood.get("published", "") for record in RECORDS.values()} - {""}
    assert ours <= names
    assert places["cifar10", "ResNet18", "KNN"] == {"near": 90.64, "far": 92.96, "accuracy": 95.06}
