"""Watch: does the rejection rate of a stream still agree with the guarantee? An anytime-valid test on p-values.

A threshold calibrated on n images rejects new images like them at a rate that is itself random: it has the law
Beta(k, n + 1 - k), k = floor(alpha (n + 1)), and the mean alpha or less. The alarm must not be about the sampling
error of the calibration set, so the test asks whether the rate lies above a high quantile of that law.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from filelock import lock_descriptor
from numpy.typing import NDArray

from oodshape.core import files
from oodshape.core.errors import InputError, check_fraction
from oodshape.core.text import format_count, format_rate
from oodshape.core.values import AtLeast, Value, encode_value, load_values
from oodshape.guard.scoring.decide import ROUNDING, round_to_grid
from oodshape.guard.scoring.score_formats import ScoreRow, read_scores
from oodshape.guard.verdict import Scored, Verdict
from oodshape.guard.watch.history import Event, History
from oodshape.metrics.conformal import allowed_rate, threshold_rank
from oodshape.metrics.sequential_test import RateTest

Block = tuple[list[ScoreRow], "ReadPosition | None"]


class ReadPosition(Value):
    """The number of rows that were read of a file, and the digest of these rows."""

    file: str
    rows: Annotated[int, AtLeast(0)] = 0
    digest: str = sha256().hexdigest()


def read_blocks(scores: str, after: ReadPosition | None, *, size: int, follow: bool = False) -> Iterator[Block]:
    """Read the rows after a position in blocks of at most `size`, each with the position where it ends.

    Without `after` all rows are read, and there are no positions. With one a last line without an end is left for the
    next time: it may still be written.
    """
    past = 0 if after is None else after.rows
    if after is not None and follow and sum(1 for _ in read_scores(scores, complete=True)) < past:
        raise _changed(scores, after)  # following it would wait for rows that are no longer there
    block, count, digest = list[ScoreRow](), 0, sha256()

    def position() -> ReadPosition | None:
        return None if after is None else ReadPosition(after.file, count, digest.hexdigest())

    for row in read_scores(scores, follow=follow, complete=after is not None):
        count += 1
        digest.update(json.dumps(list(row.cells.values()), default=str).encode())
        if count > past:
            block.append(row)
        elif after is not None and count == past and digest.hexdigest() != after.digest:
            raise _changed(scores, after)
        if len(block) == size:
            yield block, position()
            block = []
    if after is not None and count < past:
        raise _changed(scores, after)
    if block:
        yield block, position()


def rejected_since_change(watch: Watch, scores: str | None = None) -> Iterator[tuple[int, ScoreRow]]:
    """Read the score files of a watch again: (image number, row) of what was rejected since the change of the alarm.

    Without a state, `scores` is the file. There is nothing to read without an alarm, from standard input, or where a
    file is gone.
    """
    alarms = [event for event in watch.history.events if event.kind == "alarm"]
    parts = [(each.file, each.rows) for each in watch.read] or [(scores or "-", watch.seen + watch.unreadable)]
    if not (watch.alarm and alarms and all(Path(file).is_file() for file, _ in parts)):
        return
    rows = (row for file, count in parts for row in islice(read_scores(file), count) if row.p_value is not None)
    limit = threshold_rank(watch.n_calibration, watch.alpha) + 0.5
    for image, row in enumerate(rows, 1):
        if image >= (alarms[-1].began or alarms[-1].image) and (row.p_value or 0) * (watch.n_calibration + 1) < limit:
            yield image, row


def _changed(scores: str, after: ReadPosition) -> InputError:
    return InputError(
        f"{scores} was changed in the {after.rows:,} rows that were counted before; only add rows to a file that is "
        "watched: write new rows to another file, or start with another --state"
    )


@contextmanager
def lock_state(state: str) -> Iterator[None]:
    """Lock a state file, so that a second process cannot overwrite it."""
    if not state:
        yield
        return
    with open(f"{os.path.realpath(state)}.lock", "ab") as file:
        if not lock_descriptor(file.fileno(), blocking=False):
            raise InputError(f"another process uses {state}; stop it, or give another --state")
        yield  # the file stays: without it, a third process could lock a new one while the second holds the old one


MIDDLE = 0.5  # half of the images like the calibration's have a p-value up to this


class Watch(Value):
    """The state of watching one stream: `watch = watch.after(p_values)`, then `str(watch)`.

    Two tests share delta: one of the rejection rate, and one of the fraction of p-values up to 1/2, which changes when
    scores fall although few images are rejected yet. The probability that a stream of images like the calibration set
    ever raises an alarm is at most delta, including the sampling error of the calibration set.

    >>> watch = Watch.begin(alpha=0.05, n_calibration=999).after([0.5, 0.8, 0.3, 0.9])
    >>> watch.alarm, round(watch.rejection.allowed, 3)
    (False, 0.071)

    Attributes:
        alpha: Bound on the expected false rejection rate of the guard.
        n_calibration: Number of calibration images.
        delta: Bound on the probability of a false alarm.
        rejection: Test of the rejection rate.
        middle: Test of the fraction of p-values up to 1/2.
        unreadable: Number of images that could not be read; no test counts them.
        read: How far each score file was read.
        history: Counts over time; resets do not clear it.
    """

    alpha: float
    n_calibration: int
    delta: float
    rejection: RateTest
    middle: RateTest
    unreadable: Annotated[int, AtLeast(0)] = 0  # images that could not be read; no test counts them
    read: tuple[ReadPosition, ...] = ()  # how far each file was
    history: History = History()  # since before any reset

    def __post_init__(self) -> None:
        begun = _tests(self.alpha, self.n_calibration, self.delta)
        for test, wanted in zip((self.rejection, self.middle), begun, strict=True):
            if not np.allclose((test.allowed, test.delta), (wanted.allowed, wanted.delta), rtol=1e-6, atol=0):
                raise InputError(f"a test of the rate {test.allowed:g} where {wanted.allowed:g} is allowed")
        if self.rejection.seen != self.middle.seen:
            raise InputError(f"its two tests have seen {self.rejection.seen} and {self.middle.seen} images")

    @classmethod
    def begin(cls, *, alpha: float, n_calibration: int, delta: float = 0.01) -> Watch:
        """Begin to watch.

        Args:
            alpha: Bound on the expected false rejection rate of the guard.
            n_calibration: Number of its calibration images.
            delta: Bound on the probability of a false alarm.

        Returns:
            A watch that has seen no image.
        """
        return cls(alpha, n_calibration, delta, *_tests(alpha, n_calibration, delta))

    def add(self, verdicts: Verdict | Scored | Iterable[Verdict | Scored]) -> Watch:
        """Add images by a guard's verdicts or score rows.

        Args:
            verdicts: One or several verdicts, or rows of scores.

        Returns:
            The new state.

        >>> from oodshape import Verdict
        >>> Watch.begin(alpha=0.05, n_calibration=99).add(Verdict("cat", 0, 9.1, 0.62, True, 7.9)).history.seen
        1
        """
        rows = [verdicts] if isinstance(verdicts, (Verdict, Scored)) else list(verdicts)
        decided = ((row.p_value, row.accepted) for row in rows if row.p_value is not None and not row.error)
        self.check_decisions(decided, "the stream")
        return self.after(None if row.error else row.p_value for row in rows)

    def check_decisions(self, decided: Iterable[tuple[float, bool | None]], source: str) -> None:
        """Refuse images that a guard of another calibration set or alpha decided on.

        Args:
            decided: P-value and decision of each image; None where there is no decision.
            source: Where they come from, for the message.

        Raises:
            InputError: If a p-value or a decision is not one of the guard that is watched.
        """
        pairs = list(decided)
        steps = round_to_grid(np.array([p for p, _ in pairs], np.float64), self.n_calibration, source)
        limit = (threshold_rank(self.n_calibration, self.alpha) + 0.5) / (self.n_calibration + 1)
        for p, accepted in zip(steps.tolist(), (accepted for _, accepted in pairs), strict=True):
            if accepted is not None and accepted != (p > limit):
                raise InputError(
                    f"{source} was decided at another alpha than {self.alpha:g}: an image with the p-value {p:g} was "
                    f"{'accepted' if accepted else 'rejected'}; give the guard that scored it"
                )

    def after(self, p_values: Iterable[float | None] | Any, position: ReadPosition | None = None) -> Watch:
        """Add images by their p-values.

        Args:
            p_values: P-values in order; None or NaN: the image could not be read.
            position: How far the file of these images was read with them.

        Returns:
            The new state.

        Raises:
            InputError: If a p-value is not in (0, 1], or below what the calibration set allows.
        """
        p = np.asarray(list(p_values), np.float64)
        lost = np.isnan(p)
        given, p = p, p[~lost]
        wrong = ~((p > 0) & (p <= 1))
        if wrong.any():
            raise InputError(f"p-values lie in (0, 1], got {p[wrong][0]:g} at place {int(wrong.argmax()) + 1}")
        least = 1 / (self.n_calibration + 1)
        if (p < least * (1 - ROUNDING)).any():
            raise InputError(
                f"with {self.n_calibration:,} calibration images no p-value is below 1 / {self.n_calibration + 1:,}, "
                f"got {p.min():g}; give the number of calibration images of the guard that scored these"
            )
        now, start = self, 0
        while start < len(lost):  # by blocks of the history
            read = np.flatnonzero(~lost[start:])
            end = start + int(read[now.history.room]) if len(read) > now.history.room else len(lost)
            now, start = now._after(given[start:end], lost[start:end]), end
        if position is None:
            return now
        return replace(now, read=(*(each for each in self.read if each.file != position.file), position))

    def _after(self, p: NDArray[np.float64], lost: NDArray[np.bool_]) -> Watch:
        """After at most as many images as the history's block still takes."""
        known = p[~lost]
        # as whole numbers of calibration images: a rounded p-value in a file keeps its side
        below = np.rint(known * (self.n_calibration + 1))
        rejected = below <= threshold_rank(self.n_calibration, self.alpha)
        low = below <= threshold_rank(self.n_calibration, MIDDLE)
        rejection, middle = self.rejection.after(rejected), self.middle.after(low)
        unreadable = self.unreadable + int(lost.sum())
        history = self.history.after(known, rejected, int(lost.sum()))
        now = replace(self, rejection=rejection, middle=middle, unreadable=unreadable, history=history)
        if not now.alarm or self.alarm:
            return now
        first = now.first
        before = history.seen - now.seen  # the tests count anew after a reset, the history does not
        began = None if first.since is None else before + first.since
        return replace(now, history=history.with_event(Event("alarm", before + (first.alarm or 0), began)))

    def reset(
        self, *, alpha: float | None = None, n_calibration: int | None = None, delta: float | None = None
    ) -> Watch:
        """Begin new tests on the same stream, after a change was confirmed; the history is kept.

        Each reset begins a new test with its own probability `delta` of a false alarm.

        Args:
            alpha: The new bound, if the guard was calibrated again.
            n_calibration: The new number of calibration images.
            delta: Another bound on the probability of a false alarm.

        Returns:
            The new state.
        """
        begun = Watch.begin(
            alpha=self.alpha if alpha is None else alpha,
            n_calibration=self.n_calibration if n_calibration is None else n_calibration,
            delta=self.delta if delta is None else delta,
        )
        return replace(begun, read=self.read, history=self.history.with_event(Event("reset", self.history.seen)))

    def position_in(self, scores: str) -> ReadPosition:
        """Return how far a score file was read.

        Args:
            scores: The file.

        Returns:
            The position.
        """
        file = os.path.realpath(scores)  # one name, however the path is written
        return next((each for each in self.read if each.file == file), ReadPosition(file))

    @property
    def seen(self) -> int:
        """How many images, without those that could not be read."""
        return self.rejection.seen

    @property
    def alarm(self) -> bool:
        """Whether the stream contradicts the guarantee."""
        return self.rejection.alarm is not None or self.middle.alarm is not None

    @property
    def first(self) -> RateTest:
        """The test that raised the alarm."""
        return self.rejection if self.rejection.alarm is not None else self.middle

    def save(self, path: str | Path) -> None:
        """Write the state to one safetensors file.

        Args:
            path: The file to write.
        """
        tensors: dict[str, NDArray[Any]] = {}
        value = encode_value(self, tensors, "watch")
        files.save_file(path, "watch", {"value": json.dumps(value)}, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Watch:
        """Read a state that `save` wrote.

        Args:
            path: The file to read.

        Returns:
            The state.

        Raises:
            InputError: If the file is damaged or not a watch.
        """
        [value] = load_values(path, "watch", "value")
        if not isinstance(value, cls):
            raise InputError(f"{path} holds {type(value).__name__}, not one watch; {files.WAY_OUT['watch']}")
        return value

    def __str__(self) -> str:
        test = self.rejection
        if not self.seen:
            return "\n".join(["no images yet", *self._unreadable_lines()])
        low, high, allowed, middle = map(format_rate, (*test.interval(), test.allowed, self.middle.allowed))
        lines = [
            f"{format_count(self.seen, 'image')}, {test.hits:,} rejected: {format_rate(test.rate)} "
            f"({low} to {high}); guaranteed {100 * self.alpha:g} %, up to {allowed} is within sampling error for "
            f"{self.n_calibration:,} calibration images",
            f"p-values up to {MIDDLE:g}: {format_rate(self.middle.rate)}, up to {middle} expected",
            f"evidence against the guarantee: {_power(test)} by rejections, {_power(self.middle)} by all p-values; "
            f"alarm at {1 / test.delta:.0f}",
        ]
        return "\n".join([*lines, *self._unreadable_lines(), *self._advice()])

    def _unreadable_lines(self) -> list[str]:
        total = self.seen + self.unreadable
        return [f"{self.unreadable} of {format_count(total, 'image')} could not be read"] if self.unreadable else []

    def _advice(self) -> list[str]:
        if not self.alarm:
            return [self._calm()]
        first = self.first
        since = "" if first.since is None else f"; the change began near image {first.since}"
        return [
            f"ALARM at image {first.alarm}{since}",
            "look at the rejected images since then. If they are OOD, the guard is working as intended: find their "
            "source. If they are valid inputs, recalibrate on recent images.",
        ]

    def _calm(self) -> str:
        """Without an alarm: how close it is, and why it waits where more is rejected than guaranteed."""
        test = self.rejection
        if test.interval()[0] <= self.alpha:
            most = max(self.rejection, self.middle, key=lambda each: each.highest)
            return f"no alarm; evidence {_power(most)} of {1 / test.delta:.0f}"
        return (
            f"no alarm yet: more is rejected than guaranteed, but up to {format_rate(test.allowed)} is within sampling "
            f"error of the calibration set; the alarm comes at an evidence of {1 / test.delta:.0f} = 4 / delta"
        )


def _tests(alpha: float, n_calibration: int, delta: float) -> tuple[RateTest, RateTest]:
    """The tests of the rejection rate and of the rate of p-values up to 1/2, before the first image."""
    check_fraction("alpha", alpha)
    check_fraction("delta", delta)
    if alpha > MIDDLE:
        raise InputError(f"alpha must be at most {MIDDLE:g}, got {alpha:g}")
    if threshold_rank(n_calibration, alpha) < 1:
        raise InputError(f"alpha = {alpha:g} cannot be kept with {n_calibration} images: no p-value is so small")
    share = delta / 4  # two tests, each with the sampling error of the calibration set
    rejection, middle = (RateTest(allowed_rate(level, n_calibration, share), share) for level in (alpha, MIDDLE))
    return rejection, middle


def _power(test: RateTest) -> str:
    return f"{math.exp(min(test.highest, 700)):.3g}"
