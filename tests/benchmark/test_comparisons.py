"""Scores next to results, who is tied with the best, several seeds, and a run that is made again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import call
from oodshape import InputError, Results, auroc
from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.comparisons import AVERAGE, compare_pair, compare_with_best, find_ties
from oodshape.benchmark.kept_scores import FILE, KeptScores
from oodshape.benchmark.repeat import compare_runs, restore_benchmark
from oodshape.benchmark.spec import Benchmark
from oodshape.metrics.detection import Estimate
from oodshape.report.benchmark_files import write_benchmark
from oodshape.report.tables.markdown_latex import PrintedGrid
from oodshape.report.tables.table import make_table
from synthetic import row as make_row

METHODS = ("energy", "optfs-e", "ash-rand")
FEW = BenchOptions(models=("ConvNet", "ViT"), methods=METHODS, resamples=20, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two networks with two seeds."""
    out = tmp_path_factory.mktemp("run")
    write_benchmark(Benchmark.load("digits"), replace(FEW, seeds=2), out)
    return out


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return Results.load(folder)


def test_kept_scores_are_those_of_the_figures(folder: Path, results: Results) -> None:
    kept = KeptScores.load(folder / "results.json")
    sizes = [sum(map(len, sets.values())) for methods in kept.by_model.values() for sets in methods.values()]
    assert sizes == 2 * 3 * [577 + 400 * 5 + 354]
    for row in results.rows:
        inside, ood = kept.of(row.model)[row.method]
        if row.method != "ash-rand":  # a mean over two seeds
            assert auroc(inside, ood[row.ood]) == pytest.approx(row.value("auroc"), abs=1e-6)


def test_seeds_give_mean_and_spread_where_anything_is_random(results: Results) -> None:
    for row in results.rows:
        assert (row.seeds, row.spreads.get("auroc", 0) > 0) == ((2, True) if row.method == "ash-rand" else (1, False))
    assert {each.method for each in results.averages_of} == {"energy", "optfs-e"}  # intervals are of one seed
    notes = " ".join(make_table(results).notes)
    assert "Means over 2 seeds where a seed matters (ash-rand)" in notes
    assert "Ties with the best are not marked" in notes


def test_ties_are_what_compare_says(folder: Path, results: Results) -> None:
    kept = KeptScores.load(folder)
    assert results.ties == ()  # figures are means over seeds, and the first seed's best need not be theirs
    found = {(t.model, t.ood): t for t in find_ties(kept)}
    assert len(found) == (2 + 1) * (6 + 1)
    for model, best, name, mean, _, p_value in compare_with_best(kept):
        tie = found[model, ""]
        assert tie.best == best
        assert (name in tie.tied) == (name != best and p_value >= 0.05)
        if name == "ash-rand":  # a mean over two seeds
            continue
        (row,) = (a for a in results.averages_of if (a.model, a.method) == (model, name))
        assert row.metrics["auroc"].value == pytest.approx(mean, abs=1e-6)
        for name in ("auroc", "fpr95", "joint_aurc"):
            assert row.metrics[name].low <= row.metrics[name].value <= row.metrics[name].high


def made(**gaps: float) -> KeptScores:
    """Methods on one network that differ by how far ID lies from OOD."""
    rng = np.random.default_rng(0)
    inside, ood = rng.normal(0, 1, 200), {name: rng.normal(0, 1, 150) for name in ("a", "b")}
    kept = KeptScores()
    for name, gap in gaps.items():
        kept.add("net", name, inside + gap, ood)
    return kept


def test_tied_methods_are_marked_in_the_table(results: Results) -> None:
    kept = made(one=2.0, two=2.001, three=0.5)
    (both,) = (t for t in find_ties(kept) if t.ood == "")
    assert (both.best, both.tied) == ("two", ("one",)) or (both.best, both.tied) == ("one", ("two",))
    rows = tuple(
        make_row("net", method, ood, auroc=auroc(inside, part))
        for method, (inside, sets) in kept.of("net").items()
        for ood, part in sets.items()
    )
    shown = make_table(Results(rows, {}, ties=tuple(find_ties(kept))))
    marks = {line[0][0].text: [after for _, after in line[1:]] for line in PrintedGrid.of_table(shown).rows}
    assert marks[both.tied[0]] == [" =", ""]  # AUROC, which was tested, and FPR95; one network has no average
    assert marks[both.best] == marks["three"] == ["", ""]
    assert any(note.startswith("=: tied with the best") for note in shown.notes)


