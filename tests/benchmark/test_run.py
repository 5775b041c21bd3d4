"""From a benchmark to results: the figures of the pieces, on made-up and on real images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oodshape import METHODS as EVERY
from oodshape import Classifier, Features, InputError, auroc, fpr_at_tpr
from oodshape.benchmark.plan import Options
from oodshape.benchmark.run import run
from oodshape.benchmark.spec import Benchmark, ModelSpec, OodSpec
from oodshape.images.datasets.catalog import open_source
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.image_set import limited
from oodshape.methods.registry import paper_methods
from oodshape.networks import zoo
from oodshape.report.benchmark_files import FILES, run_benchmark

FEW = Options(models=("ViT",), methods=("energy", "optfs-e"), limit=60, resamples=20, progress=False)


@pytest.fixture(scope="module")
def digits() -> Benchmark:
    return Benchmark.load("digits")


def test_figures_are_those_of_the_pieces(digits: Benchmark) -> None:
    results = run(digits, replace(FEW, limit=None))
    assert len(results.rows) == 2 * 6
    classifier = Classifier(zoo.build("digits-vit"))
    sets = {name: open_source(f"digits:{name}", digits.base) for name in ("train", "test", "letters")}
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
    one, two = run(digits, FEW), run(digits, replace(FEW, seed=1))
    assert {row.n_ood for row in one.rows} == {60}
    assert one.provenance["settings"]["limit"] == 60
    assert [row.metrics for row in one.rows] != [row.metrics for row in two.rows]


def test_missing_sets_are_skipped_with_a_reason(digits: Benchmark) -> None:
    gone = OodSpec(name="gone", group="far", images="folder:/no/such/folder")
    results = run(replace(digits, ood=(*digits.ood[:1], gone)), FEW)
    assert [what for what, _ in results.skipped] == ["gone"]
    assert "no such" in results.skipped[0][1] or "there is no" in results.skipped[0][1]
    assert {row.ood for row in results.rows} == {"digits89"}
    with pytest.raises(InputError, match="none of the OOD sets"):
        run(replace(digits, ood=(gone,)), FEW)
    with pytest.raises(InputError, match="there is no"):
        run(replace(digits, train="folder:/no/such/folder"), FEW)


def test_a_network_of_ones_own(digits: Benchmark) -> None:
    mine = ModelSpec(name="own_models:own_net", label="mine", family="MLP")
    results = run(replace(digits, models=(mine,)), replace(FEW, models=(), trust_code=True))
    known = run(digits, replace(FEW, models=("MLP-Mixer",)))
    assert [row.value("auroc") for row in results.rows] == [row.value("auroc") for row in known.rows]
    for name, message in (("own_models:nothing", "cannot import"), ("own_models:parse", "cannot import")):
        with pytest.raises(InputError, match=message):
            run(replace(digits, models=(ModelSpec(name=name),)), replace(FEW, models=(), trust_code=True))


def test_a_run_is_kept_and_made_again_when_something_changes(digits: Benchmark, tmp_path) -> None:
    """A run that is made again has other costs: equal results are kept ones."""
    options = replace(FEW, cache=tmp_path / "cache")
    first = run_benchmark(digits, options, tmp_path / "a")
    second = run_benchmark(digits, options, tmp_path / "b")
    assert first == second
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    run_benchmark(digits, replace(options, methods=("msp",)), tmp_path / "b")
    assert "| msp |" in (tmp_path / "b" / "table.md").read_text()
    assert run_benchmark(digits, replace(options, cache=None), tmp_path / "c") != first


def test_sources(tmp_path) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((3, 4, 4), np.uint8), labels=np.arange(3))
    assert open_source("array:x.npz", tmp_path).labels.tolist() == [0, 1, 2]
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
            open_source(source, tmp_path)
    with pytest.raises(InputError, match="put it at"):
        open_source("catalog:imagenet/Texture", tmp_path, tmp_path)


SETS = {"train": "train", "test": "test", "SVHN": "svhn", "Texture": "texture32"}
METHODS = ("msp", "energy", "react", "ash-s", "optfs-v", "optfs-e")
LIMIT = 40  # one swapped pair of scores is 0.06 points; the script holds whole sets to 0.3


def test_from_images_to_rows_as_from_the_published_features(shared: Path) -> None:
    """scripts/check_oracle.py does the same for whole sets, after minutes of extraction; see docs/results.md."""
    whole = Benchmark.load("cifar10")
    file = str(shared / "weights" / "densenet101_cifar10.safetensors")
    some = replace(
        whole,
        models=(replace(whole.models[0], weights=file),),
        ood=tuple(ood for ood in whole.ood if ood.name in SETS),
    )
    data = shared / "data"
    results = run(some, Options(methods=METHODS, limit=LIMIT, data=data, resamples=1, progress=False))
    head = np.load(shared / "features" / "cifar10_densenet101" / "head.npz")
    parts = {}
    for ours, theirs in SETS.items():
        subset = limited(open_source(f"catalog:cifar10/{ours}", Path(), data), LIMIT)
        stored = np.load(shared / "features" / "cifar10_densenet101" / f"{theirs}.npz")["features"]
        rows = stored[np.asarray(subset.indices)]  # type: ignore[attr-defined]
        parts[ours] = Features.from_arrays(rows, (head["weight"], head["bias"]))
    assert len(results.rows) == 2 * len(METHODS)
    for row in results.rows:
        detector = paper_methods("cifar10")[row.method].fit(parts["train"])
        expected = auroc(detector.score(parts["test"]), detector.score(parts[row.ood]))
        assert 100 * row.value("auroc") == pytest.approx(100 * expected, abs=0.5), (row.method, row.ood)
        assert row.limit == LIMIT
        assert row.id_accuracy is not None
        assert row.id_accuracy > 0.85
