"""Every colour of the project: figures, pages, scripts and docs take theirs from here and from nowhere else.

ID images are blue and OOD images orange in every figure. Methods have the colour of their
family: those that read the logits, that shape features or weights, that measure distances; OptFS and the method that
chooses stand out. A test holds every colour to a contrast of 4.5 : 1 on each ground that it may stand on.
"""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """One colour, on light grounds and on dark ones."""

    light: str
    dark: str


# what stands below: pages, their panels, and paper
GROUNDS = {"ground": Colour("#ffffff", "#16171a"), "tint": Colour("#f4f5f7", "#212328")}
# what is read or told apart
INKS = {
    "text": Colour("#1c1c1e", "#e6e6e8"),
    "soft": Colour("#5b6067", "#a9adb5"),
    "link": Colour("#00568a", "#7cc4f5"),
    "wrong": Colour("#b3261e", "#ff8a80"),
    "right": Colour("#0f6b33", "#5fdc8f"),
    "warn": Colour("#855300", "#fbbf24"),
    "id": Colour("#0068a8", "#6cbcf0"),
    "ood": Colour("#b84d00", "#f5a04c"),
    "logits": Colour("#00756a", "#4cc7b8"),
    "shaping": Colour("#7a4fa8", "#c3a1ec"),
    "distance": Colour("#63700f", "#b9c84e"),
    "optfs": Colour("#a81a6a", "#f58cc4"),
    "own": Colour("#7d5a3c", "#d3ae8e"),
    "rest": Colour("#666b73", "#a0a5ad"),
}
# lines and washes that nothing is read from
QUIET = {
    "line": Colour("#d8dadf", "#3a3d43"),
    "best": Colour("#d5ebdf", "#1d4a36"),
    "pale": Colour("#b8bcc4", "#5a5e66"),
    "shade": Colour("#00000033", "#000000aa"),
}
ALL = {**GROUNDS, **INKS, **QUIET}

TEXT = "#010203"  # in a figure: the colour of the text around it, whatever that is
ID_COLOR, OOD_COLOR, PALE, WASH = (ALL[name].light for name in ("id", "ood", "rest", "pale"))
PAPER, PRINT = GROUNDS["ground"].light, INKS["text"].light  # for places that give a figure no colour


def page_css() -> str:
    """The colours as custom properties of a page that follows the reader's light or dark.

    >>> page_css()[:41]
    ':root { --ground: light-dark(#ffffff, #16'
    """
    return f":root {{ {' '.join(f'--{name}: light-dark({ink.light}, {ink.dark});' for name, ink in ALL.items())} }}\n"
