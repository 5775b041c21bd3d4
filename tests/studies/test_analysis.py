"""The studies against naive computations on small arrays, and the closed forms against an optimiser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from oodshape import METHODS, Features, auroc, fpr_at_tpr
from oodshape.images.datasets.synthetic import NoiseSet
from oodshape.images.identity import from_numbers, smallest
from oodshape.methods.shapes.ash import AshB, AshP, AshRand, AshS
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.studies.compare_methods import average_by_family, compare_methods, compare_with_optfs
from oodshape.studies.optfs_variants import (
    NUMBERS,
    TAILS,
    compare_variants,
    sweep_limits,
    sweep_optfs,
    validate_term,
)
from oodshape.studies.shaping_functions import profile_intervals, profile_weights
from oodshape.studies.theta import fit_dynamic, fit_with_ood, measure_changed
from oracle.metrics import naive_auroc
from oracle.shaping import naive_shape
from oracle.studies import naive_impacts, naive_profile
from small_study import K, classes_of, naive_v, network


def on_sphere(direction: np.ndarray) -> np.ndarray:
    """The theta of norm sqrt(K) that a numerical optimiser finds for the largest theta . direction."""
    k = len(direction)
    fun = lambda t: -(t @ direction) / np.linalg.norm(t)  # noqa: E731
    start = np.random.default_rng(0).normal(size=k)
    best = minimize(fun, start, method="BFGS", options={"gtol": 1e-10}).x
    return best / np.linalg.norm(best) * np.sqrt(k)


def test_mean_gap_is_the_optimum_on_the_sphere(small) -> None:
    optfs = OptFS(k=K)
    shape = fit_with_ood(small["train"], small["ood"]["far"], optfs=optfs)
    a, b = (
        naive_impacts(z, classes_of(z, small["head"]), small["head"][0], shape.edges).mean(axis=0)
        for z in (small["z"], small["outside"]["far"])
    )
    np.testing.assert_allclose(shape.theta, on_sphere(a - b), atol=2e-4)
    np.testing.assert_allclose(np.linalg.norm(shape.theta), np.sqrt(K), rtol=1e-6)
    alone = replace(METHODS["optfs-v"], shape=optfs).fit(small["train"]).shape.theta
    np.testing.assert_allclose(alone, on_sphere(a), atol=2e-4)


def test_variants_test_one_theta_on_all_sets(small) -> None:
    made = network(small, surrogates={"gaussian": small["ood"]["near"]})
    assert made.real == "far"
    table = compare_variants(made)
    assert list(dict.fromkeys(table["variant"])) == ["Real", "Gaussian", "Dynamic", "Ours (V)", "Ours (E)"]
    assert (table.groupby("variant")["ood"].agg(list).map(list) == [["far", "near"]] * 5).all()
    shape = fit_with_ood(small["train"], small["ood"]["far"])
    for ood in ("far", "near"):
        scores = [naive_v(z, small["head"], shape.edges, shape.theta) for z in (small["test"], small["outside"][ood])]
        wanted = float(naive_auroc(*(s.tolist() for s in scores)))
        row = table.query("variant == 'Real' and ood == @ood").iloc[0]
        assert row["auroc"] == pytest.approx(wanted, abs=1e-3)
        ours = METHODS["optfs-e"].fit(small["train"])
        pair = ours.score(small["inside"]), ours.score(small["ood"][ood])
        row = table.query("variant == 'Ours (E)' and ood == @ood").iloc[0]
        assert (row["auroc"], row["fpr95"]) == (auroc(*pair), fpr_at_tpr(*pair))


def test_validation_by_hand(small) -> None:
    table = validate_term(network(small)).set_index("ood")
    edges = METHODS["optfs-v"].fit(small["train"]).shape.edges
    impacts = lambda z: naive_impacts(z, classes_of(z, small["head"]), small["head"][0], edges).mean(axis=0)  # noqa: E731
    a = impacts(small["z"])
    for name, z in small["outside"].items():
        b = impacts(z)
        assert table["norm_ratio"][name] == pytest.approx(np.sqrt((b**2).sum() / (a**2).sum()), rel=1e-5)
        assert table["cosine"][name] == pytest.approx((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()), rel=1e-5)
        for column, direction in (("auroc_with", a - b), ("auroc_without", a)):
            theta = direction / np.linalg.norm(direction) * 10
            scores = [naive_v(values, small["head"], edges, theta).tolist() for values in (small["test"], z)]
            assert table[column][name] == pytest.approx(float(naive_auroc(*scores)), abs=1e-3)


def test_dynamic_by_brute_force(small) -> None:
    shape = fit_dynamic(small["train"], optfs=OptFS(k=K), iterations=3, samples=80, seed=4)
    theta, (weight, bias) = None, small["head"]
    for iteration in range(3):
        rows = smallest(from_numbers(200), 80, 4, f"dynamic {iteration}")
        z = small["z"][rows].astype(np.float64)
        shaped = z if theta is None else naive_shape(z, shape.edges, theta)
        classes = (shaped @ weight.T.astype(np.float64) + bias).argmax(axis=1)
        impact = naive_impacts(z, classes, weight, shape.edges).mean(axis=0)
        theta = impact / np.linalg.norm(impact) * np.sqrt(K)
    np.testing.assert_allclose(shape.theta, theta, atol=1e-4)
    whole = replace(METHODS["optfs-v"], shape=OptFS(k=K)).fit(small["train"]).shape
    np.testing.assert_array_equal(shape.edges, whole.edges)  # fixed from all images
    one = fit_dynamic(small["train"], optfs=OptFS(k=K), iterations=1)
    np.testing.assert_allclose(one.theta, whole.theta, atol=1e-5)  # the first classes are the network's own
    long = fit_dynamic(small["train"], optfs=OptFS(k=K, norm=1000.0), iterations=3, samples=80, seed=4)
    np.testing.assert_allclose(long.theta, 1000 / np.sqrt(K) * shape.theta, rtol=1e-5)


def test_changed_ratio_by_brute_force(small) -> None:
    weight, bias = small["head"][0].astype(np.float64), small["head"][1] * 30.0  # a bias that matters
    train = Features.from_arrays(small["z"], (weight, bias))
    shape = PiecewiseConstant(edges=[0.0, 1.0, 2.0, 9.0], theta=[-1.0, 2.0, 0.3])
    changed = [0, 0]
    for row in small["z"].astype(np.float64):
        shaped = naive_shape(row[None], shape.edges, shape.theta)[0]
        for place, b in enumerate((0.0, bias)):
            changed[place] += np.argmax(weight @ row + b) != np.argmax(weight @ shaped + b)
    ratio = measure_changed(train, shape)
    assert ratio == {"without_bias": changed[0] / 200, "with_bias": changed[1] / 200, "n": 200}
    assert changed[0] != changed[1]
    assert measure_changed(train, shape, samples=50)["n"] == 50


def test_no_interval_is_energy(small) -> None:
    table = sweep_optfs(network(small), "k", (0, 1, 7))
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
    assert table.loc["msp"].to_dict() == pytest.approx({"ConvNets": (0.7 + 0.9) / 2, "transformers": 0.7, "MLPs": 0.5})
    assert np.isnan(table.loc["odin", "ConvNets"])  # not on every ConvNet
    assert table.loc["odin", "MLPs"] == pytest.approx(0.4)


def test_every_method_leaves_out_perturbations(small) -> None:
    from oodshape import paper_methods

    assert "odin" in set(compare_methods(network(small))["method"])
    chosen = {name: paper_methods("cifar10")[name] for name in ("odin", "msp")}
    assert set(compare_methods(network(small, methods=chosen))["method"]) == {"msp"}


def test_noise_is_rounded_and_clipped() -> None:
    values = np.random.default_rng([0, 2]).normal(127.5, 255, (32, 32, 3)).clip(0, 255)
    np.testing.assert_array_equal(NoiseSet("gaussian", 3)[2], np.rint(values))
