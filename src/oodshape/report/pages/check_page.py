"""A check as a table for the terminal and as a page."""

from __future__ import annotations

from html import escape
from pathlib import Path

from oodshape.guard.check import SAME, Check, Selective, SetCheck
from oodshape.metrics.detection import Estimate, mcnemar
from oodshape.networks.loading import Source
from oodshape.report.pages.html import html_table, write_html
from oodshape.report.pages.scored_data import SHOWN, collect_set, describe_images, payload, risk_curves
from oodshape.report.pages.scored_page import Origin, render_scored_page
from oodshape.report.pages.scored_set import CLEAR, Role
from oodshape.report.tables.measures import SHOWN as MEASURED

HEAD = ["set", "detector", "images", "accepted", *(measure.title for measure in MEASURED)]
NOTE = (
    "In brackets: 95 % intervals, exact (Clopper-Pearson) for shares, bootstrap for FPR95 and AUROC. FPR95: the share "
    "of strange images that pass when 95 % of the familiar ones pass. AUROC: the chance that a familiar image scores "
    "higher than a strange one."
)
WORDS = {"id": "familiar", "ood": "strange"}


def check_rows(check: Check) -> list[list[str]]:
    """The cells of the table below `HEAD`: each set under the guard, then under a threshold on the softmax."""
    rows = []
    by_set: dict[str, list[list[str]]] = {}
    for row in check.rows():
        cells = [f"{row['set']} ({WORDS[row['role']]})", row["detector"], f"{row['images']:,}"]
        cells.append(_percent(Estimate(**row["accepted_share"])))
        cells += [_percent(Estimate(**row[each.name])) if each.name in row else "" for each in MEASURED]
        by_set.setdefault(cells[0], []).append(cells)
    for group in by_set.values():
        rows += group
    return rows


def verdict(check: Check) -> str:
    """Whether the promise holds on the familiar images, in a sentence."""
    images, alpha = len(check.inside.guard.values), check.guard.detector.alpha or 0.0
    said = f"{check.rejected:,} of {images:,} familiar images are rejected; {100 * alpha:g} % were asked for"
    if check.promised is None:
        return f"{said} ({check.guard.guarantee})" if not check.guard.about.held_out else f"{said}, per class"
    if check.known > SAME:
        return f"{said}; that proves nothing: these are the images that set the threshold"
    low, high = check.promised
    holds = low <= check.rejected <= high
    end = "as promised" if holds else "not as promised: these images are unlike those it was calibrated on"
    return f"{said}; the promise puts the number between {low:,} and {high:,} (99 %): {end}"


def write_check(check: Check, path: str | Path, source: Source | None = None, origin: Origin | None = None) -> None:
    """Write the page of a check; with the network's `source` it shows the images and says why each was judged so."""
    sets: list[tuple[SetCheck, Role]] = [(check.inside, "id"), *((each, "ood") for each in check.outside)]
    scored_sets = [collect_set(check.guard, each, role, SHOWN // len(sets)) for each, role in sets]
    seen = [
        (scored, each.listing) for scored, (each, _) in zip(scored_sets, sets, strict=True) if each.listing is not None
    ]
    items = [] if source is None or len(seen) < len(sets) else describe_images(check.guard, source, seen)
    data = payload(check.guard, scored_sets, items) | {"risk": risk_curves(check)}
    table = html_table(HEAD, check_rows(check), "Figures by set and detector")
    note = (
        f"{NOTE} The softmax threshold was calibrated on the same images for the same share of falsely rejected ones."
    )
    more = {"table": ("Figures", f'{table}<p class="soft">{escape(note)}</p>')}
    if check.selective is not None:
        more = {"right": ("Is it right where it accepts?", _right(check, check.selective))} | more
    if check.unreadable:
        lines = [[file, why] for file, why in check.unreadable.items()]
        more["unreadable"] = (f"Not readable: {len(lines):,}", html_table(["file", "why"], lines[:100], "Not readable"))
    model = check.guard.about.model or "a network given in Python"
    said = [*(f"<b>{escape(each)}</b>" for each in headline(check)), escape(f"{verdict(check)}.")]
    write_html(
        path,
        render_scored_page(
            f"Check of a guard of {model}", said, check.guard, scored_sets, data, origin or Origin(), more
        ),
    )


def headline(check: Check) -> list[str]:
    """What passes of each strange set, beside the softmax, and whether the difference is more than chance."""
    alpha = 100 * (check.guard.detector.alpha or 0.0)
    ordered = sorted(check.outside, key=lambda each: -each.guard.share.value)
    at = [f"At the guard's own alpha of {alpha:g} %, ", *[""] * len(ordered)]
    return [f"{where}{_passing(each)}" for where, each in zip(at, ordered, strict=False)]


def _passing(outside: SetCheck) -> str:
    images, guard, softmax = len(outside.guard.values), outside.guard, outside.softmax
    said = f"{guard.accepted:,} of {images:,} strange images of {outside.name} pass ({100 * guard.share.value:.1f} %)"
    if softmax is None:
        return f"{said}."
    said += f"; a threshold on the softmax lets {softmax.accepted:,} through ({100 * softmax.share.value:.1f} %)"
    chance = mcnemar(guard.passed, softmax.passed)
    if chance >= CLEAR:
        return f"{said}: a difference that may be chance (p = {chance:.2g})."
    better = "the guard is better" if guard.accepted < softmax.accepted else "the softmax is better"
    return f"{said}: {better}, by more than chance ({'p < 0.0001' if chance < 1e-4 else f'p = {chance:.2g}'})."


def right_line(check: Check) -> list[str]:
    """How right the network is among accepted images, in a line; none where no labels are known."""
    found = check.selective
    if found is None:
        return []
    parts = [
        f"{100 * found.accepted[name].value:.1f} % among those that the {name} accepts (AURC {100 * area:.2f})"
        for name, area in found.aurc.items()
        if name in found.accepted
    ]
    said = f"of {found.images:,} labelled familiar images the network names {100 * found.accuracy.value:.1f} % right"
    return ["; ".join([said, *parts])]


def _right(check: Check, found: Selective) -> str:
    """Accuracy among accepted images and the area under the risk-coverage curve, and where the curves go."""
    assert check.inside.labels is not None
    known = check.inside.labels >= 0
    rows = [["all images", f"{found.images:,}", _percent(found.accuracy), "–"]]
    rows += [
        [
            f"accepted by the {name}",
            f"{int(check.inside.judged[name].passed[known].sum()):,}",
            _percent(found.accepted[name]) if name in found.accepted else "–",
            f"{100 * area:.2f}",
        ]
        for name, area in found.aurc.items()
    ]
    note = (
        "Of the labelled familiar images: how many the network names right, among all and among those accepted. "
        "AURC: the mean share of errors (in percent) among the most trusted k images, over every k; low is good. "
        "Dotted: what is accepted at the guard's own alpha, where the table stands too."
    )
    table = html_table(["images", "number", "accuracy", "AURC (%)"], rows, "Accuracy")
    return f'{table}<div id="risk"></div><p class="soft">{escape(note)}</p>'


def _percent(value: Estimate) -> str:
    return f"{100 * value.value:.1f} % [{100 * value.low:.1f}, {100 * value.high:.1f}]"
