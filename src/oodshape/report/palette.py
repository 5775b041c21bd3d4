"""Every colour of the project: figures, pages, scripts and docs take theirs from here and from nowhere else.

Familiar images (ID) are blue and strange ones (OOD) orange wherever they are drawn. Methods have the colour of their
family: those that read the logits, that shape features or weights, that measure distances; OptFS and the method that
chooses stand out. A test holds every colour to a contrast of 4.5 : 1 on each ground that it may stand on.
"""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple


class Ink(NamedTuple):
    """One colour, on light grounds and on dark ones."""

    light: str
    dark: str


# what stands below: pages, their panels, and paper
GROUNDS = {"ground": Ink("#ffffff", "#16171a"), "tint": Ink("#f4f5f7", "#212328")}
# what is read or told apart
INKS = {
    "text": Ink("#1c1c1e", "#e6e6e8"),
    "soft": Ink("#5b6067", "#a9adb5"),
    "link": Ink("#00568a", "#7cc4f5"),
    "wrong": Ink("#b3261e", "#ff8a80"),
    "id": Ink("#0068a8", "#6cbcf0"),
    "ood": Ink("#b84d00", "#f5a04c"),
    "logits": Ink("#00756a", "#4cc7b8"),
    "shaping": Ink("#7a4fa8", "#c3a1ec"),
    "distance": Ink("#63700f", "#b9c84e"),
    "optfs": Ink("#a81a6a", "#f58cc4"),
    "own": Ink("#7d5a3c", "#d3ae8e"),
    "rest": Ink("#666b73", "#a0a5ad"),
}
# lines and washes that nothing is read from
QUIET = {
    "line": Ink("#d8dadf", "#3a3d43"),
    "best": Ink("#d5ebdf", "#1d4a36"),
    "pale": Ink("#b8bcc4", "#5a5e66"),
    "shade": Ink("#00000033", "#000000aa"),
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


def site_css() -> str:
    """The same for the documentation, whose light and dark are switched by an attribute."""
    shown = INKS | QUIET

    def rule(where: str, dark: bool) -> str:
        return f"{where} {{ {' '.join(f'--{name}: {ink[dark]};' for name, ink in shown.items())} }}\n"

    return rule(":root", dark=False) + rule('[data-md-color-scheme="slate"]', dark=True)


_NAMES = {ink.light: name for name, ink in (INKS | QUIET).items()}
_COLOR = re.compile("|".join([TEXT, *_NAMES]), flags=re.IGNORECASE)


def themed(svg: str) -> str:
    """A figure drawn for paper, in colours that follow the page it stands in.

    >>> themed('<path style="stroke: #0068A8; fill: #010203"/>')
    '<path style="stroke: var(--id, #0068a8); fill: currentColor"/>'
    """

    def named(found: re.Match[str]) -> str:
        color = found[0].lower()
        return "currentColor" if color == TEXT else f"var(--{_NAMES[color]}, {color})"

    return _COLOR.sub(named, svg)


def inline(svg: str, label: str, name: str) -> str:
    """A figure's file as one element of a page: themed, labelled, its ids its own among the page's figures.

    >>> inline('<?xml version="1.0"?><svg role="img"><path id="a"/><use href="#a"/></svg>', "a < b", "one")
    '<svg aria-label="a &lt; b" role="img"><path id="one-a"/><use href="#one-a"/></svg>'
    """
    body = re.sub(r"\s+", " ", svg[svg.index("<svg") :]).strip()
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body).replace("> <", "><")  # these reach beyond it
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{re.sub(r'[^a-zA-Z0-9]+', '-', name)}-", body)
    head = body[: body.index(">")]
    spoken = "" if "aria-label" in head else f' aria-label="{escape(label)}"'
    role = "" if "role=" in head else ' role="img"'
    # the ground is the page's
    return themed(f"<svg{spoken}{role}{body.removeprefix('<svg')}".replace(f"fill: {PAPER}", "fill: none"))
