"""Plain lists in columns: a tidy table on a terminal, tabs elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from oodshape.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def print_columns(head: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> None:
    """The rows below their heads, if there are any; without a terminal a line per row, its cells separated by tabs."""
    from rich.table import Table
    from rich.text import Text

    head, rows = [printable(name) for name in head], [[printable(cell) for cell in row] for row in rows]
    if not console.is_terminal:
        for row in [*([head] if head else []), *rows]:
            console.file.write("\t".join(row) + "\n")  # rich would turn tabs into spaces
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(head))
    for place, name in enumerate(head or ("", "")):
        table.add_column(Text(name), no_wrap=place == 0, overflow="fold", style="" if head or place else "bold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
