"""What to look at in a table of results, in a few sentences; every figure in them is one that the table prints."""

from __future__ import annotations

from collections.abc import Iterator

from oodshape.benchmark.results import Results
from oodshape.core.words import joined
from oodshape.report.headline import AUTO, OURS
from oodshape.report.measures import ERROR, MAIN, SHOWN
from oodshape.report.method_styles import family
from oodshape.report.pivot import Line, table

SOFTMAX, LOGITS = "msp", "energy"
_WHO = {AUTO: "auto, which chooses without OOD data,", SOFTMAX: "the softmax (msp)", OURS: f"OptFS ({OURS})"}
_LETS = {"id": "let{} {} % of OOD images through", "ood": "reject{} {} % of ID images"}
# where OptFS leads, beside benchmarks on which it does not: docs/results.md, ImageNet
ELSEWHERE = {
    "digits": "With the 1,280 features of EfficientNet-Lite0 on ImageNet it leads the paper's methods: AUROC 93.98, "
    "energy 84.33 (the documentation's page of results)."
}


def verdict(results: Results) -> list[str]:
    """Who is best, where auto, the softmax and OptFS stand, and why OptFS is not on top where it is not."""
    lines = [line for line in table(results).lines if line.entries[-1].cells[_place(MAIN)].rank]
    if len(lines) < 2:
        return []
    named = {line.method: line for line in lines}
    lets = _LETS[str(results.provenance.get("positive", "id"))]
    best = [line for line in lines if _rank(line) == 1]
    tied = [line.method for line in lines if line.entries[-1].tied and _rank(line) > 1]
    equal = f" (tied with {joined(tied)})" if tied else ""
    have, s = ("has", "s") if len(best) == 1 else ("have", "")
    said = [
        f"{joined([line.method for line in best])} {have} the highest AUROC, {_text(best[0], MAIN)}{equal}, and "
        f"{lets.format(s, joined([_text(line, ERROR) for line in best]))}."
    ]
    places = [
        f"{words} is number {_rank(named[name])} of {len(lines)} (AUROC {_text(named[name], MAIN)}, FPR95 "
        f"{_text(named[name], ERROR)})"
        for name, words in _WHO.items()
        if name in named and _rank(named[name]) > 1
    ]
    said += ["; ".join(places) + "."] if places else []
    return [*said, *_why(results, named)]


def _why(results: Results, named: dict[str, Line]) -> Iterator[str]:
    """Why OptFS is behind where distances beat the logits that it shapes features for, and where it leads."""
    distances = [line for name, line in named.items() if family(name) == "distance"]
    known = [ELSEWHERE[name] for name in results.names("benchmark") if name in ELSEWHERE]
    if OURS not in named or LOGITS not in named or not distances or not known or _rank(named[OURS]) == 1:
        return
    far = max(distances, key=lambda line: float(_text(line, MAIN)))
    if float(_text(far, MAIN)) <= float(_text(named[LOGITS], MAIN)):
        return
    yield (
        f"OptFS shapes features for the logits, and on these small networks logits tell less than distances "
        f"({LOGITS} {_text(named[LOGITS], MAIN)}, {far.method} {_text(far, MAIN)}). {' '.join(known)}"
    )


def _place(measure: str) -> int:
    return [each.name for each in SHOWN].index(measure)


def _text(line: Line, measure: str) -> str:
    return line.entries[-1].cells[_place(measure)].text


def _rank(line: Line) -> int:
    return line.entries[-1].cells[_place(MAIN)].rank
