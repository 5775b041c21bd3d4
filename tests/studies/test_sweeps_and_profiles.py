"""Sweeps, comparisons and profiles against naive computations on small arrays."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from data import arrays
from oodshape import METHODS, Features, InputError, auroc, fpr_at_tpr
from oodshape.images.datasets.synthetic import NoiseSet
from oodshape.methods.shapes.ash import AshB, AshP, AshRand, AshS
from oodshape.methods.shapes.optfs import OptFS
from oodshape.studies.methods import average_by_family, compare_methods, compare_with_optfs
from oodshape.studies.shaping_functions import profile_intervals, profile_shapes, profile_weights
from oodshape.studies.theta import compute_impacts, fit_with_ood
from oodshape.studies.variants import NUMBERS, TAILS, sweep_intervals, sweep_limits
from oracle.metrics import naive_auroc
from oracle.studies import naive_profile
from small_study import K, classes_of, naive_v, network


def test_no_interval_is_energy(small) -> None:
    table = sweep_intervals(network(small), (0, 1, 7))
    energy = METHODS["energy"].fit(small["train"])
    for name, outside in small["ood"].items():
        wanted = auroc(energy.score(small["inside"]), energy.score(outside))
        rows = table[(table["k"] == 0) & (table["ood"] == name)]
        assert rows["auroc"].tolist() == [wanted, wanted]
    shape = replace(METHODS["optfs-v"], shape=OptFS(k=7)).fit(small["train"]).shape
    scores = [naive_v(z, small["head"], shape.edges, shape.theta) for z in (small["test"], small["outside"]["far"])]
    row = table.query("k == 7 and ood == 'far' and method == 'optfs-v'").iloc[0]
    assert row["auroc"] == pytest.approx(float(naive_auroc(*(s.tolist() for s in scores))), abs=1e-3)


def test_the_whole_range_is_exact(small) -> None:
    table = sweep_limits(network(small), (0.0, 0.1))
    whole = small["z"].astype(np.float64)
    first = table.query("tail == 0").iloc[0]
    assert (first["lower"], first["upper"]) == (whole.min(), whole.max())
    tenth = table.query("tail == 0.1").iloc[0]
    np.testing.assert_allclose([tenth["lower"], tenth["upper"]], np.quantile(whole, [0.1, 0.9]), atol=1e-9)
    assert NUMBERS == (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
    assert [100 * tail for tail in TAILS] == pytest.approx([0, 0.01, 0.05, 0.1, 0.5, 1, 5, 10])


def test_compatibility_pairs(small) -> None:
    table = compare_with_optfs(network(small))
    assert [tuple(row) for row in table[["base", "method"]].drop_duplicates().to_numpy()] == [
        pair
        for base, shaped in (("msp", "msp"), ("mls", "mls"), ("energy", "e"), ("dice", "e+dice"), ("react", "e+react"))
        for pair in ((base, base), (base, f"optfs-{shaped}"))
    ]
    for _, row in table.iterrows():
        detector = METHODS[row["method"]].fit(small["train"])
        pair = detector.score(small["inside"]), detector.score(small["ood"][row["ood"]])
        assert (row["auroc"], row["fpr95"]) == (auroc(*pair), fpr_at_tpr(*pair))


@pytest.mark.parametrize("shape", [AshP(p=0.6), AshB(p=0.65), AshS(p=0.8), AshRand(p=0.75)], ids=repr)
def test_ash_profiles_by_brute_force(small, shape) -> None:
    import torch

    edges = np.linspace(0, 4, 9).astype(np.float32)
    pooled = np.concatenate([small["test"], small["outside"]["far"]]).astype(np.float32)
    shaped = shape(torch.tensor(pooled)).numpy().astype(np.float64)
    means, stds, counts = naive_profile(pooled.astype(np.float64), shaped, edges)
    found = profile_intervals(shape, (small["inside"], small["ood"]["far"]), edges)
    assert found[0].tolist() == counts
    assert (pooled == 0).sum() > 1000  # left out, although 0 lies in the first interval
    np.testing.assert_allclose(found[1], means, rtol=1e-5)
    np.testing.assert_allclose(found[2], stds, rtol=1e-4, atol=1e-6)


def test_profiles_hold_every_panel(small) -> None:
    table = profile_shapes(network(small))
    curves = {name: part.reset_index() for name, part in table.groupby("curve")}
    assert set(curves) == {
        "react", "bfact", "vra-p", "optfs-v", "optfs with OOD", "ash-p", "ash-b", "ash-s", "ash-rand"
    }  # fmt: skip
    assert all(len(part) == 100 for part in curves.values())
    middle = (curves["react"]["left"] + curves["react"]["right"]) / 2
    train = small["z"].astype(np.float64)
    t, t95, low, high = np.quantile(train, [0.9, 0.95, 0.6, 0.95])
    np.testing.assert_allclose(curves["react"]["theta"], np.minimum(middle, t) / middle, rtol=1e-5)
    np.testing.assert_allclose(curves["bfact"]["theta"], 1 / np.sqrt(1 + (middle / t95) ** 4), rtol=1e-5)
    band = np.where(middle < low, 0, np.where(middle < high, 1, high / middle))
    np.testing.assert_allclose(curves["vra-p"]["theta"], band, rtol=1e-5)
    np.testing.assert_array_equal(
        curves["optfs with OOD"]["theta"], fit_with_ood(small["train"], small["ood"]["far"]).theta.astype(np.float64)
    )


def test_a_method_without_a_fit_has_no_panel() -> None:
    z, head = arrays(60, signed=True)
    below = Features.from_arrays(z - 30, head)
    table = profile_shapes(network({"train": below, "inside": below[:20], "ood": {"far": below[20:]}}))
    assert "bfact" not in set(table["curve"])


def test_weights_by_value_by_brute_force(small) -> None:
    table = profile_weights(network(small), OptFS(k=K))
    table = table[table["set"] == "ID"]
    z = small["test"].astype(np.float64)
    weight = small["head"][0][classes_of(z, small["head"])]
    for row in table.itertuples():
        met = weight[(z >= row.left) & (z < row.right)].astype(np.float64)
        assert row.count == len(met)
        if len(met):
            assert row.mean == pytest.approx(met.mean(), abs=1e-6)
            assert row.std == pytest.approx(met.std(), abs=1e-5)


def test_generalisation_counts_networks_the_same() -> None:
    from synthetic import results, row

    frame = results().frame
    rows = [row(model, method, ood, family=family, auroc=value) for model, family, method, ood, value in (
        ("a", "ConvNet", "msp", "x", 0.8), ("a", "ConvNet", "msp", "y", 0.6),
        ("b", "ConvNet", "msp", "x", 0.9),
        ("c", "MLP", "msp", "x", 0.5), ("d", "transformer", "msp", "x", 0.7),
        ("a", "ConvNet", "odin", "x", 0.5), ("c", "MLP", "odin", "x", 0.4), ("d", "transformer", "odin", "x", 0.6),
    )]  # fmt: skip
    frame = frame.iloc[:0].__class__([r.flat() for r in rows])
    table = average_by_family(frame.rename(columns={"model": "network"})).set_index("method")
    assert table.loc["msp"].tolist() == pytest.approx([(0.7 + 0.9) / 2, 0.6])
    assert np.isnan(table.loc["odin", "convnets"])  # not on every ConvNet
    assert table.loc["odin", "others"] == pytest.approx(0.5)


def test_every_method_leaves_out_perturbations(small) -> None:
    from oodshape import paper_methods

    assert "odin" in set(compare_methods(network(small))["method"])
    chosen = {name: paper_methods("cifar10")[name] for name in ("odin", "msp")}
    assert set(compare_methods(network(small, methods=chosen))["method"]) == {"msp"}


def test_noise_images_are_the_papers() -> None:
    gaussian, uniform = (NoiseSet(kind, 40) for kind in ("gaussian", "uniform"))
    pixels = np.stack([gaussian[i] for i in range(40)])
    assert pixels.shape == (40, 32, 32, 3)
    assert pixels.dtype == np.uint8
    from scipy.stats import norm

    ends = norm.cdf(0.5, 127.5, 255), 1 - norm.cdf(254.5, 127.5, 255)
    assert (pixels == 0).mean() == pytest.approx(ends[0], abs=0.01)
    assert (pixels == 255).mean() == pytest.approx(ends[1], abs=0.01)
    flat = np.stack([uniform[i] for i in range(40)])
    assert flat.mean() == pytest.approx(127.5, abs=1)
    assert (flat == 0).mean() == pytest.approx(0.5 / 255, abs=0.001)
    np.testing.assert_array_equal(gaussian[3], NoiseSet("gaussian", 9)[3])
    assert gaussian.fingerprint != NoiseSet("gaussian", 41).fingerprint
    assert len(NoiseSet("uniform")) == 50_000
    with pytest.raises(InputError, match="gaussian, uniform"):
        NoiseSet("pink")
    assert len(list(itertools.islice(iter(uniform), 50))) == 40


def test_float32_features_agree_with_the_exact_theta() -> None:
    z, head = arrays(300, signed=True)
    outside = Features.from_arrays(-z[:100] * 0.7, head)
    train = Features.from_arrays(z, head)
    shape = fit_with_ood(train, outside)
    gap = compute_impacts(train, shape.edges).mean(0) - compute_impacts(outside, shape.edges).mean(0)
    # a bin that an edge cuts is split in proportion: with few values, one may fall on either side
    np.testing.assert_allclose(shape.theta, gap / np.linalg.norm(gap) * 10, atol=0.1)
    assert shape.theta @ gap / np.linalg.norm(gap) / 10 > 0.999
