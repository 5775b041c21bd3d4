"""What the figures of studies promise a reader: true angles, points that can be told apart, the line where x = y."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from oodshape import METHODS
from oodshape.studies import drawing, figures
from oodshape.studies.drawing import missing


def test_angles_are_what_they_look_like() -> None:
    frame = pd.DataFrame({"ood": ["far"], "x": [0.4], "y": [0.3], "degrees": [36.9]})
    with drawing.look():
        figure = figures.draw_intuition(frame)
        figure.draw_without_rendering()
    (axes,) = figure.axes
    (origin, right, tip) = axes.transData.transform([(0, 0), (1, 0), (0.4, 0.3)])
    assert right[1] == pytest.approx(origin[1])
    assert np.degrees(np.arctan2(*(tip - origin)[::-1])) == pytest.approx(36.87, abs=0.1)


def test_methods_have_names_that_do_not_cover_each_other() -> None:
    names = [name for name in METHODS if not METHODS[name].wants_panel]
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"method": names, "convnets": 1 - 0.5 * rng.random(len(names)) ** 3, "others": 0.7})
    table["others"] = 1 - 0.6 * rng.random(len(names)) ** 3
    with drawing.look():
        figure = figures.draw_generalisation(table)
        figure.draw_without_rendering()
    (axes,) = figure.axes
    written = [text for text in axes.texts if text.get_text() in names]
    assert len(written) > len(names) / 2
    boxes = [Text.get_window_extent(text).shrunk(0.9, 0.9) for text in written]  # without its line
    for place, box in enumerate(boxes):
        assert box.count_overlaps(boxes[:place]) == 0, written[place].get_text()
    assert {name for name in names if name.startswith("optfs")} & {text.get_text() for text in written}
    (diagonal,) = (line for line in axes.lines if line.get_linestyle() == ":")
    np.testing.assert_allclose(diagonal.get_xdata(), diagonal.get_ydata())
    assert len(figure.legends[0].get_texts()) < 6


def test_what_is_missing_to_a_hundred_is_never_nothing() -> None:
    assert missing(0.9) == pytest.approx(10.0)
    assert missing(1.0) > 0
