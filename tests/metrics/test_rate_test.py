"""The test of a rate: fair bets, few false alarms, intervals that cover at all times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oodshape.metrics.sequential_test import ODDS, RateTest


def test_one_step_by_hand() -> None:
    test = RateTest(allowed=0.1, delta=0.01)
    rates = 0.1 * ODDS / (0.9 + 0.1 * ODDS)
    after = test.after([True])
    assert math.exp(after.log_wealth) == pytest.approx(0.5 + 0.5 * np.mean(rates / 0.1))
    quiet = test.after([False])
    assert math.exp(quiet.log_wealth) == pytest.approx(0.5 + 0.5 * np.mean((1 - rates) / 0.9))
    # at the rate allowed the bet is fair, in the first step and after any history
    for history in ([], [True, False, True]):
        base = test.after(history)
        up, down = base.after([True]).log_wealth, base.after([False]).log_wealth
        assert 0.1 * math.exp(up) + 0.9 * math.exp(down) == pytest.approx(math.exp(base.log_wealth))
        assert math.exp(up) > math.exp(down)  # so that a lower rate loses


def test_a_fair_stream_at_the_rate_allowed() -> None:
    rng, delta = np.random.default_rng(1), 0.1
    alarms = [RateTest(0.1, delta).after(rng.random(500) < 0.1).alarm for _ in range(400)]
    assert 0 < np.mean([alarm is not None for alarm in alarms]) <= delta


def test_the_confidence_sequence_covers_at_all_times() -> None:
    rng, missed = np.random.default_rng(4), 0
    for _ in range(100):
        test, ever = RateTest(allowed=0.1, delta=0.1), False
        for block in (rng.random(500) < 0.2).reshape(20, 25):
            test = test.after(block)
            low, high = test.interval()
            assert 0 <= low <= test.rate <= high <= 1
            ever |= not low <= 0.2 <= high
        missed += ever
    assert missed / 100 <= 0.1
    assert high - low < 0.15
    assert RateTest(0.1, 0.1).interval() == (0.0, 1.0)
    assert RateTest(0.1, 0.1).after([False] * 50).interval()[0] == 0.0
    assert RateTest(0.1, 0.1).after([True] * 50).interval()[1] == 1.0
