"""oodshape calibrate: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import IMAGES, Costs, QuietOption, Running, Weights
from oodshape.cli.terminal import check_out, say, warnings_as_lines

UNKNOWN = "whether the network was trained on these images cannot be seen: the promise holds only if it was not"


def calibrate(
    *,
    detector: Annotated[Path, typer.Argument(metavar="FILE", help="The file that fit wrote.")],
    images: Annotated[
        str | None,
        typer.Option(help=f"Images that the network was NOT trained on \\[default: as before]: {IMAGES}."),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="The share of good images that may be rejected \\[default: as before].")
    ] = None,
    per_class: Annotated[
        bool | None,
        typer.Option("--per-class/--one-threshold", help="One for each predicted class or for all; as before."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The guard's network, as given to fit; not needed for zoo:NAME.")
    ] = None,
    network: Weights,
    out: Annotated[Path | None, typer.Option(help="The file to write \\[default: the same file].")] = None,
    running: Running,
    costs: Costs,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Set a new threshold without a new fit: from new images, for another share of rejected ones, or both.

    Without --images the calibration images of before serve again, and no network is needed. Exported files and states
    of watch keep the threshold that they were made with: export again, and begin a new state.
    """
    from oodshape.guard.describe import facts, per_class_line
    from oodshape.guard.guard import Guard

    costs.hold()
    out = detector if out is None else out
    check_out(out)
    before = Guard.load(detector, trust_code=network.trust_code)
    with warnings_as_lines():
        after = before.calibrate(
            images,
            model,
            alpha=alpha,
            per_class=per_class,
            progress=False if json or quiet else None,
            **network.said(),
            **(running.place() if images is not None else {}),
            **running.feeding(),
        )
    after.save(out)
    if json:
        typer.echo(encoder.dumps(facts(after)))
        return
    if quiet:
        return
    score = after.detector.scorer
    assert score is not None
    was, now = (score.said(each.detector.threshold) for each in (before, after))
    say(f"threshold: {now}, before {was}")
    if after.detector.groups is not None:
        say(per_class_line(after))
    say(f"promise: {after.promise}")
    if images is not None:
        say(UNKNOWN)
    say(f"guard: {out}")
