"""Files of one kind that are given where another is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodshape import InputError, Watch
from oodshape.core import files


def test_any_kind_says_the_way_out(tmp_path: Path) -> None:
    state, other = tmp_path / "state.safetensors", tmp_path / "notes.txt"
    Watch.begin(alpha=0.05, n_calibration=99).save(state)
    other.write_text("no tensors")
    for kind in files.WAY_OUT:
        if kind != "watch":
            with pytest.raises(InputError, match=f"holds watch, not {kind}; give "):
                files.load(state, kind)
        with pytest.raises(InputError, match="is not an oodshape file, or it is damaged .*; give "):
            files.load(other, kind)
