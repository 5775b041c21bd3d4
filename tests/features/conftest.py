"""Fixtures of the tests of features."""

from __future__ import annotations

import pytest

from extraction_tools import CHUNK
from oodshape.features import extraction


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 16 rows, so that few images make several."""
    monkeypatch.setattr(extraction, "CHUNK", CHUNK)
