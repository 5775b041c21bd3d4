"""evaluate: a network and loaders, folders or features, with methods of one's own, by the engine of the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from oodshape import METHODS, Benchmark, Classifier, Features, InputError, Results, Shape, Shaper, evaluate
from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.repeat import compare_runs, restore_benchmark
from oodshape.benchmark.run import run_benchmark
from oodshape.images.datasets.catalog import open_dataset
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.networks import zoo
from oodshape.report.tables.markdown_latex import to_markdown

NAMES = ("train", "test", "letters", "photos")


class Limit(Shape):
    """f(z) = min(z, t)."""

    t: float

    def __call__(self, z: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        return torch.clamp(z, max=self.t, out=out)


class MyMethod(Shaper):
    """Energy of clipped features."""

    t: float = 1.0

    def fit(self, train: Any) -> Limit:
        return Limit(t=self.t)


class Broken(Shaper):
    """A method with a mistake."""

    def fit(self, train: Any) -> Shape:
        return [][0]


@pytest.fixture(scope="module")
def sets() -> dict[str, Any]:
    return {name: open_dataset(f"digits:{name}", Path()) for name in NAMES}


def loader(images: Any, count: int | None = None, shuffle: bool = False) -> DataLoader[Any]:
    pixels, labels = DIGITS.batch(images.images[:count]), torch.from_numpy(images.labels[:count].copy())
    return DataLoader(TensorDataset(pixels, labels), batch_size=50, shuffle=shuffle)


@pytest.fixture(scope="module")
def results(sets: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Results:
    torch.manual_seed(0)
    ood = {"letters": loader(sets["letters"], shuffle=True), "photos": loader(sets["photos"])}
    return evaluate(
        zoo.build("digits-vit"),
        train=loader(sets["train"], shuffle=True),
        id=loader(sets["test"]),
        ood=ood,
        methods=["msp", "OptFS (E)", "adascale-a", MyMethod(), MyMethod(t=2.0), Broken()],
        resamples=20,
        progress=False,
        cache=tmp_path_factory.mktemp("cache"),
    )


def test_loaders_give_the_figures_of_a_benchmark(results: Results) -> None:
    options = BenchOptions(models=("vit",), methods=("msp", "optfs-e", "adascale-a"), resamples=5, progress=False)
    wanted = {(row.method, row.ood): row for row in run_benchmark(Benchmark.load("digits"), options).rows}
    ours = [row for row in results.rows if (row.method, row.ood) in wanted]
    assert len(ours) == 6
    for row in ours:
        other = wanted[row.method, row.ood]
        # AdaSCALE looks at the first images of a loader, and a benchmark at a seeded subset
        tolerance = 0.02 if row.method == "adascale-a" else 1e-4
        assert row.value("auroc") == pytest.approx(other.value("auroc"), abs=tolerance)
        assert (row.n_train, row.n_id, row.id_accuracy, row.family) == (866, 577, other.id_accuracy, "transformer")
    assert {row.group for row in results.rows} == {""}


def test_own_methods_are_named_and_marked(results: Results) -> None:
    assert results.names("method") == ["msp", "optfs-e", "adascale-a", "MyMethod", "MyMethod(t=2.0)"]
    assert "Custom methods, which are not part of oodshape: MyMethod, MyMethod(t=2.0)." in str(results)


def test_a_failing_method_has_a_row_that_says_why(results: Results, tmp_path: Path) -> None:
    ((failed),) = results.failed
    assert (failed.method, failed.model) == ("Broken", "SmallViT")
    assert failed.why.startswith("IndexError: list index out of range (test_evaluate.py:")
    results.save(tmp_path / "out")
    assert Results.load(tmp_path / "out") == results
    page = (tmp_path / "out" / "report.html").read_text()
    for text in (str(results), results.to_markdown(), results.to_latex(), results._repr_markdown_(), page):
        assert "list index out of range" in text
    assert "| Broken | - failed | - failed |" in results.to_markdown()
    assert "=" in str(results)  # who is tied with the best is said all the same
    assert repr(results) == "Results(1 network, 5 methods, 2 OOD sets, 1 failed)"


def test_results_are_tables_pages_and_frames(results: Results, tmp_path: Path) -> None:
    results.page(tmp_path / "deep" / "page.html")
    assert "<title>OOD detection on evaluation" in (tmp_path / "deep" / "page.html").read_text()
    assert results.to_latex().count(r"\begin{table*}") == 1
    assert len(results.to_pandas()) == len(results.rows) == 10
    results.save(tmp_path / "all")
    assert {"scores.parquet", "table.tex"} <= {path.name for path in (tmp_path / "all").iterdir()}
    with pytest.raises(InputError, match="cannot be rebuilt: network SmallViT .*images train .DataLoader"):
        restore_benchmark(results)


def test_labels_are_those_of_the_images_that_limit_chooses(sets: dict[str, Any]) -> None:
    images, labels = np.stack([sets["test"][i] for i in range(200)]), sets["test"].labels[:200]
    found = evaluate(
        "zoo:digits-vit",
        train=sets["train"],
        id=list(images),
        ood={"photos": sets["photos"]},
        methods=["msp"],
        labels=labels,
        limit=40,
        resamples=5,
        progress=False,
    )
    assert found.rows[0].id_accuracy > 0.9


def test_features_with_a_head(sets: dict[str, Any], tmp_path: Path) -> None:
    classifier = Classifier(zoo.build("digits-vit"))
    data = {name: Features.extract(classifier, images, DIGITS, progress=False) for name, images in sets.items()}
    arrays = {name: np.concatenate([part.numpy() for _, part in each.chunks()]) for name, each in data.items()}
    head = (classifier.head.weight, classifier.head.bias)
    found = evaluate(
        head,
        train=arrays["train"],
        id=arrays["test"],
        ood={"near": {"letters": data["letters"]}, "far": {"photos": (arrays["photos"], None)}},
        methods=["energy", "knn", "adascale-a"],
        labels=sets["test"].labels,
        resamples=5,
        progress=False,
    )
    detector = METHODS["energy"].fit(data["train"])
    inside, outside = detector.score(data["test"]), detector.score(data["letters"])
    wanted = (inside[:, None] > outside).double().mean() + 0.5 * (inside[:, None] == outside).double().mean()
    (row,) = (row for row in found.rows if (row.method, row.ood) == ("energy", "letters"))
    assert row.value("auroc") == pytest.approx(float(wanted), abs=1e-6)
    assert row.group == "near"
    assert row.id_accuracy == pytest.approx(data["test"].accuracy)
    assert [(each.method, "changes images" in each.why) for each in found.failed] == [("adascale-a", True)]
    with pytest.raises(InputError, match="with the features, as a pair"):
        evaluate(
            head, train=data["train"], id=data["test"], ood={"p": data["photos"]}, labels=sets["test"].labels, limit=9
        )
    both = np.concatenate([arrays["test"][:20], arrays["letters"][:20]])
    overlap = "20 of the 40 images of both are in test too"
    with pytest.warns(UserWarning, match=overlap):
        mixed = evaluate(
            head, train=arrays["train"], id=arrays["test"], ood={"both": both}, methods=["msp"], progress=False
        )
    mixed.save(tmp_path)
    assert all(overlap in (tmp_path / name).read_text() for name in ("results.json", "table.tex", "report.html"))


@pytest.fixture
def folders(sets: dict[str, Any], tmp_path: Path) -> Path:
    for name, images in sets.items():
        for place in range(60):
            path = tmp_path / name / str(max(images.labels[place], 0)) / f"{place}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images.images[place]).save(path)
    return tmp_path


def test_folders_and_several_networks_can_be_repeated(folders: Path) -> None:
    found = evaluate(
        {"small": "zoo:digits-convnet", "vit": "zoo:digits-vit"},
        train=folders / "train",
        id=str(folders / "test"),
        ood={"letters": folders / "letters"},
        methods=["msp", "energy"],
        resamples=5,
        progress=False,
        cache=None,
    )
    assert [(row.model, row.family) for row in found.rows[::2]] == [("small", "ConvNet"), ("vit", "transformer")]
    benchmark, options = restore_benchmark(found, progress=False)
    compared = compare_runs(found, run_benchmark(benchmark, options))
    assert compared.same
    assert not compared.notes  # the same images and weights
    assert to_markdown(found._tables()[0]) == found.to_markdown()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ood": torch.zeros(3, 1, 16, 16)}, "ood is a mapping from names to images"),
        ({"ood": {}}, "got an empty one"),
        ({"ood": {"test": 3}}, "an OOD set cannot be called test"),
        ({"train": "nowhere"}, "train: there is no file or folder nowhere"),
        ({"limit": 5}, "train: limit chooses among images"),
        ({"labels": [1]}, "a loader gives its labels"),
        ({"methods": ["raect"]}, "did you mean react"),
        ({"methods": [3]}, "a method must be a Method, or a recipe"),
        ({"methods": [Broken()]}, "no method could be run; Broken on SmallViT: IndexError"),
        ({"settings": "openood"}, "settings must be one of general"),
        ({"model": {}}, "at least one network"),
    ],
)
def test_mistakes_are_named(sets: dict[str, Any], change: dict[str, Any], message: str) -> None:
    given = {"train": loader(sets["train"], 60), "id": loader(sets["test"], 60), "cache": None, "progress": False}
    given |= {"ood": {"letters": loader(sets["letters"], 60)}, "methods": ["msp"], "model": zoo.build("digits-vit")}
    given |= change
    with pytest.raises(InputError, match=message):
        evaluate(given.pop("model"), **given)


def test_a_benchmark_file_names_what_model_accepts(sets: dict[str, Any], folders: Path, tmp_path: Path) -> None:
    text = f"""name = "mine"
    [id]
    train = "folder:{folders / "train"}"
    test = "folder:{folders / "test"}"
    [[ood]]
    name = "letters"
    images = "folder:{folders / "letters"}"
    [[models]]
    name = "zoo:digits-vit"
    [[models]]
    name = "own_models:own_net"
    label = "Own"
    [[models]]
    name = "hf:{tmp_path / "nothing"}"
    label = "Missing"
    """
    benchmark = Benchmark.parse(text, where="b.toml", base=tmp_path)
    options = BenchOptions(methods=("msp",), resamples=5, progress=False)
    with pytest.raises(InputError, match="names code to run: 'own_models:own_net'"):
        run_benchmark(benchmark, options)
    found = run_benchmark(benchmark, BenchOptions(methods=("msp",), resamples=5, progress=False, trust_code=True))
    assert {row.model: row.family for row in found.rows} == {"zoo:digits-vit": "transformer", "Own": "MLP"}
    assert [what for what, _ in found.skipped] == ["Missing"]
    assert [spec.title for spec in benchmark.chosen(["DIGITS-VIT", "own"])] == ["zoo:digits-vit", "Own"]
