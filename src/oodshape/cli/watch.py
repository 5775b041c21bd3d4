"""The command `watch`: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.terminal import check_out

ALARM_STATUS = 3
BLOCK = 1000  # rows between two looks at a file that is read at once


def watch(
    scores: Annotated[str, typer.Argument(metavar="SCORES", help="CSV, JSON lines or Parquet with p-values, or -.")],
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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more lines; stop at the alarm.")] = False,
) -> None:
    """Tell whether the rejection rate of a stream still agrees with the promise, and when to refit.

    The test may be looked at after every image: a stream of images like those of the calibration raises an alarm
    with probability delta at most, ever. An alarm is exit status 3. With --state each row of a file counts once, in
    whatever runs; standard input has no such memory.
    """
    from oodshape.guard.place import blocks
    from oodshape.guard.watch import Watch, begun

    check_out(state)
    now = Watch.load(state) if state is not None and state.is_file() else begun(detector, alpha, n_calibration, delta)
    size = 1 if follow or scores == "-" else BLOCK
    if state is not None and scores == "-":
        typer.echo("standard input has no place to go on from: every row of it counts as new", err=True)
    start = None if state is None or scores == "-" else now.place(scores)
    for block, place in blocks(scores, start, size=size, follow=follow):
        quiet = not now.alarm
        now = now.after(block, place)
        if state is not None:
            now.save(state)
        if quiet and now.alarm and size == 1:
            break
    typer.echo(str(now))
    if now.alarm:
        raise typer.Exit(ALARM_STATUS)
