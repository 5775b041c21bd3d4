"""The largest probability: its log does not saturate, and the paper's settings keep the probability itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_strategy

from oodshape import METHODS, Features, Method, auroc, paper_methods
from oodshape.methods.scores.logits import LogSoftmax, MaxSoftmax
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.slots import Shaper

NETWORK = "cifar10_densenet101"


@settings(max_examples=100)
@given(array_strategy(np.float32, (5, 4), elements=st.integers(-40, 40).map(float)))
def test_it_is_the_log_of_the_largest_probability(logits: np.ndarray) -> None:
    exact = logits.astype(np.float64)
    above = np.sort(exact - exact.max(axis=1, keepdims=True), axis=1)[:, :-1]  # all but one of the largest
    wanted = -np.log1p(np.exp(above).sum(axis=1))
    np.testing.assert_allclose(LogSoftmax()(torch.from_numpy(logits)).numpy(), wanted, rtol=1e-5, atol=0)


def test_leads_that_are_all_a_probability_of_1_keep_their_order() -> None:
    lead = torch.arange(17.0, 100.0)
    logits = torch.stack([lead, torch.zeros_like(lead), torch.zeros_like(lead)], dim=1)
    assert (MaxSoftmax()(logits).diff() > 0).sum() == 0
    assert (LogSoftmax()(logits).diff() > 0).all()


def test_the_paper_s_settings_keep_the_probability() -> None:
    for name in ("msp", "optfs-msp"):
        assert METHODS[name].score == LogSoftmax()
        for id_set in ("imagenet", "cifar10", "cifar100"):
            assert paper_methods(id_set)[name].score == MaxSoftmax()


def test_people_read_a_probability() -> None:
    assert LogSoftmax().said(float(np.log(0.25))) == "-1.38629 (a probability of 0.25)"
    assert MaxSoftmax().said(0.25) == "0.25"


@pytest.mark.parametrize(("shape", "gain"), [(None, 0.04), (OptFS(), 0.24)], ids=["msp", "optfs-msp"])
def test_no_ties_are_left_on_a_real_network(shape: Shaper | None, gain: float, real_features) -> None:
    (real,) = (each for each in real_features if each["name"] == NETWORK)
    train, inside = (Features.from_arrays(real[part], real["head"]) for part in ("train", "id"))
    outside = Features.from_arrays(real["ood"]["places32"], real["head"])
    slots = {} if shape is None else {"shape": shape}
    plain, log = (Method(score=score, **slots).fit(train) for score in (MaxSoftmax(), LogSoftmax()))
    before, after = plain.score(inside), log.score(inside)
    assert (before == 1).float().mean() > 0.25
    assert len(after.unique()) > 0.99 * len(after)
    gained = auroc(after, log.score(outside)) - auroc(before, plain.score(outside))
    assert 100 * gained > gain
