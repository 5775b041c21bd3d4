"""Several methods on the same images: what is shared changes nothing but the cost."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data import features, panel
from oodshape import METHODS, Features, InputError, Method
from oodshape.features.apart import Apart, bank_of
from oodshape.features.moments import NAMES, Moments
from oodshape.features.statistics import FeatureStats
from oodshape.methods import class_panel
from oodshape.methods.auto import CANDIDATES
from oodshape.methods.class_panel import ClassPanel, classes_left_out
from oodshape.methods.scores.neighbours import Guide
from oodshape.methods.together import fit_all, fit_each, score_each
from oodshape.networks.head import Head

SINGLE = {name: METHODS[name] for name in CANDIDATES}


def same(found: Features, wanted: Features) -> None:
    """The sums of both are those of the same images."""
    sums = Moments.of(wanted, NAMES).parts
    assert found.moments(NAMES).parts.keys() == sums.keys()
    for name, part in sums.items():
        np.testing.assert_allclose(found.moments(NAMES).parts[name], part, rtol=1e-6, atol=1e-6, err_msg=name)
    kept, stats = found.stats, FeatureStats.of(wanted)
    assert (kept.n, kept.head) == (stats.n, stats.head)
    np.testing.assert_array_equal(kept.counts, stats.counts)
    np.testing.assert_allclose(kept.impacts, stats.impacts, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("half", [False, True])
def test_sums_apart_are_those_of_each_part_for_itself(half: bool) -> None:
    data = features(400, half=half)
    left_out = classes_left_out(data.head)
    stays = ~left_out
    apart = Apart(data, NAMES, left_out)
    plain = features(400, half=half)
    rows = np.flatnonzero(stays[plain.predictions.numpy()])
    assert 0 < len(rows) < 400
    smaller = Head(plain.head.weight[stays], plain.head.bias[stays])
    same(apart.inside(), plain[rows].with_head(smaller))
    same(apart.whole(), plain)


def test_the_head_is_multiplied_once_for_all_sums_and_all_plain_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    product = Head.logits
    monkeypatch.setattr(Head, "logits", lambda self, z: seen.append(len(z)) or product(self, z))
    data = features(400)
    Apart(data, NAMES, classes_left_out(data.head)).whole()
    assert sum(seen) == 400
    plain = {name: METHODS[name] for name in ("msp", "mls", "energy", "gen", "gradnorm", "klm", "fdbd", "cadref")}
    fitted = fit_all(plain, features(400))
    seen.clear()
    score_each(fitted, features(100, seed=1))
    assert sum(seen) == 100


def test_a_bank_read_afterwards_is_that_of_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    z = np.repeat(np.eye(6), 20, axis=0)
    data = Features.from_arrays(z, (np.eye(6), None), identities=np.arange(120) // 3)  # thrice the same image
    wanted = Moments.of(data, frozenset(["bank"])).parts
    for name in ("bank", "apart"):
        monkeypatch.setattr(f"oodshape.features.{name}.BANK", 25)
    keys, rows = bank_of(data)
    assert len(keys) == 25
    order = np.argsort(wanted["bank_keys"])[:25]
    np.testing.assert_array_equal(keys, wanted["bank_keys"][order])
    np.testing.assert_array_equal(rows, wanted["bank"][order])


def test_scores_together_are_those_of_each_alone() -> None:
    train, test = features(400), features(100, seed=1)
    fitted = fit_all(SINGLE, train)
    assert list(fitted) == list(SINGLE)
    found = score_each(fitted, test)
    for name, detector in fitted.items():
        torch.testing.assert_close(found[name], detector.score(test), rtol=1e-5, atol=1e-5)


def test_one_that_refuses_leaves_the_others_alone() -> None:
    data = features(300)
    negative = Features.from_arrays(-next(iter(data.chunks()))[1].numpy() - 1, (data.head.weight, data.head.bias))
    found = dict(fit_each({"bfact": METHODS["bfact"], "energy": METHODS["energy"]}, negative))
    assert isinstance(found["bfact"], InputError)
    assert not isinstance(found["energy"], InputError)
    with pytest.raises(InputError):
        fit_all({"bfact": METHODS["bfact"]}, negative)


def test_two_methods_share_a_bank_of_the_same_images_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted(n: int) -> dict:
        return fit_all({name: METHODS[name] for name in ("knn", "nnguide")}, features(n))

    one, other = fitted(300), fitted(200)
    guide: Guide = one["nnguide"].scorer
    assert guide.bank is one["knn"].scorer.bank
    assert guide.shares_bank(one["knn"].scorer)
    assert not guide.shares_bank(other["knn"].scorer)
    monkeypatch.setattr(Guide, "of", lambda self, seen: pytest.fail("the bank was looked at twice"))
    score_each(one, features(50, seed=1))
    with pytest.raises(pytest.fail.Exception, match="twice"):
        score_each({"knn": other["knn"], "nnguide": one["nnguide"]}, features(50, seed=1))


def test_sums_are_given_back_when_no_method_needs_them() -> None:
    train, held = features(300), []
    for _ in fit_each({name: METHODS[name] for name in ("energy", "knn", "mds++", "vim")}, train):
        held.append(set(train._moments.parts))
    assert {"second", "bank"} <= held[0]
    assert "second" not in held[2]
    assert "unit_second" not in held[2]


def test_the_second_panel_looks_at_few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_panel, "MOST_IMAGES", 100)
    near = ClassPanel.of(features(300), features(200, seed=1))
    assert len(near.inside) + len(near.outside) == 100


def test_auto_collects_no_statistics_of_images_that_it_does_not_fit_on() -> None:
    train = features(400)
    Method(score=METHODS["auto"].score).fit(train, panel=[panel()])
    assert train._stats is None
