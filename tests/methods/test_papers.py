"""Every method of the table says where its paper can be read."""

from __future__ import annotations

import pytest

from oodshape.methods.describe import PAPERS, cited
from oodshape.methods.table import ROWS


@pytest.mark.parametrize("name", ROWS)
def test_a_method_has_its_paper(name: str) -> None:
    found = cited(ROWS[name].paper)
    assert [title for title, _ in found] == ROWS[name].paper.split("*")[1::2]  # none without an address
    assert found or ROWS[name].paper.startswith("Our own")
    assert all(address.startswith("https://") for _, address in found)


def test_no_paper_is_kept_that_no_method_names() -> None:
    assert {title for row in ROWS.values() for title, _ in cited(row.paper)} == set(PAPERS)
