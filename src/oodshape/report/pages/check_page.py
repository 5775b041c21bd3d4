"""Show a check as a table in the terminal and as a page."""

from __future__ import annotations

from html import escape
from pathlib import Path

from oodshape.core.text import format_rate
from oodshape.guard.check import Check, SetCheck
from oodshape.metrics.detection import Estimate
from oodshape.metrics.registry import DEFAULT_METRICS, MAIN
from oodshape.metrics.significance import mcnemar
from oodshape.networks.loading import OpenNet
from oodshape.report.pages.html import banner, html_table, tiles
from oodshape.report.pages.scored_page import Origin, list_unreadable, write_scored_sets
from oodshape.report.pages.scored_set import CLEAR, SHOWN, Role, collect_set, describe_images, roc_curves

HEAD = ["set", "detector", "images", "accepted", *(metric.head for metric in DEFAULT_METRICS)]
NOTE = (
    "In brackets: 95 % intervals, exact (Clopper-Pearson) for fractions of accepted images, else bootstrap. "
    + " ".join(metric.note for metric in DEFAULT_METRICS)
)
ROLES = {"id": "ID", "ood": "OOD"}
DETECTORS = {"guard": "guard", "softmax": "MSP"}
WEAK, FAILING = 0.2, 0.5  # of a set accepted: from here on a guard protects in part, or not


def check_rows(check: Check) -> list[list[str]]:
    """Return the cells of the table below `HEAD`: each set with the guard, then with the MSP baseline."""
    rows, names = [], [each.name for each in check.outside]
    for row in sorted(check.rows(), key=lambda row: names.index(row["set"]) if row["role"] == "ood" else -1):
        cells = [f"{row['set']} ({ROLES[row['role']]})", DETECTORS[row["detector"]], f"{row['images']:,}"]
        cells.append(_percent(Estimate(**row["accepted_share"])))
        rows.append(
            cells + [_percent(Estimate(**row[each.name])) if each.name in row else "" for each in DEFAULT_METRICS]
        )
    return rows


def verdict(check: Check) -> str:
    """Say whether the ID images are consistent with the guarantee."""
    images, alpha = len(check.inside.guard.values), check.guard.detector.alpha or 0.0
    text = f"{check.rejected:,} of {images:,} ID images rejected; alpha = {100 * alpha:g} %"
    if check.guaranteed is None:
        return f"{text} ({check.guard.guarantee})" if not check.guard.about.held_out else f"{text}, per class"
    if check.used:
        used = f"{check.used:,} of these images are known to have been used to fit or calibrate the guard"
        return f"{text}; this says nothing about the guarantee: {used}"
    low, high = check.guaranteed
    holds = low <= check.rejected <= high
    differ = "not what the guarantee expects: these images differ from the calibration set"
    end = "consistent with the guarantee" if holds else differ
    return f"{text}; expected {low:,} to {high:,} (99 % range): {end}"


