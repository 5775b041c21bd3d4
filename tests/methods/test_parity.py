"""The figures that the paper authors' own code gives on the same real features."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from oodshape import Features, Method, auroc, fpr_at_tpr, paper_methods
from oodshape.methods.odin import Odin
from oodshape.methods.shapes.optfs import OptFS


def test_every_method_on_every_network(shared, real_features) -> None:
    compared = 0
    for real in real_features:
        oracle = json.loads((shared / "oracle" / f"{real['name']}.json").read_text())
        train = Features.from_arrays(real["train"], real["head"])
        inside = Features.from_arrays(real["id"], real["head"], labels=real["labels"])
        outside = {name: Features.from_arrays(z, real["head"]) for name, z in real["ood"].items()}
        assert 100 * inside.accuracy == pytest.approx(oracle["id_accuracy"], abs=0.051)
        methods = paper_methods(oracle["settings"])
        methods["odin(eps=0)"] = replace(methods["odin"], perturb=Odin(eps=0.0))
        methods["optfs-e(norm=1000)"] = Method(shape=OptFS(norm=1000.0))
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
