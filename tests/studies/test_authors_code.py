"""Studies with the settings of the paper's published code, and the study of auto against a naive computation."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import spearmanr

from data import arrays, features, proxy
from oodshape import METHODS, Auto, Features, InputError, Method, auroc
from oodshape.benchmark.spec import Benchmark
from oodshape.features.proxy import cross_features
from oodshape.images.datasets.synthetic import NoiseSet
from oodshape.methods.auto import split_selection
from oodshape.methods.held_out_classes import HeldOutClasses
from oodshape.methods.records import RECORDS
from oodshape.methods.shapes.clipping import VraP
from oodshape.methods.shapes.optfs import OptFS
from oodshape.studies.load_networks import load_networks
from oodshape.studies.theta import compute_impacts, fit_dynamic, fit_with_ood
from small_study import network

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
study_auto = importlib.import_module("study_auto")


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
    with pytest.raises(InputError, match='does not say which it has; put id_set = "imagenet"'):
        load_networks(str(own), [], settings="authors-code", **few)


NEWER = [name for name, record in RECORDS.items() if record.block == "later"]
NAMES = ("msp", "energy", "react", "optfs-e", "knn", "gen")
SETTINGS = Auto(candidates=NAMES, fuse=2)


@pytest.fixture(scope="module")
def sets() -> dict[str, Features]:
    z, head = arrays(120, seed=5)
    noise = np.abs(np.random.default_rng(7).normal(size=(90, 40))).astype(np.float32)
    return {
        "train": features(400),
        "inside": features(150, seed=1),
        "near": Features.from_arrays(0.6 * z, head),
        "far": Features.from_arrays(noise, head),
    }


@pytest.fixture(scope="module")
def frame(sets: dict[str, Features]) -> pd.DataFrame:
    methods = {name: METHODS[name] for name in (*NAMES, "auto")}
    ood = {name: sets[name] for name in ("near", "far")}
    made = {"train": sets["train"], "inside": sets["inside"], "ood": ood}
    return study_auto.compare_selection(network(made, methods=methods, proxy=(proxy(),)), SETTINGS)


def test_rows_are_those_of_the_pieces(frame: pd.DataFrame, sets: dict[str, Features]) -> None:
    assert len(frame) == (len(NAMES) + 2) * 2
    parts = split_selection(sets["train"], SETTINGS.share)
    left_out, crossing, seen = HeldOutClasses.of(*parts), cross_features(parts[1]), {}
    for name in NAMES:
        rows = frame[frame["method"] == name].set_index("ood")
        detector = METHODS[name].fit(parts[0])
        far, crossed = (auroc(detector.score(parts[1]), detector.score(each)) for each in (proxy(), crossing))
        seen[name] = (far + crossed + left_out.aurocs({"": METHODS[name]})[""]) / 3
        assert rows["scrambled_auroc"].tolist() == pytest.approx([far] * 2)
        assert rows["proxy_auroc"].tolist() == pytest.approx([seen[name]] * 2)
        assert set(rows["group"]) == {"newer" if name in NEWER else "paper"}
        whole = METHODS[name].fit(sets["train"])
        wanted = auroc(whole.score(sets["inside"]), whole.score(sets["near"]))
        assert rows.loc["near", "auroc"] == pytest.approx(wanted)
    best = sorted(seen, key=lambda name: -seen[name])[:2]
    assert set(frame.loc[frame["chosen"], "method"]) == {*best, "gen"} & {*NAMES, "gen"}
    for name, fuse in (("auto", 2), ("auto, best one", 1)):
        detector = Method(score=Auto(candidates=NAMES, fuse=fuse)).fit(sets["train"], proxy=[proxy()])
        wanted = auroc(detector.score(sets["inside"]), detector.score(sets["far"]))
        row = frame[(frame["method"] == name) & (frame["ood"] == "far")]
        assert row["auroc"].item() == pytest.approx(wanted)
        assert row["proxy_auroc"].isna().all()


def test_regret_is_what_was_missed(frame: pd.DataFrame) -> None:
    table = study_auto.compute_regret(frame.assign(network="net")).set_index("ood")
    assert list(table.index) == ["near", "far", "mean"]
    singles = frame[frame["method"].isin(NAMES)]
    for place in ("near", "far", "mean"):
        part = singles if place == "mean" else singles[singles["ood"] == place]
        real = part.groupby("method")["auroc"].mean()
        seen = part.groupby("method")["proxy_auroc"].mean()
        paper = [name for name in NAMES if name not in NEWER]
        assert table.loc[place, "rank_all"] == pytest.approx(spearmanr(seen, real).statistic)
        assert table.loc[place, "rank_paper"] == pytest.approx(spearmanr(seen[paper], real[paper]).statistic)
        mine = frame[frame["method"] == "auto"]
        got = mine["auroc"].mean() if place == "mean" else mine.loc[mine["ood"] == place, "auroc"].item()
        assert table.loc[place, "regret_auto_paper"] == pytest.approx(real[paper].max() - got)
        assert table.loc[place, "regret_auto_all"] == pytest.approx(real.max() - got)
        assert table.loc[place, "best_all"] == real.idxmax()
    shown = study_auto.tabulate_selection(frame.assign(network="net"), digits=2)
    assert shown.loc[2, "OOD set"] == "mean"
    assert float(shown.loc[2, "regret"]) == pytest.approx(100 * table.loc["mean", "regret_auto_paper"], abs=0.006)
    name, value = shown.loc[0, "best of all"].partition(",")[0].split()  # others may be tied
    assert (name, float(value)) == (
        table.loc["near", "best_all"],
        pytest.approx(100 * table.loc["near", "auroc_best_all"], abs=0.006),
    )
