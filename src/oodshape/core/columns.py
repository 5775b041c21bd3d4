"""Plain lists in columns: a tidy table on a terminal, tabs elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def show_columns(head: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> None:
    """The rows below their heads; without a terminal one line per row, its cells separated by tabs."""
    from rich.table import Table
    from rich.text import Text

    if not console.is_terminal:
        for row in [head, *rows]:
            console.file.write("\t".join(row) + "\n")  # rich would turn tabs into spaces
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, name in enumerate(head):
        table.add_column(name, no_wrap=place == 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def show_facts(facts: Iterable[tuple[str, str]], console: Console) -> None:
    """Each fact on a line behind its name, wrapped at words on a terminal; those with nothing to say are left out."""
    from rich.table import Table
    from rich.text import Text

    said = [(name, text) for name, text in facts if text]
    if not console.is_terminal:
        for name, text in said:
            console.file.write(f"{name}\t{text}\n")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, text in said:
        table.add_row(name, Text(text))
    console.print(table)