def write_check_page(
    check: Check, path: str | Path, source: OpenNet | None = None, origin: Origin | None = None
) -> None:
    """Write the page of a check; with the network's `source` it shows the images and explains each decision."""
    sets: list[tuple[SetCheck, Role]] = [(check.inside, "id"), *((each, "ood") for each in check.outside)]
    scored_sets = [collect_set(check.guard, each, role, SHOWN // len(sets)) for each, role in sets]
    seen = [
        (scored, each.listing) for scored, (each, _) in zip(scored_sets, sets, strict=True) if each.listing is not None
    ]
    items = [] if source is None or len(seen) < len(sets) else describe_images(check.guard, source, seen)
    table = html_table(HEAD, check_rows(check), "Figures by set and detector")
    note = f"{NOTE} The threshold of the MSP baseline was calibrated on the same images for the same alpha."
    more = {"table": ("Figures and ROC curves", f'{table}<p class="soft">{escape(note)}</p><div id="roc"></div>')}
    more |= list_unreadable(list(check.unreadable.items()), len(check.unreadable))
    title = f"Check: {check.guard.about.model or 'a network given in Python'}"
    top = [banner(*describe_decision(check)), tiles(_numbers(check)), "<h2>OOD sets</h2>", _render_sets(check)]
    write_scored_sets(
        path, title, "\n".join(top), check.guard, scored_sets, items, origin or Origin(), more, roc=roc_curves(check)
    )


def describe_decision(check: Check) -> tuple[str, str, str]:
    """Return the kind of the banner (ok, warn or bad), the decision, and what it rests on; the last is HTML."""
    worst = max(check.outside, key=lambda each: each.guard.share.value)
    share, alpha = worst.guard.share.value, 100 * (check.guard.detector.alpha or 0.0)
    which = f"{worst.name}, the worst set," if len(check.outside) > 1 else worst.name
    accepts = f"accepts {format_rate(share)} of {which} at a {alpha:g} % false rejection rate"
    all_ood, msp = _accepted(check, "guard"), _accepted(check, "softmax")
    baseline = "" if msp is None else f" (MSP: {format_rate(msp)})"
    body = f"{format_rate(all_ood or 0.0)} of all OOD images are accepted{baseline}. {verdict(check)}."
    if share < WEAK:
        kind, head = "ok", f"Protective: {accepts}"
    else:
        kind, word = ("bad", "Not") if share >= FAILING else ("warn", "Partly")
        head = f"{word} protective: {accepts}"
        body += " A larger alpha rejects more OOD images, and more ID images: try it below."
    if check.guaranteed is not None and not check.used and check.rejected > check.guaranteed[1]:
        kind, head = "bad", f"Rejects {format_rate(1 - check.inside.guard.share.value)} of ID images, not {alpha:g} %"
        body += " Recalibrate on images like these."
    return kind, head, escape(body)


def _accepted(check: Check, detector: str) -> float | None:
    """The fraction of all OOD images that a detector accepts."""
    found = [each.judged[detector] for each in check.outside if detector in each.judged]
    return sum(each.accepted for each in found) / sum(len(each.values) for each in found) if found else None


def _numbers(check: Check) -> list[tuple[str, str, str]]:
    """The tiles: false rejection rate, OOD images accepted, AUROC and the sanity check."""
    share, sanity = check.inside.guard.share, check.guard.about.sanity
    found, msp = _accepted(check, "guard"), _accepted(check, "softmax")
    areas = {name: [] for name in check.inside.judged}  # type: dict[str, list[float]]
    for row in check.rows():
        if row["role"] == "ood":
            areas[row["detector"]].append(row[MAIN.name]["value"])
    area = {name: format_rate(sum(each) / len(each)) for name, each in areas.items()}
    note = f"alpha {100 * (check.guard.detector.alpha or 0):g} %; "
    note += f"95 % interval {100 * (1 - share.high):.1f}-{100 * (1 - share.low):.1f} %"
    worst = None if sanity is None else max(sanity.accepted(check.guard.detector).values())
    return [
        ("false rejection rate", format_rate(1 - share.value), note),
        ("OOD images accepted", format_rate(found or 0.0), "" if msp is None else f"MSP {format_rate(msp)}"),
        (f"mean {MAIN.head}", area["guard"], f"MSP {area['softmax']}" if "softmax" in area else ""),
        ("sanity check", "–" if worst is None else format_rate(worst), "of noise or constant images accepted"),
    ]


def _render_sets(check: Check) -> str:
    """Return the table of OOD sets, the worst first: what the guard and MSP accept, and whether they differ."""
    rows = []
    for each in sorted(check.outside, key=lambda each: -each.guard.share.value):
        msp, cells = each.softmax, ["–", "–"]
        if msp is not None:
            decided = "better" if each.guard.accepted < msp.accepted else "worse"
            same = mcnemar(each.guard.passed, msp.passed) >= CLEAR
            cells = [format_rate(msp.share.value), "no difference" if same else decided]
        line = "" if msp is None else f'<u style="left:{100 * msp.share.value:.1f}%"></u>'
        bar = f'<div class="part"><i style="width:{100 * each.guard.share.value:.1f}%"></i>{line}</div>'
        numbers = [f"{len(each.guard.values):,}", bar, format_rate(each.guard.share.value), *cells]
        rows.append(f'<th scope="row">{escape(each.name)}</th>' + "".join(f"<td>{cell}</td>" for cell in numbers))
    heads = ("OOD set", "images", "accepted by the guard (line: MSP)", "guard", "MSP", "paired test")
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        '<div class="roll" tabindex="0" role="region" aria-label="OOD sets"><table class="sets"><thead><tr>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
        '<p class="soft">Paired test: McNemar on the same images, 1 %.</p>'
    )


def _percent(value: Estimate) -> str:
    return f"{100 * value.value:.1f} % [{100 * value.low:.1f}, {100 * value.high:.1f}]"
