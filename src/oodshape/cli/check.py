"""oodshape check: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path

import typer

from oodshape.cli import shared_options as shared
from oodshape.cli.terminal import UNREADABLE, command_line, console, say, show_json, warnings_as_lines
from oodshape.core.files import check_writable
from oodshape.core.options import ImageOptions, ModelOptions, RunOptions, SubsetOptions


def check(
    *,
    guard: shared.GuardOption,
    model: shared.ModelOption,
    opening: ModelOptions = shared.ON_ANY_DEVICE,
    id: str,
    ood: list[str],
    out: Path | None = None,
    reading: ImageOptions,
    subset: SubsetOptions,
    running: RunOptions,
    json: shared.JsonOption = False,
) -> None:
    """Check a guard on images of your own: how many of each set it accepts, next to the MSP baseline.

    Args:
        id: Images that the network should accept: {IMAGES}.
        ood: Images that it should reject; may be given several times.
        out: The page to write, such as check.html.
    """
    check_writable(out)
    shared.check_inputs(id, *ood, guard=guard, model=model, opening=opening)
    from oodshape.core.text import print_columns
    from oodshape.guard.guard import Guard
    from oodshape.images.sources.open_images import stream_images
    from oodshape.report.pages.check_page import HEAD, NOTE, check_rows, describe_decision, verdict, write_check_page
    from oodshape.report.pages.scored_page import Origin

    fitted = Guard.load(guard, trust_code=opening.trust_code)
    names = [stream_images(each).name for each in ood]
    sets = dict(zip(names if len(set(names)) == len(names) else ood, ood, strict=True))
    with warnings_as_lines():
        source = fitted.open_network(model, shared.resolve_device(opening))
        found = fitted.check(id, sets, source, **vars(subset), **vars(reading), **vars(running))
    if out is not None:
        write_check_page(found, out, source, Origin(command_line(), str(guard)))
    if json:
        said = {"rejected_id": found.rejected, "guaranteed": found.guaranteed, "used_id": found.used}
        sanity = None if fitted.about.sanity is None else fitted.about.sanity.accepted(fitted.detector)
        show_json(said | {"sets": found.rows(), "unreadable": found.unreadable, "sanity": sanity})
    else:
        print_columns(HEAD, check_rows(found), console())
        say(NOTE)
        say(describe_decision(found)[1])
        say(verdict(found))
        if fitted.sanity:
            say(f"sanity: the guard {fitted.sanity}")
        for path, why in list(found.unreadable.items())[:1]:
            say(f"{len(found.unreadable):,} could not be read; {path}: {why}")
        if out is not None:
            say(f"page: {out}")
    if found.unreadable:
        raise typer.Exit(UNREADABLE)
