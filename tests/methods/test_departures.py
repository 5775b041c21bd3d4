"""The table of departures names methods that exist, and what it says methods are held to is what tests do."""

from __future__ import annotations

import json
from pathlib import Path

from oodshape import METHODS
from oodshape.methods.describe import (
    DEPARTURES,
    IN_CODE,
    IN_PYTORCH_OOD,
    OPENOOD,
    OWN,
    compared_with,
    describe_departures,
    describe_method,
)
from oodshape.methods.openood_settings import openood_settings
from oodshape.methods.table import IMAGE_ROWS


def test_every_method_says_how_it_departs() -> None:
    assert {name for each in DEPARTURES for name in each.methods} <= METHODS.keys() | IMAGE_ROWS.keys()
    for name in (*METHODS, *IMAGE_ROWS):
        assert dict(describe_method(name))["beside its authors' code"] == describe_departures(name)
        assert describe_departures(name).endswith(".")
    assert set(OWN) <= METHODS.keys()


def test_the_code_that_methods_are_held_to_is_that_of_the_tests(shared) -> None:
    oracle = json.loads((shared / "oracle" / "cifar10_densenet101.json").read_text())["results"]
    assert {name.partition("(")[0] for name in oracle} == set(IN_CODE)
    here = (Path(__file__).parent / "test_newer.py").read_text().partition("def test_pytorch_ood_agrees")[2]
    assert all(f'METHODS["{name}"]' in here or name.capitalize() in here for name in IN_PYTORCH_OOD)
    held = {name for name in METHODS if OPENOOD in compared_with(name)}
    assert held == {name for name, setting in openood_settings().items() if setting.theirs}
