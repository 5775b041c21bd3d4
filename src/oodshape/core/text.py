"""Numbers in sentences."""

from __future__ import annotations


def counted(n: int, noun: str) -> str:
    """How many there are, in the singular where there is one.

    >>> counted(1, "image"), counted(0, "image"), counted(1234, "image")
    ('1 image', '0 images', '1,234 images')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def joined(names: list[str]) -> str:
    """Names in a sentence.

    >>> joined(["a"]), joined(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), *names[-1:]])