def test_two_methods_are_compared_in_pairs() -> None:
    found = list(compare_pair(made(one=1.0, two=0.9), "one", "two", resamples=200))
    assert [(c.ood, c.metric.head) for c in found] == [
        *((ood, metric) for ood in ("a", "b") for metric in ("AUROC", "FPR95")),
        (AVERAGE, "AUROC"),
        (AVERAGE, "FPR95"),
    ]
    near = compare_pair(made(one=1.0, two=0.9), "one", "two", resamples=200, kinds={"near": ["b"]})
    assert [(c.first, c.second) for c in near if c.ood == "near"] == [
        (c.first, c.second) for c in found if c.ood == "b"
    ]
    for each in found:
        assert each.difference.value == pytest.approx(each.first - each.second)
        assert each.difference.low <= each.difference.value <= each.difference.high
    assert found[0].difference.p_value < 1e-6  # the same images: a tenth of a deviation is seen
    with pytest.raises(InputError, match="no scores of a method 'three' were kept; there are one, two"):
        list(compare_pair(made(one=1.0, two=0.9), "one", "three"))


def test_scores_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run the benchmark again"):
        KeptScores.load(tmp_path)
    (tmp_path / FILE).write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="holds no scores of a benchmark"):
        KeptScores.load(tmp_path)
    pd.DataFrame({"model": ["m"], "set": ["ID"], "image": [0], "x": [1.0]}).to_parquet(tmp_path / FILE)
    with pytest.raises(InputError, match="lacks ID or OOD scores of m"):
        KeptScores.load(tmp_path)


def test_a_run_is_made_again_from_its_results(results: Results) -> None:
    benchmark, options = restore_benchmark(results, progress=False, cache=None)
    assert benchmark.hash == Benchmark.load("digits").hash
    assert (options.methods, options.models, options.seeds) == (METHODS, ("ConvNet", "ViT"), 2)
    assert compare_runs(results, results).same
    worse = Estimate(0.5, 0.4, 0.6)
    moved = [
        replace(row, metrics=row.metrics | {"auroc": worse}) if row.method == "energy" else row for row in results.rows
    ]
    other = replace(results, rows=tuple(moved[:-1]), provenance={**results.provenance, "torch": "0.1"})
    found = compare_runs(results, other)
    assert not found.same
    assert {row.method for row, _ in found.apart} == {"energy"}
    areas = [row.value("auroc") - 0.5 for row in results.rows if row.method == "energy"]
    assert found.largest["auroc"] == pytest.approx(max(areas[:-1] if moved[-1].method == "energy" else areas))
    assert set(found.apart[0][1]) == {"auroc"}
    assert "fit_seconds" not in found.largest
    assert [note.split(" ")[0] for note in found.notes] == ["only", "torch"]
    with pytest.raises(InputError, match="do not say how they were made"):
        restore_benchmark(replace(results, provenance={}))
    for name, value, refusal in (
        ("resamples", 10**9, "ask for 1000000000 resamples; repeat allows up to 100,000"),
        ("seeds", 10**9, "ask for 1000000000 seeds; repeat allows up to 1,000"),
        ("limit", "many", "limit must be a whole number, got 'many'"),
    ):
        asked = results.provenance | {"run": results.provenance["run"] | {name: value}}
        with pytest.raises(InputError, match=refusal):
            restore_benchmark(replace(results, provenance=asked))


def test_the_commands(folder: Path, tmp_path: Path) -> None:
    done = call("compare", str(folder), "--methods", "optfs-e,energy", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert "seeds" not in done.stderr
    every = call("compare", str(folder), cwd=tmp_path)
    assert "ash-rand are means over seeds; the scores of the first seed are compared" in every.stderr
    assert lines[0].split("\t")[:3] == ["network", "OOD set", "metric"]
    assert len([line for line in lines if "\taverage\t" in line]) == 4
    assert {line.split("\t")[-1] for line in every.stdout.splitlines()[1:]} <= {"best", "tied", "worse"}
    asked = call("compare", str(folder), "--methods", "optfs-e,energy", "--columns", "near-auroc", cwd=tmp_path)
    assert len([line for line in asked.stdout.splitlines() if "\tnear\tAUROC\t" in line]) == 2
    assert "--columns needs --methods" in call("compare", str(folder), "--columns", "fpr95", cwd=tmp_path).stderr
    said = call("repeat", str(folder), "--out", str(tmp_path), cwd=tmp_path).stdout
    assert "the figures agree: 36 rows" in said
    assert json.loads((tmp_path / "results.json").read_text())["rows"]
