"""Sums over rows: what they are by definition, how far float32 products are off, and when float64 ones are made."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data import features
from oodshape import METHODS, Features, Moments, auroc
from oodshape.features import sum_kernels
from oodshape.features.statistic import TEMPERATURES, Statistic
from oodshape.features.sum_kernels import Scatter


def rows(n: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(1, 1, (n, width)).astype(np.float32))


def wide(n: int, width: int = 40, classes: int = 7) -> Features:
    rng = np.random.default_rng(1)
    head = rng.normal(size=(classes, width)), rng.normal(size=classes)
    return Features.from_arrays(rng.normal(1, 1, (n, width)).astype(np.float32), head)


def test_sums_are_those_of_the_definition() -> None:
    plain = wide(300)
    labels = np.arange(300) % 9 - 1  # without one, of every class, and one class too many
    z = torch.cat([raw for _, raw in plain.chunks()]).double()
    data = Features.from_arrays(z.numpy(), plain.head, labels=labels)
    found = Moments.of(data, frozenset(Statistic)).parts
    logits = data.head.logits(z.float()).double()
    member = torch.nn.functional.one_hot(data.predictions, 7).double().T
    length = z / z.norm(dim=1, keepdim=True)
    given = torch.stack([data.labels == c for c in range(7)]).double()
    right = given * (data.predictions == data.labels).double()
    known = (data.labels >= 0) & (data.labels < 7)
    own = logits[known].gather(1, data.labels[known][:, None]).sum()
    wanted = {
        "counts": member.sum(dim=1),
        "class_sums": member @ z,
        "unit_class_sums": member @ length,
        "softmax_sums": member @ logits.softmax(dim=1),
        "squares": z.square().sum(dim=0),
        "scatter": (z - z.mean(0)).T @ (z - z.mean(0)),
        "scatter_sums": z.sum(dim=0),
        "unit_scatter": (length - length.mean(0)).T @ (length - length.mean(0)),
        "unit_scatter_sums": length.sum(dim=0),
        "profile": z.sort(dim=1).values.sum(dim=0),
        "energy": logits.logsumexp(dim=1).sum()[None],
        "label_counts": given.sum(dim=1),
        "label_sums": given @ z,
        "unit_label_sums": given @ length,
        "right_counts": right.sum(dim=1),
        "right_sums": right @ z,
        "label_surprise": torch.stack(
            [((logits[known] / t).softmax(dim=1) * logits[known]).sum() - own for t in TEMPERATURES]
        ),
    }
    assert wanted.keys() | {"bank", "bank_keys"} == found.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values.numpy(), rtol=2e-6, atol=1e-6, err_msg=name)


def scatter_of(z: torch.Tensor, *, directions: bool = False, double: bool = False) -> Scatter:
    scatter = Scatter(z.shape[1], directions=directions, double=double)
    for part in torch.split(z, 2000):
        scatter.add(part)
    return scatter


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_scatter_is_that_around_the_mean(offset: float) -> None:
    """Features of small variance beside an offset: products around 0 would lose them."""
    z = (rows(9000, 600) * torch.logspace(0, -3, 600) + offset).float()
    found, sums = scatter_of(z).result()
    around = z.double() - z.double().mean(dim=0)
    wanted, size = (around.T @ around).numpy(), np.sqrt(np.diagonal(found))
    assert (np.abs(found - wanted) <= 1e-6 * np.outer(size, size)).all()
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(sums, z.double().sum(dim=0), rtol=1e-7)


@pytest.mark.parametrize("directions", [False, True])
def test_products_are_float32_where_that_keeps_every_direction(directions: bool) -> None:
    z = rows(4000, 600)
    z[:, 7] = 0.0  # a feature that never changes counts for nothing
    plain, exact = scatter_of(z, directions=directions), scatter_of(z, directions=directions, double=True)
    assert not plain.double
    found, wanted = plain.result()[0], exact.result()[0]
    assert 0 < np.abs(found - wanted).max() < 1e-6 * np.abs(wanted).max()
    z[:, -1] = z[:, :-1].sum(dim=1) + 1e-3 * z[:, -1]  # one direction that hardly varies
    assert scatter_of(z, directions=directions).double


def test_one_image_more_changes_no_score() -> None:
    """Products in float32 from ten images for each feature on took ViM from an AUROC of 86.9 to 47.8."""
    rng, width = np.random.default_rng(0), 512
    means, spread = np.abs(rng.normal(0, 1, (10, width))), np.logspace(0, -2, width) * 3e-3

    def drawn(n: int, scale: float = 1.0) -> np.ndarray:
        return (means[rng.integers(0, 10, n)] + rng.normal(0, scale, (n, width)) * spread).astype(np.float32)

    head = means - means.mean(axis=0), -0.5 * (means**2).sum(axis=1) + means @ means.mean(axis=0)
    train, inside, outside = (Features.from_arrays(z, head) for z in (drawn(5120), drawn(500), drawn(500, 1.15)))
    for name in ("vim", "mds", "mds++"):
        few, many = (METHODS[name].fit(data) for data in (train[:5119], train))
        found = [auroc(each.score(inside), each.score(outside)) for each in (few, many)]
        assert found[0] == pytest.approx(found[1], abs=0.005), name
        assert found[0] > 0.8, name


@pytest.mark.parametrize("name", ["mds", "mds++", "rmds", "knn"])
def test_a_common_offset_does_not_change_who_is_rejected(name: str) -> None:
    """The head ignores it. Float32 keeps 7 digits, so an offset of 1,000 leaves 4 of features of size 1."""
    rng, width = np.random.default_rng(0), 64
    weight = rng.normal(0, 0.3, (8, width))
    weight -= weight.mean(axis=1, keepdims=True)

    def drawn(n: int, scale: float = 1.0) -> np.ndarray:
        return rng.normal(0, scale, (n, width)) * np.logspace(0, -1, width) + 3 * weight[rng.integers(0, 8, n)]

    sets = drawn(2000), drawn(400), drawn(400, 1.3)
    found = []
    for offset in (100.0, 1000.0):
        train, inside, outside = (
            Features.from_arrays((z + offset).astype(np.float32), (weight, np.zeros(8))) for z in sets
        )
        detector = METHODS[name].fit(train)
        found.append(auroc(detector.score(inside), detector.score(outside)))
    assert found[0] == pytest.approx(found[1], abs=0.01)
    assert found[0] > 0.7


def test_scipy_takes_the_threads_that_torch_has() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with sum_kernels.limit_blas_threads():
            assert {pool["num_threads"] for pool in sum_kernels._openblas().info()} == {1}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["vim", "mds++"])
def test_fewer_images_than_features_fit_as_in_float64(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = wide(300, width=600), wide(100, width=600)
    kept = METHODS[name].fit(train).score(test)
    monkeypatch.setattr(sum_kernels, "DOUBLE_ROWS", 64)  # other blocks, other last bits
    again = METHODS[name].fit(wide(300, width=600)).score(test)
    torch.testing.assert_close(again, kept, rtol=1e-4, atol=1e-4 * float(kept.abs().mean()))


def test_statistics_are_collected_with_the_sums_and_the_head_is_multiplied_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, product = [], torch.addmm
    monkeypatch.setattr(torch, "addmm", lambda *given: calls.append(len(given[1])) or product(*given))
    data = wide(300)
    data.moments(frozenset(["softmax_sums", "energy", "counts"]))
    assert data.stats.n == 300
    assert sum(calls) == 300
    other = wide(300)
    for name in ("counts", "impacts", "sums"):
        np.testing.assert_array_equal(getattr(data.stats, name), getattr(other.stats, name))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["vim", "mds++", "rmds++"])
def test_real_scores_with_products_in_float32_are_those_in_float64(
    real_features: list[dict], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 1e-4 of the usual score, and 0.01 points of AUROC."""
    (net,) = [entry for entry in real_features if entry["name"] == "cifar10_densenet101"]
    sets = {"id": net["id"][:1000], **{key: values[:500] for key, values in net["ood"].items()}}
    found = []
    for narrow in (10**9, 0):
        monkeypatch.setattr(sum_kernels, "NARROW", narrow)
        detector = METHODS[name].fit(Features.from_arrays(net["train"], net["head"]))
        found.append({key: detector.score(Features.from_arrays(z, net["head"])) for key, z in sets.items()})
    double, single = found
    assert any((double[key] != single[key]).any() for key in sets)
    usual = float(double["id"].abs().mean())  # single scores of differences may lie at 0
    for key in sets:
        torch.testing.assert_close(single[key], double[key], rtol=1e-4, atol=1e-4 * usual)
        assert auroc(single["id"], single[key]) == pytest.approx(auroc(double["id"], double[key]), abs=1e-4)


def test_sums_by_label_take_no_memory_where_no_image_has_one() -> None:
    sums = features(20).moments(frozenset(["label_sums", "class_sums"])).parts
    assert sums["label_sums"].shape == sums["class_sums"].shape
    assert sums["label_sums"].strides == (0, 0)
    assert not sums["label_sums"].any()
