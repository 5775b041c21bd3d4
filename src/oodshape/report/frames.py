"""Any data frame as a Markdown or LaTeX table: numbers to the right, words to the left, a title, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oodshape.report.tables import _latex, _markdown

if TYPE_CHECKING:
    from pandas import DataFrame


def frame_markdown(frame: DataFrame, title: str, notes: Sequence[str] = ()) -> str:
    """The frame in GitHub's Markdown.

    >>> from pandas import DataFrame
    >>> print(frame_markdown(DataFrame({"set": ["a"], "AUROC": ["93.12"]}), "Title"), end="")
    **Title**
    <BLANKLINE>
    | set | AUROC |
    | --- | ---: |
    | a | 93.12 |
    """
    right = _numeric(frame)
    rows = [[_markdown(name) for name in frame.columns], ["---:" if r else "---" for r in right]]
    rows += [[_markdown(cell) for cell in row] for row in cells_of(frame)]
    lines = [f"**{_markdown(title)}**", "", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([*lines, *([""] if notes else []), *(f"- {_markdown(note)}" for note in notes)]) + "\n"


def frame_latex(frame: DataFrame, title: str, notes: Sequence[str] = ()) -> str:
    r"""The frame as a LaTeX `table` that needs the package booktabs only."""
    columns = "".join("r" if right else "l" for right in _numeric(frame))
    caption = " ".join(f"{_latex(part).rstrip('.')}." for part in (title, *notes))
    lines = [
        r"\begin{table}",
        r"  \centering\scriptsize\setlength{\tabcolsep}{1mm}",
        rf"  \caption{{{caption}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        "    " + " & ".join(_latex(name) for name in frame.columns) + r" \\",
        r"    \midrule",
        *("    " + " & ".join(_latex(cell) for cell in row) + r" \\" for row in cells_of(frame)),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def cells_of(frame: DataFrame) -> list[list[str]]:
    """The rows as they are printed, nothing for None."""
    return [["" if cell is None else str(cell) for cell in row] for row in frame.itertuples(index=False, name=None)]


def _numeric(frame: DataFrame) -> list[bool]:
    """Whether every cell of a column is a number or empty."""
    return [all(_is_number(cell) for cell in frame.iloc[:, place]) for place in range(frame.shape[1])]


def _is_number(cell: Any) -> bool:
    if cell is None or cell == "":
        return True
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True
