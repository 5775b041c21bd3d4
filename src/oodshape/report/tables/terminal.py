"""A table of methods on a terminal, cut to its width, and as aligned plain text."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from oodshape.core.text import printable
from oodshape.report.tables.markdown_latex import STYLED
from oodshape.report.tables.table import Cell, Entry, Table

SIGNED = "*: best of the column. +: second and third."


def print_table(table: Table, console: Console) -> None:
    """The table on a console: styled and cut to its width on a terminal, plain text elsewhere."""
    if console.is_terminal:
        console.print(to_rich(table, console.width))
    else:
        console.print(Text(to_text(table)), soft_wrap=True, end="")


def to_text(table: Table, width: int | None = None) -> str:
    """The table as aligned plain text, with a sign after the best values; in parts where it is wider than `width`."""
    console = Console(file=io.StringIO(), width=100_000, color_system=None)
    with console.capture() as capture:
        console.print(to_rich(table, width, plain=True), soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def to_rich(table: Table, width: int | None = None, *, plain: bool = False) -> Group:
    """The table for a terminal, or with signs in place of styles; in parts below each other if wider than `width`."""
    styles, signs = (("", "", ""), (" ", "*", "+")) if plain else (("", "bold", "underline"), ("", "", ""))
    names = [column.head + column.metric.arrow for column in table.columns]
    widths = [max(6, len(name)) for name in names]

    def text(cell: Cell, width: int) -> Text:
        return Text(" " * (width - len(cell.text))).append(cell.text, styles[cell.place]).append(signs[cell.place])

    def texts(entry: Entry) -> Text:
        return Text(" ").join(map(text, entry.cells, widths)).append(entry.mark())

    heads = " ".join(f"{name:>{width}}{signs[0]}" for name, width in zip(names, widths, strict=True))
    columns = [
        _centred(Text(printable(name)), Text(heads), *map(texts, column))
        for name, *column in zip(table.groups, *(line.entries for line in table.lines), strict=True)
    ]
    sizes = [3 + max(cell.cell_len for cell in column) for column in columns]  # two spaces and a divider
    first = 2 + max(cell_len(printable(name)) for name in ("method", *(line.method for line in table.lines)))
    parts: list[RenderableType] = [Text(printable(table.title), styles[1])]
    for chosen in _fitting(sizes, None if width is None else width - first):
        part = RichTable(box=box.ASCII2 if plain else box.SIMPLE_HEAD, header_style="", show_edge=plain)
        part.add_column("\nmethod", no_wrap=True)
        for j in chosen:
            part.add_column(Text("\n").join(columns[j][:2]), no_wrap=True)
        for i, line in enumerate(table.lines):
            if line.rule:
                part.add_section()
            part.add_row(Text(printable(line.method)), *(columns[j][i + 2] for j in chosen))
        parts += [Text(), part]
    return Group(*parts, Text(), *(Text(printable(line)) for line in (SIGNED if plain else STYLED, *table.notes)))


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
