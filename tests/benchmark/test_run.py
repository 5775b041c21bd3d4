"""From a benchmark file to results: what is read, skipped and refused, and the figures of the pieces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from oodshape import METHODS as EVERY
from oodshape import Classifier, Features, InputError, auroc, fpr_at_tpr
from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.plan import select_methods
from oodshape.benchmark.repeat import compare_runs, restore_benchmark
from oodshape.benchmark.run import run_benchmark
from oodshape.benchmark.spec import Benchmark, ModelSpec, OodSpec
from oodshape.images.datasets.catalog import CATALOG, open_dataset
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.methods.shapes.clipping import VraP
from oodshape.methods.shapes.optfs import OptFS
from oodshape.networks import zoo
from oodshape.report.benchmark_files import make_named_tables
from oodshape.report.pages.benchmark_page import write_benchmark_page
from oodshape.report.tables.markdown_latex import to_latex, to_markdown
from oodshape.report.tables.terminal import to_text

FEW = BenchOptions(models=("ViT",), methods=("energy", "optfs-e"), limit=60, resamples=20, progress=False)


@pytest.fixture(scope="module")
def digits() -> Benchmark:
    return Benchmark.load("digits")


def test_figures_are_those_of_the_pieces(digits: Benchmark) -> None:
    results = run_benchmark(digits, replace(FEW, limit=None))
    assert len(results.rows) == 2 * 6
    classifier = Classifier(zoo.build("digits-vit"))
    sets = {name: open_dataset(f"digits:{name}", digits.base) for name in ("train", "test", "letters")}
    data = {name: Features.extract(classifier, images, DIGITS) for name, images in sets.items()}
    detector = EVERY["optfs-e"].fit(data["train"])
    inside, outside = detector.score(data["test"]), detector.score(data["letters"])
    (row,) = (r for r in results.rows if (r.method, r.ood) == ("optfs-e", "letters"))
    assert row.value("auroc") == pytest.approx(auroc(inside, outside), abs=1e-12)
    assert row.value("fpr95") == pytest.approx(fpr_at_tpr(inside, outside), abs=1e-12)
    found = row.metrics["auroc"]
    assert found.low < found.value < found.high
    assert (row.n_train, row.n_id, row.n_ood) == (866, 577, 400)
    assert row.id_accuracy == pytest.approx(data["test"].accuracy)
    assert (row.family, row.group, row.model) == ("transformer", "near", "ViT")


def test_limit_is_seeded_and_said(digits: Benchmark) -> None:
    one, two = run_benchmark(digits, FEW), run_benchmark(digits, replace(FEW, seed=1))
    assert {row.n_ood for row in one.rows} == {60}
    assert one.provenance["settings"]["limit"] == 60
    assert [row.metrics for row in one.rows] != [row.metrics for row in two.rows]


def test_missing_sets_are_skipped_with_a_reason(digits: Benchmark) -> None:
    gone = OodSpec(name="gone", group="far", images="folder:/no/such/folder")
    results = run_benchmark(replace(digits, ood=(*digits.ood[:1], gone)), FEW)
    assert [what for what, _ in results.skipped] == ["gone"]
    assert "no such" in results.skipped[0][1] or "there is no" in results.skipped[0][1]
    assert {row.ood for row in results.rows} == {"digits89"}
    with pytest.raises(InputError, match="none of the OOD sets"):
        run_benchmark(replace(digits, ood=(gone,)), FEW)
    with pytest.raises(InputError, match="there is no"):
        run_benchmark(replace(digits, train="folder:/no/such/folder"), FEW)


def test_a_network_of_ones_own(digits: Benchmark) -> None:
    mine = ModelSpec(name="own_models:own_net", label="mine", family="MLP")
    results = run_benchmark(replace(digits, models=(mine,)), replace(FEW, models=(), trust_code=True))
    known = run_benchmark(digits, replace(FEW, models=("MLP-Mixer",)))
    assert [row.value("auroc") for row in results.rows] == [row.value("auroc") for row in known.rows]
    for name, message in (("own_models:nothing", "cannot import"), ("own_models:parse", "cannot import")):
        with pytest.raises(InputError, match=message):
            run_benchmark(replace(digits, models=(ModelSpec(name=name),)), replace(FEW, models=(), trust_code=True))


def test_the_head_is_named_where_it_is_not_found(digits: Benchmark) -> None:
    own, options = ModelSpec(name="own_models:two_outputs", label="two"), replace(FEW, models=(), trust_code=True)
    for head, message in (("", "which one are the logits"), ("net.nothing", "two: head='net.nothing' is not")):
        with pytest.raises(InputError, match=message):
            run_benchmark(replace(digits, models=(replace(own, head=head),)), options)
    assert run_benchmark(replace(digits, models=(replace(own, head="net.head"),)), options).rows


def test_a_network_of_timm_in_a_file(digits: Benchmark, tmp_path: Path, torchvision_ops: object) -> None:
    timm = pytest.importorskip("timm")
    save_file(timm.create_model("test_resnet", num_classes=8).state_dict(), tmp_path / "w.safetensors")
    models = '[[models]]\nname = "timm:test_resnet"\nweights = "w.safetensors"\n'
    (tmp_path / "mine.toml").write_text(digits.text.partition("[[models]]")[0] + models)
    results = run_benchmark(Benchmark.load(tmp_path / "mine.toml"), replace(FEW, models=("Test_ResNet",)))
    assert {(row.model, row.family) for row in results.rows} == {("timm:test_resnet", "ConvNet")}


def test_sources(tmp_path) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((3, 4, 4), np.uint8), labels=np.arange(3))
    assert open_dataset("array:x.npz", tmp_path).labels.tolist() == [0, 1, 2]
    for source, message in [
        ("digits", "one of the forms"),
        ("digits:nines", "digits has no set 'nines'"),
        ("tape:x", "'tape' is no kind"),
        ("folder:nowhere", "there is no"),
        ("catalog:imagenet", "has no set ''"),
        ("catalog:mars/Texture", "no benchmark 'mars'"),
        ("catalog:imagenet/Texture", "--data DIR"),
    ]:
        with pytest.raises(InputError, match=message):
            open_dataset(source, tmp_path)
    with pytest.raises(InputError, match="put it at"):
        open_dataset("catalog:imagenet/Texture", tmp_path, tmp_path)


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
    assert benchmark.chosen(["Digits-ConvNet"]) == benchmark.models
    with pytest.raises(InputError, match="has no model 'VGG'; there are"):
        benchmark.chosen(["VGG"])
    assert benchmark.hash != parse(GOOD + "\n# other").hash


ESCAPES = ('"../../mine"', '"/tmp/mine"', '".."', '".mine"', r'"mine\u0000"', r'"a\\b"', f'"{"a" * 101}"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('seting = "y"' + GOOD, "b.toml: no key of the file is called 'seting'; did you mean settings"),
        (GOOD.replace("train =", "trian ="), r"\[id\] is called 'trian'; did you mean train"),
        (GOOD.replace('test = "folder:test"', ""), r"\[id\] needs 'test'"),
        (GOOD.replace("group", "gruop"), r"\[\[ood\]\] is called 'gruop'; did you mean group"),
        (GOOD.replace('"far"', '"wide"'), "b.toml: OodSpec.group must be one of near, far, got 'wide'"),
        (GOOD.replace('"far"', "3"), "group must be one of near, far, got 3"),
        (GOOD.replace("[[models]]\nname", "[models]\nname"), r"at least one \[\[models\]\]"),
        (GOOD.replace('[[models]]\nname = "digits-convnet"', ""), r"at least one \[\[models\]\]"),
        (GOOD + '[[models]]\nname = "digits-convnet"', "two entries for the model 'digits-convnet'"),
        ('settings = "mnist"' + GOOD, "settings must be one of general, .*authors-code, openood, got 'mnist'"),
        ("name = ", "b.toml is damaged .TOMLDecodeError.*it must be a benchmark in TOML"),
        *((GOOD.replace('"mine"', name), "name must be 1 to 100 letters") for name in ESCAPES),
        (GOOD.replace("[id]", "[idd]"), r"\[id\] must be a table"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(text)


def test_the_benchmark_of_the_docs_is_one() -> None:
    made = Benchmark.load(Path(__file__).parents[2] / "docs" / "imagenet-small.toml")
    assert [model.title for model in made.models] == ["DeiT-tiny", "EfficientNet-Lite0"]


def test_the_settings_of_the_authors_code_are_of_an_id_set() -> None:
    shipped = Benchmark.load("cifar100").with_settings("authors-code")
    assert shipped.of_paper == "cifar100"
    assert select_methods(shipped)["optfs-e"].shape == OptFS(k=100, norm=1000.0)
    own = parse(GOOD.replace('name = "mine"', 'name = "mine"\nsettings = "authors-code"'))
    with pytest.raises(InputError, match='mine names none of them: put id_set = "imagenet"'):
        select_methods(own)
    with pytest.raises(InputError, match="of imagenet, cifar10, cifar100, and digits names none of them"):
        select_methods(Benchmark.load("digits").with_settings("authors-code"))
    said = parse(GOOD.replace('name = "mine"', 'name = "mine"\nsettings = "authors-code"\nid_set = "cifar10"'))
    assert select_methods(said)["vra-p"].shape == VraP(low=0.6, high=0.95, absolute=True)
    paper = parse(GOOD.replace('name = "mine"', 'name = "mine"\nsettings = "cifar10"'))
    assert paper.with_settings("authors-code").of_paper == "cifar10"
    with pytest.raises(InputError, match="id_set must be one of"):
        parse(GOOD.replace('name = "mine"', 'name = "mine"\nid_set = "digits"'))


ONE = BenchOptions(models=("ViT",), methods=("energy",), limit=40, resamples=5, progress=False)


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
    odin = select_methods(made)["odin"]
    assert (odin.perturb.eps == 0.004) if odin.perturbs else name == "imagenet"


def test_weights_are_found_by_the_network_s_name_or_as_published(tmp_path: Path) -> None:
    assert zoo.find_weights("resnet50", tmp_path) is None
    assert zoo.find_weights("resnet50", None) is None
    for file in ("resnet50-0676ba61.pth", "resnet50.pth", "resnet50.safetensors"):  # each is preferred to those before
        (tmp_path / file).touch()
        assert zoo.find_weights("resnet50", tmp_path) == tmp_path / file
    assert zoo.find_weights("vit_b_16", tmp_path) is None
    (tmp_path / "cifar10_densenet_101.tar").touch()  # the name among the checkpoints of the paper's authors
    assert zoo.find_weights("cifar10-densenet101", tmp_path) == tmp_path / "cifar10_densenet_101.tar"


def test_a_model_without_weights_is_skipped_with_a_line_in_every_format(digits: Benchmark, tmp_path: Path) -> None:
    two = replace(digits, models=(*digits.models[1:2], ModelSpec(name="resnet50", label="ResNet50")))
    results = run_benchmark(two, replace(ONE, models=(), weights=tmp_path))
    assert {row.model for row in results.rows} == {"ViT"}
    ((what, why),) = results.skipped
    assert what == "ResNet50"
    assert "https://download.pytorch.org/models/resnet50-0676ba61.pth" in why
    assert str(tmp_path / "resnet50.safetensors") in why
    write_benchmark_page(results, tmp_path / "page.html")
    (made,) = make_named_tables(results)
    for text in (to_text(made), to_markdown(made), to_latex(made), (tmp_path / "page.html").read_text()):
        assert "resnet50-0676ba61.pth" in text
        assert "limit 40" in text  # a limit is said in every output


def test_weights_in_the_folder_are_used(digits: Benchmark, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    net = zoo.build("digits-vit")
    weights = {name: value * 0.5 for name, value in net.state_dict().items()}
    save_file(weights, tmp_path / "digits-vit.safetensors")
    half, whole = run_benchmark(digits, replace(ONE, weights=tmp_path)), run_benchmark(digits, ONE)
    assert half.provenance["weights"] != whole.provenance["weights"]


def test_results_name_them_stand_beside_the_paper_and_can_be_repeated() -> None:
    digits = Benchmark.load("digits")
    text = f'id_set = "cifar10"\n{digits.text}'.replace('settings = "general"', 'settings = "authors-code"')
    text = text.replace('label = "ViT"', 'label = "ViT-B-16"')  # a name that the paper has figures for
    benchmark = Benchmark.parse(text, where="own", base=digits.base)
    options = BenchOptions(models=("ViT-B-16",), methods=("energy", "optfs-e"), limit=30, resamples=5, progress=False)
    results = run_benchmark(benchmark, options)
    said = results.provenance["settings"]
    assert (said["settings"], said["id_set"]) == ("authors-code", "cifar10")
    assert "norm=1000.0" in results.provenance["methods"]["optfs-e"]
    (table,) = make_named_tables(results, "model", paper=True)
    assert "ViT-B-16 (paper)" in table.groups
    assert any(note.startswith("Settings: those of the authors' code for cifar10") for note in table.notes)
    other, chosen = restore_benchmark(results)
    assert (other.settings, other.of_paper) == ("authors-code", "cifar10")
    assert compare_runs(results, run_benchmark(other, replace(chosen, progress=False))).same


@pytest.mark.timeout(60)
def test_a_key_of_many_dots_and_an_endless_file_are_refused(tmp_path: Path) -> None:
    """A key of 100 kB took more than 7 GB."""
    (tmp_path / "c.toml").write_text("#" * (5 << 20))
    with pytest.raises(InputError, match="c.toml has more than 4,194,304 characters"):
        Benchmark.load(tmp_path / "c.toml")
    with pytest.raises(InputError, match="b.toml: a line has more than 1000 dots"):
        parse("a." * 50_000 + "b = 1")
