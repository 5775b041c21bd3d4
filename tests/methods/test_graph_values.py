"""A graph and a compiled loop take the same side at every edge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from data import features
from oodshape import METHODS
from oodshape.methods.shapes.piecewise import PiecewiseConstant

ANY_BATCH = ({0: torch.export.Dim("n")},)


@pytest.mark.parametrize("form", ["eager", "exported"])
def test_no_value_changes_sides_at_an_edge(form: str) -> None:
    shape = METHODS["optfs-v"].fit(features(300, width=101, classes=5)).shape
    assert isinstance(shape, PiecewiseConstant)
    below = np.nextafter(shape.edges, np.float32(-np.inf))
    rows = torch.from_numpy(np.stack([shape.edges, below, np.nextafter(shape.edges, np.float32(np.inf))]))
    theta = np.pad(shape.theta, 1)
    places = np.arange(1, 102)
    wanted = torch.from_numpy(np.stack([theta[places], theta[places - 1], theta[places]])) * rows

    class Shaped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shape = shape.traced()
            self.shape(rows)

        def forward(self, z: Tensor) -> Tensor:
            return self.shape(z)

    module: nn.Module = Shaped()
    if form == "exported":
        module = torch.export.export(module, (rows,), dynamic_shapes=ANY_BATCH).module()
    assert torch.equal(module(rows), wanted)
    assert torch.equal(shape(rows), wanted)  # the compiled loop
