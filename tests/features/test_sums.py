"""Sums over rows: what they are by definition, how far float32 products are off, and when float64 ones are made."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data import features
from oodshape import METHODS, Features, Moments, auroc
from oodshape.features import sum_kernels
from oodshape.features.statistic import TEMPERATURES, Statistic
from oodshape.features.sum_kernels import Products, eigenvalue_noise, needs_float64


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
        "second": z.T @ z,
        "unit_second": length.T @ length,
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


@pytest.mark.parametrize("directions", [False, True])
def test_products_in_float32_are_within_the_stated_error(directions: bool) -> None:
    z, total = rows(9000, 600), []
    for images in (9000, 10):
        products = Products(600, images, directions=directions)
        for part in torch.split(z, 2000):
            products.add(part, products.room())
        total.append(products.result())
    single, double = total
    assert 0 < np.abs(single - double).max() < 1e-6 * np.abs(double).max()
    np.testing.assert_array_equal(single, single.T)


def test_float64_where_images_are_few_or_features() -> None:
    assert [needs_float64(n, m) for n, m in ((20_479, 2048), (20_480, 2048), (10**6, 511))] == [True, False, True]


def test_a_rank_is_found_through_the_rounding_of_float32() -> None:
    basis = rows(150, 600, seed=1)
    z = rows(7000, 150, seed=2) @ basis
    products = Products(600, len(z))
    products.add(z, products.room())
    values = np.linalg.eigvalsh(products.result())
    assert (values > eigenvalue_noise(len(z), 600) * values[-1]).sum() == 150
    assert (
        values > eigenvalue_noise(10, 600) * values[-1]
    ).sum() > 150  # the tolerance of float64 would count rounding


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
@pytest.mark.parametrize("network", ["cifar10_densenet101", "imagenet_deit_tiny"])
def test_real_scores_with_products_in_float32_are_those_in_float64(
    real_features: list[dict], network: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stated error: 1e-4 of the usual score, 0.01 points of AUROC; both have ten images for each feature."""
    (net,) = [entry for entry in real_features if entry["name"] == network]
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
