"""An attached guard on networks of every kind: heads that are no nn.Linear, low precision."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import nn

from oodshape import METHODS, Classifier, Features, Guard, InputError
from oodshape.guard.fitted import About
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.networks.zoo import build

PICTURES = digits_sets()["test"].images[:12, :, :, None]


def guard_of(net: nn.Module, *, known: bool = True, **more: Any) -> Guard:
    classifier = Classifier(net, **more)
    outputs = classifier(DIGITS.batch(digits_sets()["train"].images[::8]))
    features = Features.from_arrays(outputs.features, outputs.head)
    detector = METHODS["optfs-e"].fit(features).calibrate(features)
    about = About(DIGITS if known else None, classifier.fingerprint, held_out=False, head=classifier.head_name or "")
    return Guard(detector, replace(about, precision=classifier.precision))


def test_an_attached_guard_runs_in_the_precision_of_its_fit() -> None:
    net = build("digits-convnet")
    guard = guard_of(net, precision="bfloat16")
    rows = list(guard.score(PICTURES, model=net, progress=False))
    verdicts = guard.attach(net)(PICTURES)
    assert isinstance(verdicts, list)
    low = np.array([verdict.score for verdict in verdicts])
    np.testing.assert_allclose(low, [row.score for row in rows], rtol=1e-4)
    with pytest.warns(UserWarning, match="was fitted in bfloat16 and runs in float32"):
        exact = guard.attach(net, precision="float32")(PICTURES)
    assert np.abs(low - [verdict.score for verdict in exact]).max() > 1e-3 * np.abs(low).max()


def test_a_data_parallel_network_is_its_own_and_a_copy_of_low_precision_is_another() -> None:
    net = build("digits-convnet")
    guard = guard_of(net)
    wanted = guard.attach(net)(PICTURES)
    found = guard.attach(nn.DataParallel(net))(PICTURES)
    assert [each.accepted for each in found] == [each.accepted for each in wanted]
    for name, other in {"float16": copy.deepcopy(net).half(), "bfloat16": copy.deepcopy(net).bfloat16()}.items():
        with pytest.raises(InputError, match=f"its weights are {name}: a copy in another type is another network"):
            guard.attach(other)
