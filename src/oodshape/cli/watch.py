"""The command `watch`: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.terminal import check_out, say
from oodshape.core.errors import InputError

ALARM_STATUS = 3
BLOCK = 1000  # rows between two looks at a file that is read at once


def watch(
    scores: Annotated[
        str | None,
        typer.Argument(
            metavar="SCORES", help="CSV, JSON lines or Parquet with p-values, or - \\[default: only --state]."
        ),
    ] = None,
    detector: Annotated[
        Path | None, typer.Option(help="The calibrated detector file: it knows alpha and the calibration's size.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="The promised false-rejection rate.")] = None,
    n_calibration: Annotated[int | None, typer.Option(min=1, help="How many images the threshold came from.")] = None,
    delta: Annotated[float, typer.Option(help="The chance of a false alarm, over all time.")] = 0.01,
    state: Annotated[
        Path | None,
        typer.Option(help="Keep the state and how far each file was read here; go on from it."),
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="The name of this stream, one of several in the state; they share delta.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="After a confirmed change: begin the tests anew, keep the history.")
    ] = False,
    page: Annotated[Path | None, typer.Option(help="Write a page that shows the stream over time.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more lines; stop at the alarm.")] = False,
) -> None:
    """Tell whether the rejection rate of a stream still agrees with the promise, and when to refit.

    The test may be looked at after every image: a stream of images like those of the calibration raises an alarm
    with probability delta at most, ever. An alarm is exit status 3. With --state each row of a file counts once, in
    whatever runs; standard input has no such memory.
    """
    from oodshape.guard.place import blocks
    from oodshape.guard.watch_state import Kept, promise
    from oodshape.report.watch_page import write_watch

    check_out(state, page)
    if state is None and (scores is None or stream is not None or reset):
        raise InputError("--stream, --reset and a look without SCORES need --state: it holds what was seen")
    told = promise(detector, alpha, n_calibration)
    kept = Kept.opened(state, stream, told, delta)
    if reset:
        kept.reset(told)
    size = 1 if follow or scores == "-" else BLOCK
    if state is not None and scores == "-":
        say("standard input has no place to go on from: every row of it counts as new", err=True)
    start = None if state is None or scores is None or scores == "-" else kept.watch.place(scores)
    for block, place in () if scores is None else blocks(scores, start, size=size, follow=follow):
        quiet = not kept.watch.alarm
        kept.take(block, place)
        if quiet and kept.watch.alarm and size == 1:
            break
    if page is not None:
        write_watch(kept.named, page)
    say(str(kept))
    if page is not None:
        say(f"page: {page}")
    if kept.alarm:
        raise typer.Exit(ALARM_STATUS)
