"""Format numbers and lists for sentences."""

from __future__ import annotations


def format_count(n: int, noun: str) -> str:
    """Format a count with its noun in the singular or plural.

    >>> format_count(1, "image"), format_count(0, "image"), format_count(1234, "image")
    ('1 image', '0 images', '1,234 images')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def join_names(names: list[str]) -> str:
    """Join names with commas and "and".

    >>> join_names(["a"]), join_names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), *names[-1:]])
