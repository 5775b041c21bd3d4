"""The figures that the paper authors' own code gives on the same real features, with the settings of each."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from oodshape import Features, auroc, authors_methods, fpr_at_tpr, paper_methods
from oodshape.methods.odin import Odin


def test_every_method_on_every_network(shared, real_features) -> None:
    """With the paper's settings; OptFS (E) also with those of the authors' code, theta's norm of 1000."""
    compared = 0
    for real in real_features:
        oracle = json.loads((shared / "oracle" / f"{real['name']}.json").read_text())
        train = Features.from_arrays(real["train"], real["head"])
        inside = Features.from_arrays(real["id"], real["head"], labels=real["labels"])
        outside = {name: Features.from_arrays(z, real["head"]) for name, z in real["ood"].items()}
        assert 100 * inside.accuracy == pytest.approx(oracle["id_accuracy"], abs=0.051)
        methods = paper_methods(oracle["settings"])
        methods["odin(eps=0)"] = replace(methods["odin"], perturb=Odin(eps=0.0))
        methods["optfs-e(norm=1000)"] = authors_methods(oracle["settings"])["optfs-e"]
        for name, figures in oracle["results"].items():
            detector = methods[name].fit(train)
            id_scores = detector.score(inside)
            for ood, wanted in figures.items():
                if ood == "average":
                    continue
                ood_scores = detector.score(outside[ood])
                where = (real["name"], name, ood)
                assert 100 * auroc(id_scores, ood_scores) == pytest.approx(wanted["auroc"], abs=0.05), where
                assert 100 * fpr_at_tpr(id_scores, ood_scores) == pytest.approx(wanted["fpr95"], abs=0.5), where
                compared += 1
        theta = methods["optfs-e"].fit(train).shape.theta
        np.testing.assert_allclose(theta, oracle["optfs"]["theta"], rtol=1e-4, atol=1e-5)
    assert compared == 14 * (4 + 3 + 3)


def test_the_limits_of_the_code_on_cifar_are_values(real_features) -> None:
    """Its class sets `quantile` to False whatever it is told: 0.6 and 0.95 are then no percentiles."""
    real = next(each for each in real_features if each["name"].startswith("cifar10"))
    train, inside = (Features.from_arrays(real[name], real["head"]) for name in ("train", "id"))
    weight, bias = real["head"]
    wanted = {"paper": (92.1, 45.3), "code": (94.2, 31.9)}  # AUROC and FPR95
    for name, table in (("paper", paper_methods), ("code", authors_methods)):
        detector = table("cifar10")["vra-p"].fit(train)
        scores = [detector.score(Features.from_arrays(z, real["head"])) for z in real["ood"].values()]
        found = [np.mean([100 * measure(detector.score(inside), s) for s in scores]) for measure in (auroc, fpr_at_tpr)]
        assert found == pytest.approx(wanted[name], abs=0.06)
    z = real["id"][:5].astype(np.float64)
    logits = np.where(z < 0.6, 0.0, np.minimum(z, 0.95)) @ weight.T.astype(np.float64) + bias
    np.testing.assert_allclose(detector.score(inside)[:5], np.log(np.exp(logits).sum(axis=1)), rtol=1e-4)
