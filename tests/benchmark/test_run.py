"""From a benchmark to results: one pass per network and set, the same figures on every run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oodshape import METHODS, Classifier, Features, InputError, auroc, fpr_at_tpr
from oodshape.benchmark.plan import Options
from oodshape.benchmark.results import Row
from oodshape.benchmark.run import run
from oodshape.benchmark.spec import Benchmark, ModelSpec, OodSpec
from oodshape.images.datasets.catalog import open_source
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.metrics.registry import METRICS
from oodshape.networks import zoo
from oodshape.networks.zoo.digits_nets import SmallNet

FEW = Options(models=("ViT",), methods=("energy", "optfs-e"), limit=60, resamples=20, progress=False)


@pytest.fixture(scope="module")
def digits() -> Benchmark:
    return Benchmark.load("digits")


def without_costs(row: Row) -> Row:
    return replace(row, metrics={name: each for name, each in row.metrics.items() if METRICS[name].interval})


def test_figures_are_those_of_the_pieces(digits: Benchmark) -> None:
    results = run(digits, replace(FEW, limit=None))
    assert len(results.rows) == 2 * 6
    classifier = Classifier(zoo.build("digits-vit"))
    sets = {name: open_source(f"digits:{name}", digits.base) for name in ("train", "test", "letters")}
    data = {name: Features.extract(classifier, images, DIGITS) for name, images in sets.items()}
    detector = METHODS["optfs-e"].fit(data["train"])
    inside, outside = detector.score(data["test"]), detector.score(data["letters"])
    (row,) = (r for r in results.rows if (r.method, r.ood) == ("optfs-e", "letters"))
    assert row.value("auroc") == pytest.approx(auroc(inside, outside), abs=1e-12)
    assert row.value("fpr95") == pytest.approx(fpr_at_tpr(inside, outside), abs=1e-12)
    found = row.metrics["auroc"]
    assert found.low < found.value < found.high
    assert (row.n_train, row.n_id, row.n_ood) == (866, 577, 400)
    assert row.id_accuracy == pytest.approx(data["test"].accuracy)
    assert (row.family, row.group, row.model) == ("transformer", "near", "ViT")


def test_each_network_sees_each_image_once(digits: Benchmark, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    seen: list[int] = []
    forward = SmallNet.forward
    monkeypatch.setattr(SmallNet, "forward", lambda self, x: seen.append(len(x)) or forward(self, x))
    options = replace(FEW, methods=(), cache=tmp_path)
    first = run(digits, options)
    # a few probes find the head and check the network, then one pass over each set and the proxy set
    assert [count for count in seen if count > 2] == 9 * [60]
    seen.clear()
    second = run(digits, options)
    assert sum(seen) <= 10 + 2 * 9  # probes of the network, and two images of each set held to the cache
    # ViM's decomposition, which auto may fuse, can differ in the last bits between two runs; nothing else does
    loose = ("vim", "auto")
    clean = [[without_costs(row) for row in part.rows if row.method not in loose] for part in (first, second)]
    assert clean[0] == clean[1]
    vims = [[row.value("auroc") for row in part.rows if row.method in loose] for part in (first, second)]
    assert vims[0] == pytest.approx(vims[1], abs=0.005)


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


def test_networks_without_weights_are_refused(digits: Benchmark) -> None:
    with pytest.raises(InputError, match="needs weights"):
        run(replace(digits, models=(ModelSpec(name="resnet50"),)), replace(FEW, models=()))


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
