"""A benchmark file and the paper's protocol: what is read, what is skipped, the convention; mistakes are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oodshape import InputError
from oodshape.benchmark.plan import Options, methods_of
from oodshape.benchmark.repeat import again, agreement
from oodshape.benchmark.run import run
from oodshape.benchmark.spec import Benchmark, ModelSpec
from oodshape.images.datasets.catalog import CATALOG
from oodshape.methods.shapes.clipping import VraP
from oodshape.methods.shapes.optfs import OptFS
from oodshape.networks import zoo
from oodshape.report import tables_of, to_latex, to_markdown, to_text, write_page
from oodshape.report.pages.benchmark_page import payload

GOOD = """
name = "mine"
[id]
train = "folder:train"
test = "folder:test"
[[ood]]
name = "strange"
group = "far"
images = "folder:strange"
[[models]]
name = "digits-convnet"
"""


def parse(text: str) -> Benchmark:
    return Benchmark.parse(text, where="b.toml", base=Path())


def test_a_file_is_read(tmp_path) -> None:
    (tmp_path / "b.toml").write_text(GOOD)
    benchmark = Benchmark.load(tmp_path / "b.toml")
    assert (benchmark.name, benchmark.settings, benchmark.train) == ("mine", "general", "folder:train")
    assert benchmark.base == tmp_path
    assert [ood.name for ood in benchmark.ood] == ["strange"]
    assert benchmark.chosen([]) == benchmark.models
    assert benchmark.hash != parse(GOOD + "\n# other").hash


def test_the_shipped_ones_are_found() -> None:
    digits = Benchmark.load("digits")
    assert [model.title for model in digits.models] == ["ConvNet", "ViT", "MLP-Mixer"]
    assert [(ood.name, ood.group) for ood in digits.ood][:2] == [("digits89", "near"), ("letters", "near")]
    assert [m.title for m in digits.chosen(["ViT", "digits-convnet"])] == ["ConvNet", "ViT"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD.replace("settings", "x").replace('name = "mine"', 'name = "mine"\nseting = "y"'),
            "unknown key 'seting'; did you mean 'settings'",
        ),
        (GOOD.replace("train =", "trian ="), r"\[id\] has an unknown key 'trian'; did you mean 'train'"),
        (GOOD.replace('test = "folder:test"', ""), r"\[id\] needs 'test'"),
        (GOOD.replace("group", "gruop"), r"\[\[ood\]\] has an unknown key 'gruop'; did you mean 'group'"),
        (GOOD.replace('"far"', '"wide"'), "group of strange must be one of near, far, got 'wide'"),
        (GOOD.replace('"far"', "3"), "group must be a string, got 3"),
        (GOOD.replace("[[models]]\nname", "[models]\nname"), r"at least one \[\[models\]\]"),
        (GOOD.replace('[[models]]\nname = "digits-convnet"', ""), r"at least one \[\[models\]\]"),
        (GOOD + '[[models]]\nname = "digits-convnet"', "two entries for the model 'digits-convnet'"),
        (
            'settings = "mnist"' + GOOD,
            "settings must be one of general, imagenet, cifar10, cifar100, authors-code, openood, got 'mnist'",
        ),
        ("name = ", "b.toml is not TOML"),
        (GOOD.replace("[id]", "[idd]"), r"\[id\] must be a table"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(text)


def test_the_benchmark_of_the_docs_is_one() -> None:
    made = Benchmark.load(Path(__file__).parents[2] / "docs" / "imagenet-small.toml")
    assert [model.title for model in made.models] == ["DeiT-tiny", "EfficientNet-Lite0"]


def test_unknown_benchmarks_and_models() -> None:
    with pytest.raises(InputError, match="no benchmark 'digitz'; did you mean digits"):
        Benchmark.load("digitz")
    with pytest.raises(InputError, match="no benchmark .*missing.toml"):
        Benchmark.load("missing.toml")
    with pytest.raises(InputError, match="has no model 'VIT'; there are ConvNet, ViT, MLP-Mixer"):
        Benchmark.load("digits").chosen(["VIT"])


def test_the_settings_of_the_authors_code_are_of_an_id_set() -> None:
    shipped = Benchmark.load("cifar100").with_settings("authors-code")
    assert shipped.of_paper == "cifar100"
    assert methods_of(shipped)["optfs-e"].shape == OptFS(k=100, norm=1000.0)
    own = parse(GOOD.replace('name = "mine"', 'name = "mine"\nsettings = "authors-code"'))
    with pytest.raises(InputError, match='mine does not say which; put id_set = "imagenet"'):
        methods_of(own)
    said = parse(GOOD.replace('name = "mine"', 'name = "mine"\nsettings = "authors-code"\nid_set = "cifar10"'))
    assert methods_of(said)["vra-p"].shape == VraP(low=0.6, high=0.95, absolute=True)
    paper = parse(GOOD.replace('name = "mine"', 'name = "mine"\nsettings = "cifar10"'))
    assert paper.with_settings("authors-code").of_paper == "cifar10"
    with pytest.raises(InputError, match="id_set must be one of"):
        parse(GOOD.replace('name = "mine"', 'name = "mine"\nid_set = "digits"'))


FEW = Options(models=("ViT",), methods=("energy",), limit=40, resamples=5, progress=False)


@pytest.fixture(scope="module")
def digits() -> Benchmark:
    return Benchmark.load("digits")


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
    odin = methods_of(made)["odin"]
    assert (odin.perturb.eps == 0.004) if odin.perturbs else name == "imagenet"


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
    with pytest.raises(InputError, match="no network of cifar10 has weights here; DenseNet101 needs weights: .*--w"):
        run(Benchmark.load("cifar10"), Options(data=tmp_path))


def test_weights_in_the_folder_are_used(digits: Benchmark, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    net = zoo.build("digits-vit")
    weights = {name: value * 0.5 for name, value in net.state_dict().items()}
    save_file(weights, tmp_path / "digits-vit.safetensors")
    half, whole = run(digits, replace(FEW, weights=tmp_path)), run(digits, FEW)
    assert half.provenance["weights"] != whole.provenance["weights"]


def test_scores_of_moved_images_are_kept(digits: Benchmark, tmp_path: Path) -> None:
    one = replace(digits, ood=digits.ood[:1])
    plain = replace(FEW, methods=("adascale-a",))
    first, second, without = (run(one, replace(plain, cache=cache)) for cache in (tmp_path, tmp_path, None))
    assert len(list(tmp_path.glob("*/scores-*"))) == 2  # of the ID and of the OOD images
    assert first.rows[0].value("auroc") == second.rows[0].value("auroc")
    assert first.rows[0].value("auroc") == pytest.approx(without.rows[0].value("auroc"), abs=1e-3)
    assert ("image_ms" in first.rows[0].metrics, "image_ms" in without.rows[0].metrics) == (
        False,
        True,
    )  # from the cache


def test_results_name_them_stand_beside_the_paper_and_can_be_repeated() -> None:
    digits = Benchmark.load("digits")
    text = f'id_set = "cifar10"\n{digits.text}'.replace('settings = "general"', 'settings = "authors-code"')
    text = text.replace('label = "ViT"', 'label = "ViT-B-16"')  # a name that the paper has figures for
    benchmark = Benchmark.parse(text, where="own", base=digits.base)
    options = Options(models=("ViT-B-16",), methods=("energy", "optfs-e"), limit=30, resamples=5, progress=False)
    results = run(benchmark, options)
    said = results.provenance["settings"]
    assert (said["settings"], said["id_set"]) == ("authors-code", "cifar10")
    assert "norm=1000.0" in results.provenance["methods"]["optfs-e"]
    (table,) = tables_of(results, "model", paper=True)
    assert "ViT-B-16 (paper)" in table.groups
    assert any(note.startswith("Settings: those of the authors' code for cifar10") for note in table.notes)
    assert payload(results)["paper"] is not None
    other, chosen = again(results)
    assert (other.settings, other.of_paper) == ("authors-code", "cifar10")
    assert agreement(results, run(other, replace(chosen, progress=False))).same
