"""The command `watch`: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.terminal import say
from oodshape.core.errors import InputError
from oodshape.core.files import check_writable

ALARM_STATUS = 3
BLOCK = 1000  # rows between two looks at a file that is read at once


def watch(
    scores: Annotated[str | None, typer.Argument(metavar="SCORES")] = None,
    guard: Path | None = None,
    alpha: float | None = None,
    n_calibration: Annotated[int | None, typer.Option(min=1)] = None,
    delta: float | None = None,
    state: Path | None = None,
    reset: bool = False,
    page: Path | None = None,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
) -> None:
    """Test whether the rejection rate of a stream still agrees with the guarantee, and when to refit.

    The test is valid after every image: if the stream is like the calibration set, the probability of ever raising an
    alarm is at most delta. An alarm is exit status 3. With --state, each row of a file is counted once over all runs;
    rows from standard input are always counted.

    Args:
        scores: CSV, JSON lines or Parquet with p-values, or - [default: only --state].
        guard: The calibrated guard file: it holds alpha and the size of the calibration set.
        alpha: The guaranteed false rejection rate.
        n_calibration: The number of calibration images.
        delta: The probability of a false alarm, over all time [default: 0.01].
        state: Keep the state and how far each file was read in this file; continue from it.
        reset: After a confirmed change: start the tests again, keep the history.
        page: Write a page that shows the stream over time.
        follow: Wait for more lines; stop at the alarm.
    """
    import numpy as np

    from oodshape.guard.scoring.decide import Calibration
    from oodshape.guard.watch.watch import Watch, lock_state, read_blocks, rejected_since_change
    from oodshape.report.pages.watch_page import write_watch_page

    check_writable(state, page)
    if state is None and (scores is None or reset):
        raise InputError("--reset and a look without SCORES need --state: it holds what was seen")
    known = None if guard is None else Calibration.of(guard)
    if known is not None:
        if not known.held_out:
            raise InputError(
                f"{guard} has no guarantee: it was calibrated on training images, so an alarm means nothing"
            )
        alpha, n_calibration = known.alpha, known.images
    with lock_state(str(state or "")):
        if state is not None and state.is_file():
            seen = Watch.load(state)
            for name, value in (("alpha", alpha), ("n-calibration", n_calibration), ("delta", delta)):
                kept = getattr(seen, name.replace("-", "_"))
                if value not in (None, kept) and not reset:
                    raise InputError(
                        f"{state} watches with --{name} {kept:g}, but got {value:g}: leave it out, or --reset"
                    )
        elif alpha is None or n_calibration is None:
            raise InputError("watch must know the guarantee: give --guard FILE, or --alpha and --n-calibration")
        else:
            seen = Watch.begin(alpha=alpha, n_calibration=n_calibration, delta=0.01 if delta is None else delta)
        if reset and state is not None:
            seen = seen.reset(alpha=alpha, n_calibration=n_calibration, delta=delta)
            seen.save(state)
        size = 1 if follow or scores == "-" else BLOCK
        if state is not None and scores == "-":
            say("standard input has no position to continue from: every row of it counts as new", err=True)
        start = None if state is None or scores is None or scores == "-" else seen.position_in(scores)
        for rows, position in () if scores is None else read_blocks(scores, start, size=size, follow=follow):
            quiet = not seen.alarm
            values = np.array([row.p_value for row in rows], np.float64)
            decided = ((row.p_value, row.accepted) for row in rows if row.p_value is not None)
            seen.check_decisions(decided, str(scores))
            if known is not None:
                known.check(rows, str(scores))
            seen = seen.after(values, position)
            if state is not None:
                seen.save(state)
            if quiet and seen.alarm and size == 1:
                break
    if page is not None:
        listed = write_watch_page(seen, page, rejected_since_change(seen, scores))
    say(*str(seen).splitlines())
    if page is not None:
        say(f"page: {page}" + (f"; rejected since the change: {listed}" if listed else ""))
    if seen.alarm:
        raise typer.Exit(ALARM_STATUS)
