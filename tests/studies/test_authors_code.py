"""Studies with the settings of the paper's published code."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from oodshape import InputError
from oodshape.benchmark.spec import Benchmark
from oodshape.images.datasets.synthetic import NoiseSet
from oodshape.methods.shapes.clipping import VraP
from oodshape.methods.shapes.optfs import OptFS
from oodshape.studies.load_networks import load_networks
from oodshape.studies.theta import compute_impacts, fit_dynamic, fit_with_ood


def test_the_objective_is_the_plain_logistic_regression(small) -> None:
    """|theta|^2 / 2 and the summed losses of unequally many impacts as they are, minimised from its gradient."""
    outside = small["ood"]["far"][np.arange(30)]
    shape = fit_with_ood(small["train"], outside, objective="authors-code")
    impacts = np.concatenate([compute_impacts(each, shape.edges) for each in (small["train"], outside)])
    sides = np.repeat([1.0, -1.0], [len(small["train"]), 30])

    def loss(x):
        margins = sides * (impacts @ x[:-1] + x[-1])
        slopes = -sides / (1 + np.exp(margins))
        gradient = np.append(impacts.T @ slopes + x[:-1], slopes.sum())
        return np.logaddexp(0, -margins).sum() + x[:-1] @ x[:-1] / 2, gradient

    best = minimize(loss, np.zeros(101), jac=True, method="BFGS", options={"gtol": 1e-6}).x[:-1]
    np.testing.assert_allclose(shape.theta / 10, best / np.linalg.norm(best), atol=2e-3)


def test_noise_is_truncated_and_stops_at_254() -> None:
    plain, cut = (NoiseSet("gaussian", 3, truncated=truncated) for truncated in (False, True))
    values = np.random.default_rng([0, 2]).normal(127.5, 255, (32, 32, 3)).clip(0, 255)
    np.testing.assert_array_equal(cut[2], np.floor(values))
    np.testing.assert_array_equal(plain[2], np.rint(values))
    uniform = np.stack([NoiseSet("uniform", 30, truncated=True)[place] for place in range(30)])
    assert (uniform.min(), uniform.max()) == (0, 254)
    assert np.bincount(uniform.ravel(), minlength=255).min() > 250  # 361 on average; rounding gives 0 half as many
    assert plain.fingerprint != cut.fingerprint
    assert plain.identities[0] != cut.identities[0]
    assert plain.fingerprint == NoiseSet("gaussian", 3).fingerprint
    with pytest.raises(InputError, match="gaussian, uniform"):
        NoiseSet("pink")
    assert repr(plain) == "NoiseSet(name='gaussian', n=3, seed=0, side=32, truncated=False)"  # caches are named by it


def test_dynamic_classes_have_the_norm_in_the_end_only(small) -> None:
    plain, long = (fit_dynamic(small["train"], optfs=OptFS(norm=norm), iterations=3) for norm in (None, 1000.0))
    assert np.linalg.norm(long.theta) == pytest.approx(1000, rel=1e-5)
    np.testing.assert_allclose(long.theta, 100 * plain.theta, rtol=1e-5)


def test_a_study_takes_them_from_a_file_or_an_option(tmp_path) -> None:
    text = Benchmark.load("digits").text
    own = tmp_path / "own.toml"
    own.write_text('id_set = "cifar10"\n' + text)
    few = {"limit": 12, "models": ("ViT",)}
    (network,) = load_networks(str(own), [], settings="authors-code", **few)
    assert network.follows_authors
    assert network.methods["vra-p"].shape == VraP(low=0.6, high=0.95, absolute=True)
    assert {name: len(made) for name, made in network.surrogates.items()} == {"gaussian": 12, "uniform": 12}
    assert set(network.ood) == {"digits89", "letters", "photos", "textures"}
    own.write_text(text)
    with pytest.raises(InputError, match='names none of them: put id_set = "imagenet"'):
        load_networks(str(own), [], settings="authors-code", **few)
