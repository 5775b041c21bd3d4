"""The paper's protocol: its benchmarks, weights in a folder, what is skipped, the convention, ODIN's cached scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oodshape import InputError
from oodshape.benchmark.prepared import Options, methods_of
from oodshape.benchmark.run import run
from oodshape.benchmark.spec import Benchmark, ModelSpec
from oodshape.cli.data_sets import data_facts, data_lines
from oodshape.images.catalog import CATALOG
from oodshape.metrics.separation import fpr_at_tpr, summary
from oodshape.networks import zoo
from oodshape.report import tables_of, to_latex, to_markdown, to_text, write_page

FEW = Options(models=("ViT",), methods=("energy",), limit=40, resamples=5, progress=False)


@pytest.fixture(scope="module")
def digits() -> Benchmark:
    return Benchmark.load("digits")


# The benchmark files


@pytest.mark.parametrize("name", ["imagenet", "cifar10", "cifar100"])
def test_the_paper_s_benchmarks_are_the_catalog_with_the_paper_s_settings(name: str) -> None:
    made = Benchmark.load(name)
    assert (made.settings, made.preprocessing, made.name) == (name, "paper", name)
    assert (made.train, made.test) == (f"catalog:{name}/train", f"catalog:{name}/test")
    wanted = [(entry.name, role) for role, entry in CATALOG[name] if role in ("near", "far")]
    assert [(ood.name, ood.group) for ood in made.ood] == wanted
    assert len(wanted) == 8
    assert [ood.images for ood in made.ood] == [f"catalog:{name}/{ood.name}" for ood in made.ood]
    assert all(zoo.model_entry(model.name).id_set == name for model in made.models)
    assert methods_of(made)["odin"].perturb.eps == (0 if name == "imagenet" else 0.004)


# Weights


def test_weights_are_found_by_the_network_s_name_or_as_published(tmp_path: Path) -> None:
    assert zoo.find_weights("resnet50", tmp_path) is None
    assert zoo.find_weights("resnet50", None) is None
    for file in ("resnet50-0676ba61.pth", "resnet50.pth", "resnet50.safetensors"):  # each is preferred to those before
        (tmp_path / file).touch()
        assert zoo.find_weights("resnet50", tmp_path) == tmp_path / file
    assert zoo.find_weights("vit_b_16", tmp_path) is None


def test_a_model_without_weights_is_skipped_with_a_line_in_every_format(digits: Benchmark, tmp_path: Path) -> None:
    two = replace(digits, models=(*digits.models[1:2], ModelSpec(name="resnet50", label="ResNet50")))
    results = run(two, replace(FEW, models=(), weights=tmp_path))
    assert {row.model for row in results.rows} == {"ViT"}
    ((what, why),) = results.skipped
    assert what == "ResNet50"
    assert "https://download.pytorch.org/models/resnet50-0676ba61.pth" in why
    assert str(tmp_path / "resnet50.safetensors") in why
    write_page(results, tmp_path / "page.html")
    (made,) = tables_of(results)
    for text in (to_text(made), to_markdown(made), to_latex(made), (tmp_path / "page.html").read_text()):
        assert "resnet50-0676ba61.pth" in text
        assert "limit 40" in text  # a limit is said in every output
    assert all("6 OOD sets" in text for text in (to_text(made), to_markdown(made), to_latex(made)))
    assert {row.limit for row in results.rows} == {40}


def test_no_weights_at_all_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no network of cifar10 has weights here; DenseNet101 needs weights .*--w"):
        run(Benchmark.load("cifar10"), Options(data=tmp_path))


def test_weights_in_the_folder_are_used(digits: Benchmark, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    net = zoo.build("digits-vit")
    weights = {name: value * 0.5 for name, value in net.state_dict().items()}
    save_file(weights, tmp_path / "digits-vit.safetensors")
    half, whole = run(digits, replace(FEW, weights=tmp_path)), run(digits, FEW)
    assert half.provenance["weights"] != whole.provenance["weights"]


# The other convention


def test_positive_ood_by_definition(digits: Benchmark) -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(1, 1, 40), rng.normal(0, 1, 60)
    made = summary(inside, outside, resamples=5, positive="ood")
    threshold = np.sort(outside)[57 - 1]  # the smallest that 95 % of 60 do not exceed
    assert made.fpr95.value == np.mean(inside <= threshold) == fpr_at_tpr(inside, outside, positive="ood")
    usual = summary(inside, outside, resamples=5)
    assert (made.auroc, made.aupr_in, made.aupr_out) == (usual.auroc, usual.aupr_in, usual.aupr_out)
    with pytest.raises(InputError, match="positive must be 'id' or 'ood'"):
        summary(inside, outside, positive="both")  # type: ignore[arg-type]


def test_the_convention_is_named(digits: Benchmark, tmp_path: Path) -> None:
    results = run(digits, replace(FEW, positive="ood"))
    assert results.provenance["positive"] == "ood"
    assert {row.positive for row in results.rows} == {"ood"}
    (made,) = tables_of(results)
    assert "OpenOOD's convention: OOD is positive" in made.title
    assert any("share of ID rejected when 95 % of OOD is rejected" in note for note in made.notes)
    write_page(results, tmp_path / "page.html")
    assert "This is OpenOOD's convention" in (tmp_path / "page.html").read_text()
    assert [row.fpr95 for row in results.rows] != [row.fpr95 for row in run(digits, FEW).rows]


# Scores of images that were moved are kept


def test_scores_of_moved_images_are_kept(digits: Benchmark, tmp_path: Path) -> None:
    one = replace(digits, ood=digits.ood[:1])
    plain = replace(FEW, methods=("adascale-a",))
    first, second, without = (run(one, replace(plain, cache=cache)) for cache in (tmp_path, tmp_path, None))
    assert len(list(tmp_path.glob("*/scores-*"))) == 2  # of the ID and of the OOD images
    assert first.rows[0].auroc == second.rows[0].auroc == pytest.approx(without.rows[0].auroc, abs=1e-3)


# oodshape data


def test_the_data_list_says_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "test_batch.bin").write_bytes(bytes(3 * 3073))
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(b"cut off")
    lines = {line[0]: line for line in data_lines(data_facts(tmp_path))}
    assert len(lines) == sum(len(list(sets)) for sets in CATALOG.values())
    assert lines["cifar10/CIFAR-10"][1:4] == ("test", "found", "3 of 10,000")
    assert lines["cifar10/SVHN"][2].startswith("damaged: ")
    assert lines["imagenet/Species"][2:4] == ("missing", "0 of ?")
    get, put = lines["imagenet/Texture"][4:]
    assert "https://" in get
    assert put == str(tmp_path / "dtd" / "images")
