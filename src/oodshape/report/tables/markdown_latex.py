"""Tables as text: one renderer for Markdown, one for LaTeX, for tables of methods and for any data frame.

The best value of a column is bold, the second and third are underlined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from oodshape.report.tables.table import Cell, Table

if TYPE_CHECKING:
    from pandas import DataFrame

STYLED = "Bold: best of the column. Underlined: second and third."


@dataclass(frozen=True)
class Grid:
    """What a renderer prints: heads, rows of (cell, what follows it), a letter of alignment per column, notes.

    `groups` stand above the heads, each over `span` of them, behind the first column; `rules` are the numbers of the
    rows with a rule above.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[tuple[Cell, str], ...], ...]
    align: str  # l, c or r each
    notes: tuple[str, ...]
    groups: tuple[str, ...] = ()
    span: int = 1
    rules: frozenset[int] = frozenset()

    @classmethod
    def of_table(cls, table: Table, corner: str) -> Grid:
        """The grid of a table of methods; the corner is the head of their names."""
        span = len(table.columns)
        return cls(
            title=table.title,
            heads=(corner, *(f"{each.head}{each.metric.arrow}" for _ in table.groups for each in table.columns)),
            rows=tuple(
                (
                    (Cell(line.method), ""),
                    *((cell, entry.mark) for entry in line.entries for cell in entry.cells),
                )
                for line in table.lines
            ),
            align="l" + "c" * span * len(table.groups),
            notes=(STYLED, *table.notes),
            groups=table.groups,
            span=span,
            rules=frozenset(place for place, line in enumerate(table.lines) if line.rule),
        )

    @classmethod
    def of_frame(cls, frame: DataFrame, title: str, notes: Sequence[str]) -> Grid:
        """The grid of a data frame: numbers to the right, words to the left."""
        numbers = (all(_is_number(cell) for cell in frame.iloc[:, place]) for place in range(frame.shape[1]))
        return cls(
            title=title,
            heads=tuple(map(str, frame.columns)),
            rows=tuple(tuple((Cell(text), "") for text in row) for row in cells_of(frame)),
            align="".join("r" if number else "l" for number in numbers),
            notes=tuple(notes),
        )


def to_markdown(table: Table) -> str:
    """The table in GitHub's Markdown."""
    return _markdown(Grid.of_table(table, "method"))


def to_latex(table: Table) -> str:
    r"""The table as a LaTeX `table` that needs the package booktabs only."""
    return _latex(Grid.of_table(table, "Method"))


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
    return _markdown(Grid.of_frame(frame, title, notes))


def frame_latex(frame: DataFrame, title: str, notes: Sequence[str] = ()) -> str:
    r"""The frame as a LaTeX `table` that needs the package booktabs only."""
    return _latex(Grid.of_frame(frame, title, notes))


def cells_of(frame: DataFrame) -> list[list[str]]:
    """The rows as they are printed, nothing for None."""
    return [["" if cell is None else str(cell) for cell in row] for row in frame.itertuples(index=False, name=None)]


def _is_number(cell: Any) -> bool:
    if cell is None or cell == "":
        return True
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _markdown(grid: Grid) -> str:
    marks = ("{}", "**{}**", "<u>{}</u>")
    groups = [f"{group} " for group in grid.groups for _ in range(grid.span)] or [""] * (len(grid.heads) - 1)
    rows = [[_in_markdown(group + head) for group, head in zip(["", *groups], grid.heads, strict=True)]]
    rows.append(["---" if letter == "l" else "---:" for letter in grid.align])
    rows += [[marks[cell.place].format(_in_markdown(cell.text)) + after for cell, after in row] for row in grid.rows]
    notes = ["", *(f"- {_in_markdown(note)}" for note in grid.notes)] if grid.notes else []
    lines = [f"**{_in_markdown(grid.title)}**", "", *(f"| {' | '.join(row)} |" for row in rows), *notes]
    return "\n".join(lines) + "\n"


def _latex(grid: Grid) -> str:
    marks = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")
    caption = " ".join(f"{_in_latex(part).rstrip('.')}." for part in (grid.title, *grid.notes))
    lines = [
        r"\begin{table}",
        r"  \centering\scriptsize\setlength{\tabcolsep}{1mm}",
        rf"  \caption{{{caption}}}",
        rf"  \begin{{tabular}}{{{grid.align}}}",
        r"    \toprule",
    ]
    if grid.groups:
        groups = [rf"\multicolumn{{{grid.span}}}{{c}}{{{_in_latex(group)}}}" for group in grid.groups]
        starts = [2 + grid.span * place for place in range(len(groups))]
        rules = [rf"\cmidrule(lr){{{start}-{start + grid.span - 1}}}" for start in starts]
        lines += [f"    {' & '.join(['', *groups]).strip()} " + r"\\", "    " + " ".join(rules)]
    lines += ["    " + " & ".join(map(_in_latex, grid.heads)) + r" \\", r"    \midrule"]
    for place, row in enumerate(grid.rows):
        lines += [r"    \midrule"] if place in grid.rules else []
        cells = [marks[cell.place].format(_in_latex(cell.text)) + after for cell, after in row]
        lines.append("    " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]) + "\n"


def _in_markdown(text: str) -> str:
    """Text that Markdown shows as it is; an underscore inside a word needs no care."""
    return re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w))", r"\\\1", escape(_line(text), quote=False))


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"} | {c: "\\" + c for c in "&%$#_{}"}
_LATEX |= {"↑": r"$\uparrow$", "↓": r"$\downarrow$"}


def _in_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in _line(text))


def _line(text: str) -> str:
    return " ".join(text.split())
