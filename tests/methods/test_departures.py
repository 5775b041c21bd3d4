"""Every method says where its paper can be read and how it departs from it."""

from __future__ import annotations

import json

import pytest

from oodshape import METHODS
from oodshape.methods.describe import (
    DEPARTURES,
    IN_CODE,
    OPENOOD,
    OWN,
    cited,
    compared_with,
    describe_departures,
    describe_method,
)
from oodshape.methods.openood_settings import openood_settings
from oodshape.methods.registry import IMAGE_ROWS, ROWS


def test_every_method_says_how_it_departs() -> None:
    assert {name for each in DEPARTURES for name in each.methods} <= METHODS.keys() | IMAGE_ROWS.keys()
    for name in (*METHODS, *IMAGE_ROWS):
        assert dict(describe_method(name))["beside its authors' code"] == describe_departures(name)
        assert describe_departures(name).endswith(".")
    assert set(OWN) <= METHODS.keys()


def test_the_code_that_methods_are_held_to_is_that_of_the_tests(shared) -> None:
    oracle = json.loads((shared / "oracle" / "cifar10_densenet101.json").read_text())["results"]
    assert {name.partition("(")[0] for name in oracle} == set(IN_CODE)
    held = {name for name in METHODS if OPENOOD in compared_with(name)}
    assert held == {name for name, setting in openood_settings().items() if setting.theirs}


@pytest.mark.parametrize("name", ROWS)
def test_a_method_has_its_paper(name: str) -> None:
    found = cited(ROWS[name].paper)
    assert [title for title, _ in found] == ROWS[name].paper.split("*")[1::2]  # none without an address
    assert found or ROWS[name].paper.startswith("Our own")
    assert all(address.startswith("https://") for _, address in found)
