"""A benchmark file: what is read, and that each mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodshape import InputError
from oodshape.benchmark.prepared import methods_of
from oodshape.benchmark.spec import Benchmark
from oodshape.methods.shapes.clipping import VraP
from oodshape.methods.shapes.optfs import OptFS

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
