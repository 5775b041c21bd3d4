"""Watch: does the rejection rate of a stream still agree with the promise? An anytime-valid test on p-values.

A threshold calibrated on n images rejects new images like them at a rate that is itself random: it has the law
Beta(k, n + 1 - k), k = floor(alpha (n + 1)), and the mean alpha or less. The alarm must not be about the luck of the
calibration, so the test asks whether the rate lies above a high quantile of that law, the rate allowed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln
from scipy.stats import beta

from oodshape.core import files
from oodshape.core.errors import InputError, check_fraction
from oodshape.core.values import Value, decode, encode

Array = NDArray[np.float64]
ODDS = np.array([1.25, 1.6, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0])  # of the alternatives, over those of the rate allowed
MIDDLE = 0.5  # half of the images like the calibration's have a p-value up to this


@dataclass(frozen=True, eq=False, repr=False)
class RateTest(Value):
    """A bet that a stream of yes and no says yes more often than `allowed`; its wealth is the evidence.

    Each alternative rate multiplies its share of the wealth by the likelihood ratio; shares flow back a little at
    every step (by 1 / (t + 2)), so that a change after a long quiet time is still found soon. While the rate stays
    at most the one allowed, the wealth does not grow on average, and with probability 1 - delta it never reaches
    1 / delta (Ville's inequality), whenever one looks.
    """

    allowed: float
    delta: float
    seen: int = 0
    hits: int = 0
    log_wealth: float = 0.0
    highest: float = 0.0  # of log_wealth
    alarm: int | None = None  # the number of the image, from 1, at which the wealth reached 1 / delta
    shares: Array | None = None  # of the wealth: first what is not bet, then each alternative's
    climbs: Array | None = None  # the largest log likelihood ratio over all beginnings, by alternative
    starts: NDArray[np.int64] | None = None  # those beginnings

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

    def __add__(self, other: RateTest) -> RateTest:
        """Both streams as one: their wealths multiply, since images are independent; beginnings are forgotten.

        An alarm of either stays one.
        """
        if (self.allowed, self.delta) != (other.allowed, other.delta):
            raise InputError("two watches add up only with the same alpha, delta and calibration size")
        wealth = self.log_wealth + other.log_wealth
        alarm = self.seen + other.seen if wealth >= -math.log(self.delta) else None
        early = [test.alarm for test in (self, other) if test.alarm is not None]
        highest = max(self.highest, other.highest, wealth)
        return RateTest(
            self.allowed,
            self.delta,
            self.seen + other.seen,
            self.hits + other.hits,
            wealth,
            highest,
            min(early) if early else alarm,
        )

    @property
    def since(self) -> int | None:
        """The number of the image, from 1, since which a higher rate explains the stream best; None: no such time."""
        if self.climbs is None or self.starts is None or not self.climbs.max() > 0:
            return None
        return int(self.starts[int(self.climbs.argmax())]) + 1

    @property
    def rate(self) -> float:
        """The share of yes."""
        return self.hits / self.seen if self.seen else math.nan

    def interval(self) -> tuple[float, float]:
        """A confidence sequence for the rate, if it is constant: at every time at once with probability 1 - delta."""
        if not self.seen:
            return 0.0, 1.0
        no = self.seen - self.hits
        mixture = betaln(self.hits + 0.5, no + 0.5) - betaln(0.5, 0.5)

        def outside(rate: float) -> bool:
            likelihood = (self.hits * math.log(rate) if self.hits else 0.0) + (no * math.log1p(-rate) if no else 0.0)
            return bool(mixture - likelihood >= -math.log(self.delta))

        inside = min(max(self.rate, 1e-12), 1 - 1e-12)
        low = 0.0 if not self.hits else _boundary(1e-15, inside, outside)
        high = 1.0 if not no else _boundary(1 - 1e-15, inside, outside)
        return low, high


@dataclass(frozen=True, eq=False, repr=False)
class Watch(Value):
    """The state of watching one stream: `watch = watch.after(p_values)`, then `str(watch)`.

    Two tests share delta: one of the rejection rate, and one of the share of p-values up to 1/2, which moves when
    scores sink though few images are rejected yet. The chance that a stream of images like those of the
    calibration ever raises an alarm is at most delta, the calibration's own luck included.

    >>> watch = Watch.begin(alpha=0.05, n_calibration=999).after([0.5, 0.8, 0.3, 0.9])
    >>> watch.alarm, round(watch.rejection.allowed, 3)
    (False, 0.071)
    """

    alpha: float
    n_calibration: int
    delta: float
    rejection: RateTest
    middle: RateTest

    @classmethod
    def begin(cls, *, alpha: float, n_calibration: int, delta: float = 0.01) -> Watch:
        """A watch that has seen nothing: of a threshold for alpha, calibrated on n_calibration images."""
        check_fraction("alpha", alpha)
        check_fraction("delta", delta)
        if alpha > MIDDLE:
            raise InputError(f"alpha must be at most {MIDDLE:g}, got {alpha:g}")
        if _rank(alpha, n_calibration) < 1:
            raise InputError(f"alpha = {alpha:g} cannot be kept with {n_calibration} images: no p-value is so small")
        tests = [RateTest(allowed_rate(level, n_calibration, delta / 4), delta / 4) for level in (alpha, MIDDLE)]
        return cls(alpha, n_calibration, delta, *tests)

    def after(self, p_values: Iterable[float] | Any) -> Watch:
        """The watch after some more images, given by their p-values."""
        p = np.asarray(p_values if hasattr(p_values, "__len__") else list(p_values), np.float64).ravel()
        wrong = ~((p > 0) & (p <= 1))
        if wrong.any():
            raise InputError(f"p-values lie in (0, 1], got {p[wrong][0]:g} at place {int(wrong.argmax()) + 1}")
        # as whole numbers of calibration images: a rounded p-value in a file keeps its side
        below = np.rint(p * (self.n_calibration + 1))
        rejected = below <= _rank(self.alpha, self.n_calibration)
        low = below <= _rank(MIDDLE, self.n_calibration)
        return replace(self, rejection=self.rejection.after(rejected), middle=self.middle.after(low))

    def __add__(self, other: Watch) -> Watch:
        """Two streams behind the same detector as one."""
        return replace(self, rejection=self.rejection + other.rejection, middle=self.middle + other.middle)

    @property
    def seen(self) -> int:
        """How many images."""
        return self.rejection.seen

    @property
    def alarm(self) -> bool:
        """Whether the stream disagrees with the promise."""
        return self.rejection.alarm is not None or self.middle.alarm is not None

    def save(self, path: str | Path) -> None:
        """Write the state to one safetensors file."""
        tensors: dict[str, NDArray[Any]] = {}
        value = encode(self, tensors, "watch")
        files.save(path, "watch", {"value": json.dumps(value)}, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Watch:
        """The state that `save` wrote."""
        header, tensors = files.load(path, "watch")
        value = decode(json.loads(header["value"]), tensors)
        if not isinstance(value, cls):
            raise InputError(f"{path} holds a {type(value).__name__}, not a watch")
        return value

    def __str__(self) -> str:
        """What was seen, what it means and what to do."""
        test = self.rejection
        if not self.seen:
            return "no images yet"
        low, high = test.interval()
        lines = [
            f"{self.seen} images, {test.hits} rejected: {test.rate:.2%} ({low:.2%} to {high:.2%}); promised "
            f"{self.alpha:.2%}, up to {test.allowed:.2%} by the luck of {self.n_calibration} calibration images",
            f"p-values up to {MIDDLE:g}: {self.middle.rate:.2%}, up to {self.middle.allowed:.2%} expected",
            f"evidence against the promise: {_power(test)} by rejections, {_power(self.middle)} by all p-values; "
            f"alarm at {1 / test.delta:.0f}",
        ]
        return "\n".join([*lines, *self._advice()])

    def _advice(self) -> list[str]:
        if not self.alarm:
            return [self._calm()]
        first = self.rejection if self.rejection.alarm is not None else self.middle
        since = "" if first.since is None else f"; it began near image {first.since}"
        return [
            f"ALARM at image {first.alarm}{since}",
            "look at the rejected images since then. Where they are none of the network's business, the guard does its "
            "work: find where they come from. Where the network should know them, refit: calibrate on recent images.",
        ]

    def _calm(self) -> str:
        """Without an alarm: whether the rate agrees with the promise, and if not, what the alarm waits for."""
        test = self.rejection
        if test.interval()[0] <= self.alpha:
            return "the stream agrees with the promise"
        luck = (
            f"up to {test.allowed:.2%} may be the luck of the calibration"
            if test.rate <= test.allowed
            else f"even more than the {test.allowed:.2%} that luck explains, on too few images yet"
        )
        return (
            f"no alarm yet: more is rejected than promised, {luck}; the alarm comes at an evidence of "
            f"{1 / test.delta:.0f} = 4 / delta, since two tests and the luck of each one's calibration share "
            f"delta = {self.delta:g}"
        )


def begun(detector: str | Path | None, alpha: float | None, n_calibration: int | None, delta: float) -> Watch:
    """A new watch for a calibrated detector file, or for the two numbers that it would know."""
    if detector is not None:
        from oodshape.methods.detector import Detector

        known = Detector.load(detector)
        if known.calibration is None or known.alpha is None:
            raise InputError(f"{detector} promises nothing yet: calibrate it on held-out images")
        alpha, n_calibration = known.alpha, len(known.calibration)
    if alpha is None or n_calibration is None:
        raise InputError("watch must know the promise: give --detector FILE, or --alpha and --n-calibration")
    return Watch.begin(alpha=alpha, n_calibration=n_calibration, delta=delta)


def allowed_rate(level: float, n: int, delta: float) -> float:
    """The rate that a threshold for `level` from n calibration scores exceeds with probability delta only.

    >>> round(allowed_rate(0.05, 99, 0.5), 3), round(allowed_rate(0.05, 99, 0.01), 3)
    (0.047, 0.113)
    """
    rank = _rank(level, n)
    return float(beta.ppf(1 - delta, rank, n + 1 - rank))


def _rank(level: float, n: int) -> int:
    return int(Fraction(str(level)) * (n + 1))


def _boundary(outer: float, inner: float, outside: Any) -> float:
    """Where `outside` changes between a rate that may be outside and one that is not."""
    if not outside(outer):
        return outer
    for _ in range(60):
        middle = (outer + inner) / 2
        outer, inner = (middle, inner) if outside(middle) else (outer, middle)
    return outer


def _power(test: RateTest) -> str:
    return f"{math.exp(min(test.highest, 700)):.3g}"
