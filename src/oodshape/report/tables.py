"""Tables as the paper prints them, for a terminal, as plain text, as Markdown and as LaTeX.

The best value of a column is bold, the second and third are underlined.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html import escape

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from oodshape.report.pivot import Cell, Line, Pair, Table, table

__all__ = ["Cell", "Line", "Pair", "Table", "show", "table", "to_latex", "to_markdown", "to_rich", "to_text"]

STYLED = "Bold: best of the column. Underlined: second and third."
SIGNED = "*: best of the column. +: second and third."


def show(table: Table, console: Console) -> None:
    """The table on a console: styled and cut to its width on a terminal, plain text elsewhere."""
    if console.is_terminal:
        console.print(to_rich(table, console.width))
    else:
        console.print(Text(to_text(table)), soft_wrap=True, end="")


def to_rich(table: Table, width: int | None = None) -> Group:
    """The table for a terminal; in several parts, one below the other, where it is wider than `width`."""
    return _group(table, width, styles=("", "bold", "underline"), signs=("", "", ""), note=STYLED)


def to_text(table: Table) -> str:
    """The table as aligned plain text, with a sign after the best values."""
    group = _group(table, None, styles=("", "", ""), signs=(" ", "*", "+"), note=SIGNED)
    console = Console(file=io.StringIO(), width=100_000, color_system=None)
    with console.capture() as capture:
        console.print(group, soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _group(
    table: Table, width: int | None, *, styles: tuple[str, str, str], signs: tuple[str, str, str], note: str
) -> Group:
    def text(cell: Cell) -> Text:
        place = _place(cell)
        return Text(" " * (6 - len(cell.text))).append(cell.text, styles[place]).append(signs[place])

    heads = "   FP↓" + signs[0] + "    AU↑" + signs[0]
    columns = [
        _centred(Text(name), Text(heads), *(Text.assemble(text(p.fp), " ", text(p.au), p.mark) for p in column))
        for name, *column in zip(table.groups, *(line.pairs for line in table.lines), strict=True)
    ]
    sizes = [3 + max(cell.cell_len for cell in column) for column in columns]  # two spaces and a divider
    first = 2 + max(cell_len(name) for name in ("method", *(line.method for line in table.lines)))
    parts: list[RenderableType] = [Text(table.title, "bold" if styles[1] else "")]
    for chosen in _fitting(sizes, None if width is None else width - first):
        part = RichTable(box=box.SIMPLE_HEAD if styles[1] else box.ASCII2, header_style="", show_edge=not styles[1])
        part.add_column("\nmethod", no_wrap=True)
        for j in chosen:
            part.add_column(Text("\n").join(columns[j][:2]), no_wrap=True)
        for i, line in enumerate(table.lines):
            if line.rule:
                part.add_section()
            part.add_row(Text(line.method), *(columns[j][i + 2] for j in chosen))
        parts += [Text(), part]
    return Group(*parts, Text(), *(Text(line) for line in (note, *table.notes)))


def _centred(name: Text, *cells: Text) -> list[Text]:
    """The name above the cells, the narrower of the two in the middle; digits stay below digits."""
    width = max(cell.cell_len for cell in cells)
    name.pad_left(max(width - name.cell_len, 0) // 2)
    for cell in cells:
        cell.pad_left(max(name.cell_len - width, 0) // 2)
    return [name, *cells]


def _fitting(sizes: list[int], width: int | None) -> Iterator[list[int]]:
    """The column numbers in runs whose sizes add up to at most `width`, and of at least one column."""
    run: list[int] = []
    for j, size in enumerate(sizes):
        if run and width is not None and sum(sizes[k] for k in run) + size > width:
            yield run
            run = []
        run.append(j)
    yield run


def _place(cell: Cell) -> int:
    """0 for an ordinary value, 1 for the best, 2 for the second and third."""
    return (0, 1, 2, 2)[cell.rank] if cell.rank <= 3 else 0


def to_markdown(table: Table) -> str:
    """The table in GitHub's Markdown."""
    marks = ("{}", "**{}**", "<u>{}</u>")
    names = [f"{_markdown(group)} {head}" for group in table.groups for head in ("FP↓", "AU↑")]
    rows = [["method", *names], ["---", *("---:" for _ in names)]]
    rows += [[_markdown(line.method), *_values(line, marks)] for line in table.lines]
    lines = [f"**{_markdown(table.title)}**", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, *(f"- {_markdown(note)}" for note in (STYLED, *table.notes))]) + "\n"


def to_latex(table: Table) -> str:
    r"""The table as a LaTeX `table` that needs the package booktabs only."""
    marks = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")
    groups = [rf"\multicolumn{{2}}{{c}}{{{_latex(group)}}}" for group in table.groups]
    rules = [rf"\cmidrule(lr){{{2 * j + 2}-{2 * j + 3}}}" for j in range(len(groups))]
    heads = [r"FP$\downarrow$", r"AU$\uparrow$"] * len(groups)
    caption = " ".join(f"{_latex(part).rstrip('.')}." for part in (table.title, STYLED, *table.notes))
    lines = [
        r"\begin{table}",
        r"  \centering\scriptsize\setlength{\tabcolsep}{1mm}",
        rf"  \caption{{{caption}}}",
        rf"  \begin{{tabular}}{{l{'cc' * len(groups)}}}",
        r"    \toprule",
        f"    {' & '.join(['', *groups]).strip()} " + r"\\",
        "    " + " ".join(rules),
        f"    {' & '.join(['Method', *heads])} " + r"\\",
        r"    \midrule",
    ]
    for line in table.lines:
        lines += [r"    \midrule"] if line.rule else []
        lines += [f"    {' & '.join([_latex(line.method), *_values(line, marks)])} " + r"\\"]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]) + "\n"


def _values(line: Line, marks: tuple[str, str, str]) -> Iterator[str]:
    """The printed values of a line, both of each pair in turn, in their marks."""
    for pair in line.pairs:
        for cell in (pair.fp, pair.au):
            yield marks[_place(cell)].format(cell.text) + pair.mark


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is; an underscore inside a word needs no care."""
    return re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w))", r"\\\1", escape(_line(text), quote=False))


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"} | {c: "\\" + c for c in "&%$#_{}"}


def _latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in _line(text))


def _line(text: str) -> str:
    return " ".join(text.split())
