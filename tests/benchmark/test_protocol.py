"""The paper's protocol: its benchmarks, weights in a folder, what is skipped, the convention, ODIN's cached scores."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oodshape import METHODS, InputError
from oodshape.benchmark.prepared import Options, methods_of
from oodshape.benchmark.run import run
from oodshape.benchmark.spec import Benchmark, ModelSpec
from oodshape.cli.data_sets import data_facts, data_lines
from oodshape.images.catalog import CATALOG
from oodshape.images.preprocessing import DIGITS
from oodshape.methods.odin import Odin
from oodshape.metrics.separation import fpr_at_tpr, summary
from oodshape.networks import zoo
from oodshape.networks.zoo.digits_nets import SmallNet
from oodshape.report import tables_of, to_latex, to_markdown, to_text, write_page
from oodshape.report.table_kinds import with_positive

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


def test_models_have_the_paper_s_names() -> None:
    names = [model.title for model in Benchmark.load("imagenet").models]
    assert names == ["ResNet50", "MobileNetV2", "ViT-B-16", "ViT-L-16", "SWIN-S", "SWIN-B", "MLP-B", "MLP-L"]
    for name in ("cifar10", "cifar100"):
        assert [m.title for m in Benchmark.load(name).models] == ["DenseNet101", "ViT-B-16", "MLP-N"]


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
    made = summary(inside, outside, resamples=5)
    threshold = np.sort(outside)[57 - 1]  # the smallest that 95 % of 60 do not exceed
    assert made.fpr95_ood.value == np.mean(inside <= threshold) == fpr_at_tpr(inside, outside, positive="ood")
    assert made.fpr95_ood.low <= made.fpr95_ood.value <= made.fpr95_ood.high


def test_the_convention_is_named(digits: Benchmark, tmp_path: Path) -> None:
    measured = run(digits, FEW)
    results = with_positive(measured, "ood")
    assert with_positive(measured, "id") == measured
    assert results.provenance["positive"] == "ood"
    ends = ("", "_low", "_high")
    for row, usual in zip(results.rows, measured.rows, strict=True):
        assert [getattr(row, f"fpr95{end}") for end in ends] == [getattr(usual, f"fpr95_ood{end}") for end in ends]
    (made,) = tables_of(results)
    assert "OpenOOD's convention: OOD is positive" in made.title
    assert any("share of ID rejected when 95 % of OOD is rejected" in note for note in made.notes)
    write_page(results, tmp_path / "page.html")
    assert "This is OpenOOD's convention" in (tmp_path / "page.html").read_text()
    assert [row.fpr95 for row in results.rows] != [row.fpr95 for row in measured.rows]


# ODIN's scores are kept


def test_perturbed_scores_are_kept_and_resumed(digits: Benchmark, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oodshape.benchmark import perturbed_scores as perturbed
    from oodshape.methods import table as methods

    monkeypatch.setattr(perturbed, "BATCH", 16)
    monkeypatch.setattr(perturbed, "CHUNK", 16)
    seen: list[int] = []
    forward = SmallNet.forward
    monkeypatch.setattr(SmallNet, "forward", lambda self, x: seen.append(len(x)) or forward(self, x))
    monkeypatch.setitem(methods.METHODS, "odin", replace(METHODS["odin"], perturb=Odin(eps=0.01, std=DIGITS.std)))
    one = replace(digits, ood=digits.ood[:1])
    options = replace(FEW, methods=("odin",), cache=tmp_path)
    first = run(one, options)
    seen.clear()
    assert run(one, options).rows[0].auroc == first.rows[0].auroc
    kept = len(list(tmp_path.glob("*/features.npy"))) + 2  # tables that are compared with the network before their use
    assert sum(seen) in range(2 * kept, 2 * kept + 3)  # and at most the probe that finds the head
    (home, other) = sorted(tmp_path.glob("*/scores-*"))
    full = np.load(home / "scores.npy")
    (home / "scores.npy").rename(home / "scores.part")  # a run that was stopped after 20 of 40 images
    (home / "scores.part").write_bytes((home / "scores.part").read_bytes()[:-80])
    seen.clear()
    run(one, options)
    more = 2 * kept + 2  # what is looked at again under the lock
    assert sum(seen) in range(2 * 24 + more, 2 * 24 + more + 3)  # two passes over the images after the last whole chunk
    np.testing.assert_allclose(np.load(home / "scores.npy"), full, rtol=1e-6)
    monkeypatch.setitem(methods.METHODS, "odin", replace(METHODS["odin"], perturb=Odin(eps=0.02, std=DIGITS.std)))
    before = run(one, options)
    assert len(list(tmp_path.glob("*/scores-*"))) == 4  # another recipe has scores of its own
    monkeypatch.setattr(SmallNet, "forward", lambda self, x: forward(self, x.flip(3)))  # edited code
    edited = run(one, options)
    assert edited.rows[0].auroc == run(one, replace(options, cache=None)).rows[0].auroc != before.rows[0].auroc
    shutil.rmtree(other)


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


def test_the_data_list_needs_no_folder_but_not_a_wrong_one(tmp_path: Path) -> None:
    facts = data_facts(None)
    assert {fact["state"] for fact in facts} == {"missing"}
    assert not any(re.match(r"/", fact["put"]) for fact in facts)
    with pytest.raises(InputError, match="there is no folder"):
        data_facts(tmp_path / "nowhere")


# The docs


def test_every_command_of_the_docs_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from oodshape.cli.app import app

    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.chdir(docs.parent)
    for name in ("OODSHAPE_DATA", "OODSHAPE_WEIGHTS"):
        monkeypatch.delenv(name, raising=False)
    text = "".join((docs / file).read_text() for file in ("paper.md", "results.md"))
    commands = re.findall(r"oodshape (bench (?:imagenet|cifar|docs/)[^`\n]*)", text)
    assert len(commands) >= 6
    for command in dict.fromkeys(commands):
        done = CliRunner().invoke(app, [*command.split(), "--out", str(tmp_path)])
        assert "has weights here" in str(done.exception), command  # all that is missing
