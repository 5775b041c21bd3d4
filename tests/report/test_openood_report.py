"""OpenOOD's tables and files: means over training runs, published figures beside ours, rows for its leaderboard."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oodshape.benchmark.results import Results
from oodshape.benchmark.spec import Benchmark
from oodshape.methods.records import RECORDS
from oodshape.report.tables.openood import (
    BOARDS,
    GROUPS,
    openood_tables,
    published,
    their_name,
    why_not_comparable,
    write_openood,
)
from synthetic import row

RUNS = ("ResNet18 s0", "ResNet18 s1", "ResNet18 s2")
NEAR, FAR = ("ssb_hard", "ninco"), ("inaturalist", "textures", "openimage_o")
METHODS = ("energy", "ash-b", "optfs-e")
HEAD = "Training,Postprocessor,Near-OOD_AUROC,Far-OOD_AUROC,ID_Accuracy,Outlier_Data,Arch,Additional_Description"


def value(run: int, method: int, ood: int, figure: int) -> float:
    return 0.5 + 0.01 * run + 0.03 * method + 0.02 * ood + 0.001 * figure


def made(name: str = "openood-imagenet200", runs: tuple[str, ...] = RUNS, **settings) -> Results:
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
        for j, method in enumerate(METHODS)
        for k, ood in enumerate((*NEAR, *FAR))
    ]
    said = {"settings": "openood", "limit": None, **settings}
    if runs == RUNS:
        said["runs"] = dict.fromkeys(runs, "ResNet18")
    return Results(tuple(rows), {"settings": said})


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
    assert "searched on OOD validation images (--settings openood-tuned): ash-b." in said


def test_files_are_in_openoods_layout(tmp_path: Path) -> None:
    write_openood(made(), tmp_path)
    files = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.csv")}
    assert files == {f"openood/{name}.csv" for name in ("ebo", "ash", "optfs-e")}
    lines = (tmp_path / "openood" / "ash.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == ",FPR@95,AUROC,AUPR_IN,AUPR_OUT,ACC"
    names = [line.split(",")[0] for line in lines[1:]]
    assert names == [*NEAR, "nearood", *FAR, "farood"]
    assert lines[3] == "nearood,55.20 ± 0.82,55.00 ± 0.82,55.30 ± 0.82,55.40 ± 0.82,87.00 ± 0.82"


def test_several_networks_have_folders_and_one_run_no_deviation(tmp_path: Path) -> None:
    results = made("openood-imagenet-fs", ("ResNet50", "ViT-B/16"), spectrum="fs", shifted=["imagenet_v2"])
    write_openood(results, tmp_path)
    files = {file.relative_to(tmp_path / "openood").as_posix() for file in tmp_path.rglob("*.csv")}
    assert {"ResNet50/ebo.csv", "ViT-B-16/ash.csv"} <= files
    lines = list(csv.reader((tmp_path / "openood" / "ResNet50" / "ebo.csv").read_text().splitlines()))
    assert lines[1] == ["ssb_hard", "50.20", "50.00", "50.30", "50.40", "86.00"]
    tables = list(openood_tables(results))
    assert [frame.iloc[0]["near published"] for frame, _, _ in tables] == ["56.61", "51.65"]
    assert "Full spectrum (fs): ID are the test images and those of imagenet_v2." in tables[0][2]


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (made("openood-imagenet-fs+es"), "no table for it"),
        (made(limit=20), "only 20 images"),
        (made(lists="as they are"), "not the published ones"),
        (replace(made(), skipped=(("ninco", "not here"),)), "ninco is missing"),
    ],
)
def test_what_cannot_be_compared_is_said(results: Results, reason: str) -> None:
    assert reason in why_not_comparable(results)
    ((_, _, notes),) = openood_tables(results)
    assert any("Not comparable with the leaderboard: " in note for note in notes)


def test_a_set_that_is_missing_leaves_no_mean() -> None:
    whole = made()
    results = replace(whole, rows=tuple(r for r in whole.rows if (r.model, r.ood) != ("ResNet18 s1", "ninco")))
    ((frame, _, _),) = openood_tables(results)
    assert set(frame["near AUROC"]) == {"-"}
    assert "-" not in set(frame["far AUROC"])


def test_published_figures_belong_to_networks_and_methods_that_are_here() -> None:
    places = published()
    assert len(places) == 258
    assert {board for board, _, _ in places} == set(BOARDS.values())
    for name, board in BOARDS.items():
        models = {spec.title for spec in Benchmark.load(name.removesuffix("-fs")).models}
        assert {network for where, network, _ in places if where == board} == models
    names = {name for _, _, name in places}
    ours = {record.openood.get("published", "") for record in RECORDS.values()} - {""}
    assert ours <= names
    assert not any("OptFS" in name for name in names)
    assert places["cifar10", "ResNet18", "KNN"] == {"near": 90.64, "far": 92.96, "accuracy": 95.06}
    assert their_name("energy") == "ebo"
    assert their_name("vra-p") == "vra-p"  # another method under a similar name
    assert GROUPS == ("near", "far")
