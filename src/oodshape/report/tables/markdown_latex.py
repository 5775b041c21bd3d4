"""Tables as Markdown and LaTeX, of methods and of any data frame.

The best value of a column is bold, the second and third are underlined.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from pandas import DataFrame, Series, to_numeric

from oodshape.core.text import printable, slug
from oodshape.metrics.registry import MAIN
from oodshape.report.method_styles import display_name
from oodshape.report.tables.table import Cell, Column, Table

STYLED = "Bold: best of the column. Underlined: second and third."
NAMED = ("method", "base")  # columns of data frames that hold methods
COLUMN = 64  # characters that fit into one column of a page with two
HEAD = 12  # characters of a head in one line


@dataclass(frozen=True)
class PrintedGrid:
    """A table as a renderer prints it: heads, rows of (cell, suffix), a letter of alignment per column, notes.

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
    def of_table(cls, table: Table, show: Callable[[str], str] = str) -> PrintedGrid:
        """The grid of a table of methods, which are called as `show` says."""
        span = len(table.columns)
        tested = [each == Column(MAIN) for each in table.columns]
        rows = [[(Cell(show(line.method)), "")] for line in table.lines]
        for row, line in zip(rows, table.lines, strict=True):
            for entry in line.entries:
                row += zip(entry.cells, map(entry.mark, tested), strict=True)
        return cls(
            title=table.title,
            heads=("method", *(f"{each.head}{each.metric.arrow}" for _ in table.groups for each in table.columns)),
            rows=tuple(map(tuple, rows)),
            align="l" + "c" * span * len(table.groups),
            notes=(STYLED, *table.notes),
            groups=table.groups,
            span=span,
            rules=frozenset(place for place, line in enumerate(table.lines) if line.rule),
        )

    @classmethod
    def of_frame(cls, frame: DataFrame, title: str, notes: Sequence[str]) -> PrintedGrid:
        """The grid of a data frame: numbers to the right, words to the left."""
        numbers = (_holds_numbers(frame.iloc[:, place]) for place in range(frame.shape[1]))
        return cls(
            title=title,
            heads=tuple(map(str, frame.columns)),
            rows=tuple(tuple((Cell(text), "") for text in row) for row in format_cells(frame)),
            align="".join("r" if number else "l" for number in numbers),
            notes=tuple(notes),
        )


def to_markdown(table: Table) -> str:
    """The table in GitHub's Markdown."""
    return _markdown(PrintedGrid.of_table(table))


def to_latex(table: Table) -> str:
    r"""The table as a LaTeX `table`, or `table*` where it is wide; it needs the packages booktabs and graphicx."""
    grid = PrintedGrid.of_table(table, lambda name: table.names.get(name, display_name(name)))
    return _latex(replace(grid, heads=("Method", *grid.heads[1:])), slug(table.title))


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
    return _markdown(PrintedGrid.of_frame(frame, title, notes))


def frame_latex(frame: DataFrame, title: str, notes: Sequence[str] = (), label: str = "") -> str:
    r"""The frame as a LaTeX table with methods under their display names; it needs booktabs and graphicx."""
    named = frame.assign(**{name: frame[name].map(display_name) for name in NAMED if name in frame})
    return _latex(PrintedGrid.of_frame(named.rename(columns=display_name), title, notes), label or slug(title))


def format_cells(frame: DataFrame) -> list[list[str]]:
    """Format the cells of all rows; None becomes empty."""
    return [["" if cell is None else str(cell) for cell in row] for row in frame.itertuples(index=False, name=None)]


def _holds_numbers(column: Series[Any]) -> bool:
    return bool((to_numeric(column, errors="coerce").notna() | column.isna() | (column == "")).all())


def _markdown(grid: PrintedGrid) -> str:
    marks = ("{}", "**{}**", "<u>{}</u>")
    groups = [f"{group} " for group in grid.groups for _ in range(grid.span)] or [""] * (len(grid.heads) - 1)
    rows = [[_in_markdown(group + head) for group, head in zip(["", *groups], grid.heads, strict=True)]]
    rows.append(["---" if letter == "l" else "---:" for letter in grid.align])
    rows += [[marks[cell.place].format(_in_markdown(cell.text)) + after for cell, after in row] for row in grid.rows]
    notes = ["", *(f"- {_in_markdown(note)}" for note in grid.notes)] if grid.notes else []
    lines = [f"**{_in_markdown(grid.title)}**", "", *(f"| {' | '.join(row)} |" for row in rows), *notes]
    return "\n".join(lines) + "\n"


def _latex(grid: PrintedGrid, label: str) -> str:
    marks = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")
    heads = [textwrap.wrap(head, HEAD, break_long_words=False) for head in grid.heads]
    columns = zip(*([len(cell.text + after) for cell, after in row] for row in grid.rows), strict=True)
    widths = [2 + max(*lengths, *map(len, head), 0) for lengths, head in zip(columns, heads, strict=True)]
    kind = "table*" if sum(widths) > COLUMN else "table"
    lines = [
        rf"\begin{{{kind}}}",
        r"  \centering\scriptsize\setlength{\tabcolsep}{1mm}",
        rf"  \caption{{{_in_latex(grid.title).rstrip('.')}.}}",
        rf"  \label{{tab:{label}}}",
        r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"  \begin{{tabular}}{{{grid.align}}}",
        r"    \toprule",
    ]
    if grid.groups:
        groups = [rf"\multicolumn{{{grid.span}}}{{c}}{{{_in_latex(group)}}}" for group in grid.groups]
        starts = [2 + grid.span * place for place in range(len(groups))]
        rules = [rf"\cmidrule(lr){{{start}-{start + grid.span - 1}}}" for start in starts]
        lines += [f"    {' & '.join(['', *groups]).strip()} " + r"\\", "    " + " ".join(rules)]
    stacked = [r" \\ ".join(map(_in_latex, head)) for head in heads]
    shown = [
        rf"\shortstack[{side}]{{{text}}}" if len(head) > 1 else text
        for text, head, side in zip(stacked, heads, grid.align, strict=True)
    ]
    lines += ["    " + " & ".join(shown) + r" \\", r"    \midrule"]
    for place, row in enumerate(grid.rows):
        lines += [r"    \midrule"] if place in grid.rules else []
        cells = [marks[cell.place].format(_in_latex(cell.text)) + after for cell, after in row]
        lines.append("    " + " & ".join(cells) + r" \\")
    notes = " ".join(f"{_in_latex(note).rstrip('.')}." for note in grid.notes)
    below = [rf"  \par\smallskip\begin{{minipage}}{{\linewidth}}\raggedright {notes}\end{{minipage}}"] if notes else []
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}}", *below, rf"\end{{{kind}}}"]) + "\n"


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
    return printable(" ".join(text.split()))
