"""Values that are no numbers are refused with their row by every way to compute a score."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oodshape import METHODS, Features, InputError
from oodshape.networks.head import Head

WIDTH, CLASSES = 24, 6
MEAN_ONLY = ("nci", "fdbd", "ora", "dice")


def some(rows: int = 60) -> Features:
    rng = np.random.default_rng(0)
    z = np.maximum(rng.normal(size=(rows, WIDTH)), 0).astype(np.float32)
    head = rng.normal(size=(CLASSES, WIDTH)).astype(np.float32), rng.normal(size=CLASSES).astype(np.float32)
    return Features.from_arrays(z, head, predictions=np.arange(rows) % CLASSES)


@pytest.mark.parametrize("name", ["nci", "fdbd", "ora", "dice"])
def test_a_mean_refuses_what_is_no_number(name: str) -> None:
    data = some()
    data._values[17, 3] = np.nan
    with pytest.raises(InputError, match="row 17 of the features holds a NaN or infinite value"):
        METHODS[name].fit(data)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("name", ["energy", "mls", "nci"])
def test_what_is_no_number_is_refused_whatever_its_weight(name: str, weight: float, bad: float) -> None:
    train = some()
    weights = train.head.weight.clone()
    weights[:, 5] = weight
    head = Head.of((weights, train.head.bias))
    values = train._values.copy()
    detector = METHODS[name].fit(Features.from_arrays(values, head))
    values[41, 5] = bad
    with pytest.raises(InputError, match="row 41 of the features holds a NaN or infinite value"):
        detector.score(Features.from_arrays(values, head))


def test_logits_too_large_for_a_number_are_those_of_finite_features() -> None:
    train = some()
    detector = METHODS["energy"].fit(train)
    values = train._values * np.float32(1e38)
    with pytest.raises(InputError, match="features are too large"):
        detector.score(Features.from_arrays(values, train.head))


def test_classes_of_the_same_weights_have_no_boundary_between_them() -> None:
    weight = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])
    wanted = torch.tensor([[0.0, 0.0, 0.2], [0.0, 0.0, 0.2], [0.2, 0.2, 0.0]])
    torch.testing.assert_close(Head.of((weight, None)).closeness, wanted)
