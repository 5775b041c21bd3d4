"""Auto: the choice by a panel, p-values, the fallback, files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data import arrays, features
from oodshape import METHODS, Detector, Features, InputError, Method, auroc
from oodshape.auto import CANDIDATES, Auto, Fusion, Member, split
from oodshape.heads import Linear
from oodshape.scores import Energy
from oodshape.shaping import Identity, ReAct

AUTO = Method(score=Auto())


def panel(n: int = 200) -> Features:
    """Features without content: the values of each image shuffled among its features."""
    z, head = arrays(n, seed=9)
    return Features.from_arrays(np.random.default_rng(0).permuted(z, axis=1), head)


def member(reference: list[float]) -> Member:
    return Member("energy", Identity(), Linear(), Energy(), np.array(reference))


def test_parts_are_disjoint_and_mixed() -> None:
    z, head = arrays(101)
    z[:, 0] = np.arange(101)
    fitting, selection = split(Features.from_arrays(z, head), 0.25)
    numbers = [{int(row[0]) for _, raw in part.chunks() for row in raw} for part in (fitting, selection)]
    assert numbers[1] == set(range(3, 101, 4))
    assert numbers[0] | numbers[1] == set(range(101))
    assert not numbers[0] & numbers[1]
    with pytest.raises(InputError, match="at least 20 there, got 10 of 40"):
        split(features(40), 0.25)


def test_p_values_are_shares_and_fall_below_the_lowest() -> None:
    one = member(list(range(100)))
    log_p = one.log_p(torch.tensor([10.0, 50.0, 50.5, 99.0, 500.0]))
    torch.testing.assert_close(log_p.exp(), torch.tensor([11.0, 51.0, 51.5, 100.0, 100.0]) / 101)
    # the lowest tenth, 0..9, lies 5.5 below its limit 10 on average
    low = one.log_p(torch.tensor([10.0 - 5.5, -45.0]))
    torch.testing.assert_close(low, torch.log(torch.tensor(11 / 101)) - torch.tensor([1.0, 10.0]))
    steps = one.log_p(torch.linspace(-50, 99, 3000))
    assert (steps.diff() > 0).all()


def test_equal_id_scores_stay_finite() -> None:
    log_p = member([1.0] * 50).log_p(torch.tensor([0.0, 1.0, 2.0]))
    assert torch.isfinite(log_p).all()
    assert log_p.argsort().tolist()[0] == 0


def test_the_best_candidates_are_chosen_and_the_fusion_is_fisher_s() -> None:
    train, images, test = features(400), panel(), features(50, seed=1)
    detector = AUTO.fit(train, panel=[images])
    fusion = detector.scorer
    assert isinstance(fusion, Fusion)
    fitting, selection = split(train, 0.25)
    values = {}
    for name in CANDIDATES:
        single = METHODS[name].fit(fitting)
        values[name] = auroc(single.score(selection), single.score(images))
    assert dict(fusion.ranking) == pytest.approx(values)
    best = sorted(values, key=lambda name: -values[name])[:5]
    assert [part.name for part in fusion.members] == best
    wanted = sum(part.log_p(METHODS[part.name].fit(fitting).score(test)) for part in fusion.members)
    torch.testing.assert_close(detector.score(test), wanted)
    assert str(fusion).startswith(f"chosen: {best[0]}, ")


def test_one_is_the_plain_method() -> None:
    train, test = features(400), features(50, seed=1)
    detector = Method(score=Auto(candidates=("energy", "msp"), fuse=1)).fit(train, panel=[panel()])
    (chosen,) = detector.scorer.members
    assert chosen.name == detector.scorer.ranking[0][0]
    wanted = METHODS[chosen.name].fit(split(train, 0.25)[0]).score(test)
    torch.testing.assert_close(detector.score(test), wanted)


def test_without_a_panel_it_is_optfs_and_says_so() -> None:
    train, test = features(400), features(50, seed=1)
    with pytest.warns(UserWarning, match=r"no panel .* falls back to OptFS \(E\)"):
        detector = AUTO.fit(train)
    torch.testing.assert_close(detector.score(test), METHODS["optfs-e"].fit(split(train, 0.25)[0]).score(test))


def test_saved_loaded_calibrated(tmp_path) -> None:
    detector = AUTO.fit(features(400), panel=[panel()]).calibrate(features(200, seed=3))
    detector.save(tmp_path / "auto.safetensors")
    loaded = Detector.load(tmp_path / "auto.safetensors")
    test = features(60, seed=2)
    assert loaded == detector
    assert hash(loaded) == hash(detector)
    assert str(loaded.scorer) == str(detector.scorer)
    for mine, theirs in zip(loaded.decide(test), detector.decide(test), strict=True):
        assert torch.equal(mine, theirs)
    parts = torch.cat([detector.score(test[:20]), detector.score(test[20:])])
    torch.testing.assert_close(parts, detector.score(test), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Auto(fuse=0), "fuse must be at least 1"),
        (lambda: Auto(share=25), "did you mean 0.25"),
        (lambda: Auto(candidates=("magic",)).methods(), "no method is called 'magic'"),
        (lambda: Method(score=Auto(), shape=ReAct()), "Auto reads the features themselves"),
        (lambda: AUTO.fit(features(400).stats), "give fit the Features"),
    ],
)
def test_bad_settings_are_one_clear_error(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
