"""One palette: every colour is read well in light and dark, each means one thing, and no other file has colours."""

from __future__ import annotations

import pytest

from oodshape.methods.records import RECORDS
from oodshape.report import palette
from oodshape.report.method_styles import FAMILIES, family, style

SLATE = "#1e2129"  # the ground of the documentation in the dark: Material's hsl(232, 15%, 14%)


def luminance(color: str) -> float:
    """WCAG 2.2: relative luminance of an sRGB colour."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", palette.INKS)
def test_every_ink_is_read_on_every_ground(name: str) -> None:
    ink = palette.INKS[name]
    for ground in palette.GROUNDS.values():
        assert contrast(ink.light, ground.light) >= 4.5
        assert contrast(ink.dark, ground.dark) >= 4.5
    assert contrast(ink.dark, SLATE) >= 4.5
    assert contrast(palette.INKS["text"].light, palette.QUIET["best"].light) >= 4.5
    assert contrast(palette.INKS["text"].dark, palette.QUIET["best"].dark) >= 4.5


def test_no_method_has_the_colour_of_id_or_ood_images() -> None:
    assert len({ink.light for ink in palette.ALL.values()}) == len({ink.dark for ink in palette.ALL.values()})
    assert len({ink.light for ink in palette.ALL.values()}) == len(palette.ALL)
    for name in RECORDS:
        assert style(name).color not in (palette.ID_COLOR, palette.OOD_COLOR)
        assert style(name).family == family(name)
    assert {family(name) for name in RECORDS} | {"own"} == set(FAMILIES)
