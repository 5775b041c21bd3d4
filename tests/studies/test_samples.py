"""What a study is told, how many images a fit needs, and studies next to the paper's figures."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from commands import call
from oodshape import METHODS, InputError
from oodshape.benchmark.spec import Benchmark
from oodshape.report.tables.paper import STUDIES as PRINTED
from oodshape.report.tables.paper import check_in_paper, compare_study_with_paper, paper_sets
from oodshape.studies.catalog import STUDIES, select_studies
from oodshape.studies.load_networks import StudyNetwork
from small_study import network as make_network

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
study = importlib.import_module("study_samples")


def told_network(small: dict, **told) -> StudyNetwork:
    return make_network(small).with_options(**told)


def test_real_ood_data_are_as_told_else_the_largest_set(small: dict) -> None:
    plain = told_network(small)
    assert plain.real == "far"
    assert plain.describe().endswith("real OOD data: far (the largest)")
    assert told_network(small, ood="near").describe().endswith("real OOD data: near")
    with pytest.raises(InputError, match="no OOD set of net is called 'photos'; there are far, near"):
        told_network(small, ood="photos")


def test_a_set_that_is_not_there_is_said(small: dict) -> None:
    made = make_network(small, requested_real="iNaturalist")
    assert made.describe().endswith("real OOD data: far (the largest; iNaturalist is not here)")


def test_real_must_be_an_ood_set_of_the_file() -> None:
    text = Benchmark.load("digits").text
    with pytest.raises(InputError, match="real must be one of .*letters.*, got 'dogs'"):
        Benchmark.parse(f'real = "dogs"\n{text}', where="file", base=Path())


def test_methods_are_for_studies_that_compare_them(small: dict) -> None:
    assert list(told_network(small, methods=("react", "msp")).methods) == ["react", "msp"]
    with pytest.raises(InputError, match="no method is called 'raect'"):
        told_network(small, methods=("raect",))
    assert select_studies("all", ("react",)) == ["generalisation"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("magic",), "no study is called 'magic'; there are variants, validation"),
        (("variants", "--methods", "react"), "the study variants has fixed methods; leave --methods out"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = call("study", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def network(small) -> StudyNetwork:
    noise = {"gaussian": small["ood"]["far"], "uniform": small["ood"]["near"]}
    sets = small["train"], small["inside"], dict.fromkeys(paper_sets("imagenet"), small["ood"]["far"])
    proxy = (small["ood"]["near"],)
    return StudyNetwork("imagenet_resnet50", "ConvNet", *sets, noise, dict(METHODS), proxy, id_set="imagenet")


def test_each_table_has_ours_the_papers_and_the_difference(network) -> None:
    for name, table in PRINTED.items():
        frame = STUDIES[name].compute(network)
        frame.insert(0, "network", network.name)
        made, notes = compare_study_with_paper(name, frame, {network.name: "imagenet"})
        assert table.where in notes[0]
        compared = 0
        for head, decimals, _ in table.measures.values():
            for ours, paper, gap in zip(made[head], made[f"{head} (paper)"], made[f"{head} (difference)"], strict=True):
                if paper == "-":
                    assert gap == "-"
                else:
                    assert float(gap) == pytest.approx(float(ours) - float(paper), abs=10**-decimals / 2)
                    compared += 1
        assert compared == {"validation": 8 * 4, "variants": 6 * 2, "dynamic": 2, "limits": 8 * 4}[name]
    rows = made.set_index("percentile")
    printed = STUDIES["limits"].tabulate(frame, 2)
    same = printed[(printed["method"] == "optfs-v") & (printed["tail"] == "0.001")]
    assert rows.loc["0.1", "AUROC"] == same["AUROC"].item()


def test_means_over_other_sets_have_no_difference(network) -> None:
    few = replace(network, ood={"MNIST": network.ood["MNIST"]})
    made, notes = compare_study_with_paper(
        "variants", STUDIES["variants"].compute(few).assign(network=few.name), {few.name: "imagenet"}
    )
    assert set(made["AUROC (difference)"]) == {"-"}
    assert "-" not in set(made["AUROC (paper)"])
    assert "other OOD sets" in notes[-1]


def test_where_the_paper_has_no_figures_the_comparison_is_refused(network) -> None:
    with pytest.raises(InputError, match="prints figures of validation, variants, dynamic, limits, not of intervals"):
        check_in_paper(["intervals"], {network.name: "imagenet"})
    with pytest.raises(InputError, match="cifar is no network of the paper's tables"):
        check_in_paper(["limits"], {"cifar": "cifar10"})
    check_in_paper(["intervals", "limits"], {network.name: "imagenet"})


def test_the_command_writes_it(shared, tmp_path) -> None:
    (tmp_path / "imagenet_resnet50").symlink_to(shared / "features" / "imagenet_deit_tiny")
    study = ("study", "dynamic", "--compare-paper", "--out", "o", "--features")
    done = call(*study, "imagenet_resnet50", cwd=tmp_path)
    assert done.returncode == 0
    lines = (tmp_path / "o" / "dynamic.md").read_text().splitlines()
    (cells,) = ([cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| imagenet_resnet50"))
    assert cells[4] == cells[7] == "6.8"  # next to our r, and to that of the authors' code
    assert [float(cells[5]), float(cells[8])] == pytest.approx([float(cells[3]) - 6.8, float(cells[6]) - 6.8], abs=0.01)
    wrong = call(*study, str(shared / "features" / "imagenet_deit_tiny"), cwd=tmp_path)
    assert wrong.stderr.startswith("error: imagenet_deit_tiny is no network of the paper's tables")
