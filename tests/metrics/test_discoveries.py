"""Deciding about many: the rule itself, what it cannot do, and the law of the false discovery rate on real features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oodshape import METHODS, Features, InputError
from oodshape.metrics.conformal import false_discoveries, fewest_flagged
from oodshape.metrics.conformal import p_values as conformal

P_VALUES = st.lists(st.floats(0.001, 1), min_size=1, max_size=30)


@given(P_VALUES, st.sampled_from([0.05, 0.1, 0.3]))
@settings(max_examples=200)
def test_it_is_the_step_up_rule(p_values: list[float], level: float) -> None:
    """The largest k whose k-th smallest p-value is at most level k / m, tried one by one."""
    m, ranked = len(p_values), sorted(p_values)
    k = max((k for k in range(1, m + 1) if ranked[k - 1] * m <= level * k), default=0)
    flagged = false_discoveries(p_values, level)
    assert flagged.tolist() == [k > 0 and value <= ranked[k - 1] for value in p_values]


@given(P_VALUES, st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_does_not_matter(p_values: list[float], chance) -> None:
    order = list(range(len(p_values)))
    chance.shuffle(order)
    moved = false_discoveries([p_values[i] for i in order])
    assert moved.tolist() == false_discoveries(p_values)[order].tolist()


def test_storey_by_hand() -> None:
    # 2 of 4 p-values above 1/2: (1 + 2) / (1/2) = 6 familiar; 0.02 * 6 <= 0.1 * 2
    assert false_discoveries([0.02, 0.02, 0.6, 0.9], 0.1, storey=True).tolist() == [True, True, False, False]
    # none above: 2 of 4 are taken for familiar, and 0.15 * 2 <= 0.1 * 3 flags three; without it 0.15 * 4 > 0.3
    few = [0.01, 0.14, 0.15, 0.45]
    assert false_discoveries(few, 0.1, storey=True).sum() == 3
    assert false_discoveries(few, 0.1).sum() == 1


@pytest.mark.parametrize(("m", "level", "n"), [(1000, 0.1, 499), (100, 0.2, 99), (7, 0.1, 9), (1, 0.5, 1000)])
def test_fewest_is_the_border(m: int, level: float, n: int) -> None:
    """With the smallest p-value that n images can give: as many are flagged, one fewer is not."""
    k = fewest_flagged(m, level, n)
    if k <= m:
        values = np.ones(m)
        values[:k] = 1 / (n + 1)
        assert false_discoveries(values, level).sum() == k
    values = np.ones(m)
    values[: min(k - 1, m)] = 1 / (n + 1)
    assert false_discoveries(values, level).sum() == 0


@pytest.mark.parametrize("storey", [False, True])
def test_the_law_on_real_features(real_features: list[dict], storey: bool) -> None:
    """1,000 splits of real images: of those flagged, at most 10 % are familiar on average; and many are found."""
    network = real_features[0]
    detector = METHODS["optfs-e"].fit(Features.from_arrays(network["train"], head=network["head"]))
    inside = detector.score(Features.from_arrays(network["id"], head=network["head"])).numpy()
    ood = network["ood"]["svhn" if "svhn" in network["ood"] else min(network["ood"])]
    outside = detector.score(Features.from_arrays(ood, head=network["head"])).numpy()
    rng = np.random.default_rng(0)
    shares, found = [], []
    for _ in range(1000):
        familiar = rng.permutation(inside)[:1200]
        strange = rng.choice(outside, 200, replace=False)
        values = conformal(
            np.sort(familiar[:1000]), torch.from_numpy(np.concatenate([familiar[1000:], strange]))
        ).numpy()
        flagged = false_discoveries(values, 0.1, storey=storey)
        shares.append(flagged[:200].sum() / max(flagged.sum(), 1))
        found.append(flagged[200:].mean())
    assert np.mean(shares) <= 0.1 + 3 * np.std(shares) / np.sqrt(1000)
    assert np.mean(found) > 0.1


@pytest.mark.parametrize("bad", [[0.0, 0.5], [0.5, 1.5], [np.nan], []])
def test_what_is_no_p_value_is_refused(bad: list[float]) -> None:
    with pytest.raises(InputError, match="p_values|p-values"):
        false_discoveries(bad)
