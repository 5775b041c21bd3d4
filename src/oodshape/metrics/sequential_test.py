"""RateTest: an anytime-valid test of how often a stream says yes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError, check_fraction
from oodshape.core.values import AtLeast, Sizes, Value
from oodshape.metrics.beta import bisect, log_beta

Array = NDArray[np.float64]
Count = Annotated[int, AtLeast(0)]
ODDS = np.array([1.25, 1.6, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0])  # of the alternatives, over those of the rate allowed


class RateTest(Value):
    """A bet that a stream of yes and no says yes more often than `allowed`; its wealth is the evidence.

    Each alternative rate multiplies its share of the wealth by the likelihood ratio; shares flow back a little at
    every step (by 1 / (t + 2)), so that a change after a long quiet time is still found soon. While the rate stays
    at most the one allowed, the wealth does not grow on average, and with probability 1 - delta it never reaches
    1 / delta (Ville's inequality), whenever one looks.
    """

    allowed: float
    delta: float
    seen: Count = 0
    hits: Count = 0
    log_wealth: float = 0.0
    highest: float = 0.0  # of log_wealth
    alarm: int | None = None  # the number of the image, from 1, at which the wealth reached 1 / delta
    shares: Annotated[Array, Sizes("S")] | None = None  # of the wealth: first what is not bet, then each alternative's
    # the largest log likelihood ratio over all beginnings, by alternative
    climbs: Annotated[Array, Sizes("A"), AtLeast(0)] | None = None
    starts: Annotated[NDArray[np.int64], Sizes("A"), AtLeast(0)] | None = None  # those beginnings

    def __post_init__(self) -> None:
        check_fraction("allowed", self.allowed)
        check_fraction("delta", self.delta)
        if self.hits > self.seen:
            raise InputError(f"{self.hits} answers of {self.seen} cannot be yes")
        reached = self.highest >= -math.log(self.delta)
        if self.alarm is not None and not (reached and 1 <= self.alarm <= self.seen):
            raise InputError(f"an alarm at {self.alarm} of {self.seen} with an evidence of exp({self.highest:g})")
        if self.highest < max(self.log_wealth, 0.0) or (reached and self.alarm is None):
            raise InputError(f"the highest evidence exp({self.highest:g}) does not fit the rest")
        if self.shares is not None and not (self.shares.min() >= 0 and abs(self.shares.sum() - 1) < 1e-6):
            raise InputError("the shares of the wealth do not add up to 1")
        for name, extra in (("shares", 1), ("climbs", 0), ("starts", 0)):
            array = getattr(self, name)
            if array is not None and len(array) != len(ODDS) + extra:
                raise InputError(f"{name} has {len(array)} values for {len(ODDS)} alternatives")
        if self.starts is not None and self.starts.max() > self.seen:
            raise InputError(f"a beginning at {self.starts.max()} of {self.seen}")

    def after(self, answers: Iterable[bool]) -> RateTest:
        """The test after some more answers."""
        rates = self.allowed * ODDS / (1 - self.allowed + self.allowed * ODDS)
        factors = np.log(rates / self.allowed), np.log((1 - rates) / (1 - self.allowed))
        yes, no = (np.concatenate([[1.0], np.exp(factor)]) for factor in factors)
        prior = np.concatenate([[0.5], np.full(len(ODDS), 0.5 / len(ODDS))])
        shares = prior if self.shares is None else self.shares
        climbs = np.zeros(len(ODDS)) if self.climbs is None else self.climbs
        starts = np.full(len(ODDS), self.seen) if self.starts is None else self.starts
        seen, hits, log_wealth, highest, alarm = self.seen, self.hits, self.log_wealth, self.highest, self.alarm
        for answer in answers:
            shares = shares * (yes if answer else no)
            total = float(shares.sum())
            back = 1 / (seen + 2)
            shares = (1 - back) * shares / total + back * prior
            climbs = climbs + factors[0 if answer else 1]
            seen, hits, log_wealth = seen + 1, hits + bool(answer), log_wealth + math.log(total)
            starts, climbs = np.where(climbs > 0, starts, seen), np.maximum(climbs, 0.0)
            highest = max(highest, log_wealth)
            if alarm is None and log_wealth >= -math.log(self.delta):
                alarm = seen
        return RateTest(
            self.allowed, self.delta, seen, hits, log_wealth, highest, alarm, shares, climbs, starts.astype(np.int64)
        )

    @property
    def since(self) -> int | None:
        """The number of the image, from 1, since which a higher rate explains the stream best; None: no such time."""
        if self.climbs is None or self.starts is None or not self.climbs.max() > 0:
            return None
        return int(self.starts[int(self.climbs.argmax())]) + 1

    @property
    def rate(self) -> float:
        return self.hits / self.seen if self.seen else math.nan

    def interval(self) -> tuple[float, float]:
        """A confidence sequence for the rate, if it is constant: at every time at once with probability 1 - delta."""
        if not self.seen:
            return 0.0, 1.0
        no = self.seen - self.hits
        mixture = log_beta(self.hits + 0.5, no + 0.5) - log_beta(0.5, 0.5)

        def outside(rate: float) -> float:
            """The log of the evidence against a rate, less what delta asks for."""
            likelihood = (self.hits * math.log(rate) if self.hits else 0.0) + (no * math.log1p(-rate) if no else 0.0)
            return float(mixture - likelihood + math.log(self.delta))

        inside = min(max(self.rate, 1e-12), 1 - 1e-12)
        low = bisect(outside, 1e-15, inside) if self.hits and outside(1e-15) > 0 else 0.0
        high = bisect(outside, inside, 1 - 1e-15) if no and outside(1 - 1e-15) > 0 else 1.0
        return low, high
