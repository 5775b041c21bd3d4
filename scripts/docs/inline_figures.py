"""The palette and the figures of the package in the pages of the documentation."""

from __future__ import annotations

import re
from html import escape

from oodshape.report.palette import INKS, PAPER, QUIET, TEXT


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
