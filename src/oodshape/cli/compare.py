"""oodshape compare: parses, calls, prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oodshape.cli.shared_options import ColumnsOption, ResultsArgument, words
from oodshape.cli.terminal import console, say

if TYPE_CHECKING:
    from oodshape.benchmark.kept_scores import KeptScores
    from oodshape.metrics.significance import Difference

HEAD = ("network", "OOD set", "metric", "first", "second", "difference", "95 % interval", "p")
TIES_HEAD = ("network", "method", "mean AUROC", "to the best", "95 % interval", "p (all pairs)", "")


def compare(results: ResultsArgument, methods: str = "", columns: ColumnsOption = "") -> None:
    """Test whether one method is better than another on the images of a run.

    Both have scored the same images, so these are compared in pairs: AUROC by DeLong's test, other metrics by a
    bootstrap that draws the ID images once for all OOD sets. Without --methods, every method is
    compared with the best by mean AUROC; tied are those whose p-value, corrected over all pairs of methods, is at
    least 0.05. After a run with --seeds, the scores of the first seed are compared.

    Args:
        methods: Two methods, a,b: how much better a is. Without it: which are tied with the best.
    """
    from oodshape.benchmark.comparisons import compare_pair
    from oodshape.benchmark.kept_scores import KeptScores
    from oodshape.benchmark.results import CONVENTION, RunResults
    from oodshape.core.errors import InputError
    from oodshape.core.text import print_columns
    from oodshape.report.tables.table import parse_columns

    scores = KeptScores.load(results)
    asked, rows_of_run = parse_columns(columns), RunResults.load(results).rows
    chosen = words(methods)
    if columns and not chosen:
        raise InputError("--columns needs --methods a,b; which methods are tied with the best is by mean AUROC")
    kinds = {
        column.kind: {row.ood for row in rows_of_run if row.group == column.kind} for column in asked if column.kind
    }
    if not all(kinds.values()):
        raise InputError(
            f"--columns {columns}: no OOD set of this run is {' or '.join(k for k in kinds if not kinds[k])}"
        )
    averaged = [row.method for row in rows_of_run if row.seeds > 1]
    averaged = [name for name in dict.fromkeys(averaged) if name in (chosen or averaged)]
    if averaged:
        line = f"The results of {', '.join(averaged)} are means over seeds; the scores of the first seed are compared."
        say(f"{line} To compare another seed, run the benchmark with --seed.", err=True)
    if not chosen:
        _show_ties(scores)
        return
    if len(chosen) != 2:
        raise InputError(f"give two methods, --methods a,b, got {len(chosen)}: {methods!r}")
    rows = []
    for each in compare_pair(scores, *chosen, [*dict.fromkeys(c.metric for c in asked)], kinds=kinds):
        values = map(each.metric.show, (each.first, each.second))
        difference = _cells(each.difference, each.difference.p_value)
        rows.append([each.model, each.ood, each.metric.head, *values, *difference])
    print_columns(HEAD, rows, console())
    say(f"first: {chosen[0]}, second: {chosen[1]}; percent. {CONVENTION}")


def _show_ties(scores: KeptScores) -> None:
    from oodshape.benchmark.comparisons import compare_with_best
    from oodshape.core.text import print_columns

    rows = []
    for model, best, name, mean, difference, p_value in compare_with_best(scores):
        cells = ("", "", "", "best")
        if name != best:
            cells = (*_cells(difference, p_value), "tied" if p_value >= 0.05 else "worse")
        rows.append([model, name, f"{100 * mean:.2f}", *cells])
    print_columns(TIES_HEAD, rows, console())


def _cells(difference: Difference, p_value: float) -> tuple[str, str, str]:
    """A difference, its interval and its p-value."""
    limits = f"{_points(difference.low)} to {_points(difference.high)}"
    return _points(difference.value), limits, "< 0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def _points(value: float) -> str:
    """A difference in percent points; none has no sign.

    >>> _points(0.0123), _points(-0.00001)
    ('+1.23', '0.00')
    """
    text = f"{100 * value:+.2f}"
    return text[1:] if float(text) == 0 else text
