"""Studies next to the paper's figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commands import call
from oodshape import METHODS, InputError
from oodshape.report.tables.paper import STUDIES as PRINTED
from oodshape.report.tables.paper import check_studies, model_for, study_beside_paper, study_figures
from oodshape.studies.catalog import STUDIES
from oodshape.studies.network import Network


@pytest.fixture(scope="module")
def network(small) -> Network:
    noise = {"gaussian": small["ood"]["far"], "uniform": small["ood"]["near"]}
    sets = small["train"], small["inside"], {"MNIST": small["ood"]["far"], "dogs": small["ood"]["near"]}
    proxy = (small["ood"]["near"],)
    return Network("imagenet_resnet50", "ConvNet", *sets, noise, dict(METHODS), proxy, id_set="imagenet")


def test_the_papers_figures_are_those_printed() -> None:
    assert study_figures("validation")["ResNet50"]["ImageNet-O"] == {
        "norm_ratio": 0.91,
        "cosine": 0.99,
        "auroc_with": 70.19,
        "auroc_without": 59.33,
    }
    assert study_figures("variants")["Average"]["dynamic"] == {"fpr95": 65.56, "auroc": 83.22}
    assert {model: row["r"]["r"] for model, row in study_figures("dynamic").items()}["MLP-B"] == 4.3
    assert study_figures("limits")["ResNet50"]["0.1"] == {"lower": 0.0, "upper": 3.88, "fpr95": 41.82, "auroc": 88.11}
    sizes = {
        name: sum(len(row) for model in study_figures(name).values() for row in model.values()) for name in PRINTED
    }
    assert sizes == {"validation": 8 * 4, "variants": 9 * 6 * 2, "dynamic": 9, "limits": 8 * 4}


def test_each_table_has_ours_the_papers_and_the_difference(network) -> None:
    for name, table in PRINTED.items():
        frame = STUDIES[name].compute(network)
        frame.insert(0, "network", network.name)
        made, notes = study_beside_paper(name, frame, {network.name: "imagenet"})
        assert table.where in notes[0]
        assert len(notes) == 1  # the network is one of the paper's
        assert set(made["the paper's"]) == {"ResNet50"}
        compared = 0
        for head, decimals in table.measures.values():
            for ours, paper, gap in zip(made[head], made[f"{head} (paper)"], made[f"{head} (difference)"], strict=True):
                if paper == "-":
                    assert gap == "-"
                else:
                    assert float(gap) == pytest.approx(float(ours) - float(paper), abs=10**-decimals / 2)
                    compared += 1
        assert compared == {"validation": 4, "variants": 6 * 2, "dynamic": 1, "limits": 8 * 4}[name]
    rows = made.set_index("percentile")
    printed = STUDIES["limits"].tabulate(frame, 2)
    same = printed[(printed["method"] == "optfs-v") & (printed["tail"] == "0.001")]
    assert rows.loc["0.1", "AUROC"] == same["AUROC"].item()


def test_another_network_stands_beside_the_mean_or_the_only_one(network) -> None:
    other = replace(network, name="imagenet_deit_tiny")
    assert [model_for(name, other.name) for name in PRINTED] == ["ResNet50", "Average", "Average", "ResNet50"]
    frame = STUDIES["dynamic"].compute(other)
    frame.insert(0, "network", other.name)
    made, notes = study_beside_paper("dynamic", frame, {other.name: "imagenet"})
    assert made["r without bias (paper)"].item() == "2.8"
    assert "the paper's figures are those of the mean over its eight networks" in notes[1]


def test_where_the_paper_has_no_figures_the_comparison_is_refused(network) -> None:
    with pytest.raises(InputError, match="prints figures of validation, variants, dynamic, limits, not of intervals"):
        check_studies(["intervals"], {network.name: "imagenet"})
    with pytest.raises(InputError, match="are of ImageNet, cifar is not"):
        check_studies(["limits"], {"cifar": "cifar10"})
    check_studies(["intervals", "limits"], {network.name: "imagenet"})


def test_the_command_writes_it(shared, tmp_path) -> None:
    folder = shared / "features" / "imagenet_deit_tiny"
    done = call("study", "dynamic", "--features", str(folder), "--compare-paper", "--out", "o", cwd=tmp_path)
    assert done.returncode == 0
    text = (tmp_path / "o" / "dynamic.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("| imagenet_deit_tiny"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "Average"
    assert cells[4] == "2.8"
    assert float(cells[5]) == pytest.approx(float(cells[3]) - 2.8, abs=0.01)
    wrong = call("study", "intervals", "--features", str(folder), "--compare-paper", cwd=tmp_path)
    assert wrong.returncode != 0
    assert "leave --compare-paper out" in wrong.stderr
