"""The study of auto against a naive computation: rank correlations, the best in hindsight, regrets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from data import arrays, features, proxy
from oodshape import METHODS, Auto, Classifier, Features, Method, auroc, proxy_features
from oodshape.features.proxy import crossed_features
from oodshape.images.datasets.cifar_mnist_svhn import cifar
from oodshape.methods.auto import split
from oodshape.methods.held_out_classes import HeldOutClasses
from oodshape.methods.records import RECORDS
from oodshape.networks import zoo
from oodshape.studies.auto import compare_selection, compute_regret, tabulate_selection
from oodshape.studies.network import load_folder
from small_study import network

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
    return compare_selection(network(made, methods=methods, proxy=(proxy(),)), SETTINGS)


def test_rows_are_those_of_the_pieces(frame: pd.DataFrame, sets: dict[str, Features]) -> None:
    assert len(frame) == (len(NAMES) + 2) * 2
    parts = split(sets["train"], SETTINGS.share)
    left_out, crossing, seen = HeldOutClasses.of(*parts), crossed_features(parts[1]), {}
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
    table = compute_regret(frame.assign(network="net")).set_index("ood")
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
    shown = tabulate_selection(frame.assign(network="net"), digits=2)
    assert shown.loc[2, "OOD set"] == "mean"
    assert float(shown.loc[2, "regret"]) == pytest.approx(100 * table.loc["mean", "regret_auto_paper"], abs=0.006)
    name, value = shown.loc[0, "best of all"].partition(",")[0].split()  # others may be tied
    assert (name, float(value)) == (
        table.loc["near", "best_all"],
        pytest.approx(100 * table.loc["near", "auroc_best_all"], abs=0.006),
    )


def test_auto_on_a_real_network(shared: Path) -> None:
    """On the CIFAR-10 DenseNet the choice is not behind the best method of the paper in hindsight."""
    real = load_folder(shared / "features" / "cifar10_densenet101")
    entry = zoo.model_entry("cifar10-densenet101")
    classifier = Classifier(zoo.build(entry.name, shared / "weights" / "densenet101_cifar10.safetensors"))
    images = cifar(shared / "data" / "cifar10", train=True)
    scrambled = proxy_features(classifier, images, entry.native, size=100, progress=False)
    names = [name for name, method in METHODS.items() if name not in NEWER and not method.wants_proxy]
    methods = {name: METHODS[name] for name in names}
    made = replace(real, proxy=tuple(scrambled), methods=methods)
    table = compute_regret(compare_selection(made).assign(network="net"))
    mean = table.set_index("ood").loc["mean"]
    assert mean["auroc_best_paper"] > 0.94
    assert mean["regret_auto_paper"] < 0.005
    assert mean["rank_paper"] > 0.6
