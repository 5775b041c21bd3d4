"""Text for people: numbers, names, lists and columns, without characters that a terminal would obey."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from oodshape.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

# Control characters, marks that change the direction of text, line separators, halves of characters
UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    r"""Escape what a terminal would obey instead of show, other than the characters in `keep`.

    Names of files and texts in files come from anyone: they must not move the cursor, hide text or forge a line.

    >>> print(printable("a\x1b[2J\n.png"))
    a\x1b[2J\n.png
    """
    return UNSHOWN.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def format_count(n: int, noun: str) -> str:
    """Format a count with its noun in the singular or plural.

    >>> format_count(1, "image"), format_count(0, "image"), format_count(1234, "image")
    ('1 image', '0 images', '1,234 images')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def format_rate(rate: float) -> str:
    """Format a fraction in percent.

    >>> format_rate(0.0525)
    '5.2 %'
    """
    return f"{100 * rate:.1f} %"


def parse_count(text: str) -> int:
    """Read a whole number, which may end in K, M or G (1024, 1024^2, 1024^3); others raise ValueError.

    >>> parse_count("48M"), parse_count("1_000")
    (50331648, 1000)
    """
    found = re.fullmatch(r"([0-9][0-9_]*)([KMG]?)", text)
    if found is None:
        raise ValueError(text)
    return int(found[1].replace("_", "")) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def parse_settings(items: Iterable[str], kinds: Mapping[str, Callable[[str], Any]], expected: str) -> dict[str, Any]:
    """Read `name=value` pairs; `kinds` has the names and reads the values, `expected` begins the error message.

    >>> parse_settings(["aspect=50", "pixels=2K"], {"pixels": parse_count, "aspect": int}, "limits are ...")
    {'aspect': 50, 'pixels': 2048}
    """
    found: dict[str, Any] = {}
    for item in filter(None, map(str.strip, items)):
        name, _, value = (part.strip() for part in item.partition("="))
        try:
            if name in found:
                raise ValueError(name)
            found[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise InputError(f"{expected}, each at most once; got {item!r}") from None
    return found


def facts_html(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values as a small HTML table, for notebooks.

    >>> facts_html([("label", "cat & dog")])
    '<table><tr><th>label</th><td>cat &amp; dog</td></tr></table>'
    """
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    return f"<table>{''.join(rows)}</table>"


def join_names(names: list[str]) -> str:
    """Join names with commas and "and".

    >>> join_names(["a"]), join_names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), *names[-1:]])


def slug(name: str) -> str:
    """Turn a name into a part of a label or a file name.

    >>> slug("MLP-Mixer (B/16)")
    'mlp-mixer-b-16'
    """
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")


def print_columns(head: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> None:
    """Print rows below their heads, if there are any; without a terminal a line per row, with tabs between cells."""
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
