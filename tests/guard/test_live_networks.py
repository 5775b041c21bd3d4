"""An attached guard on networks of every kind: heads that are no nn.Linear, low precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oodshape import METHODS, Classifier, Features, Guard
from oodshape.guard.fitted import About
from oodshape.images.digits import digits_sets
from oodshape.images.preprocessing import DIGITS
from oodshape.networks.zoo import build

PICTURES = digits_sets()["test"].images[:12, :, :, None]


class Functional(nn.Module):
    """The digits' network with its last layer inside forward: the layer itself never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = build("digits-convnet")

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.net.features(x), self.net.head.weight, self.net.head.bias)


class Convolved(nn.Module):
    """The digits' network with a 1 x 1 convolution for its last layer."""

    def __init__(self) -> None:
        super().__init__()
        whole = build("digits-convnet")
        self.body, self.last = whole, nn.Conv2d(whole.head.in_features, whole.head.out_features, 1)
        self.last.weight.data.copy_(whole.head.weight.data[:, :, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body.features(x)[:, :, None, None]).flatten(1)


def guard_of(net: nn.Module, *, known: bool = True, **more: Any) -> Guard:
    classifier = Classifier(net, **more)
    outputs = classifier(DIGITS.batch(digits_sets()["train"].images[::8]))
    features = Features.from_arrays(outputs.features, outputs.head)
    detector = METHODS["optfs-e"].fit(features).calibrate(features)
    about = About(DIGITS if known else None, classifier.fingerprint, held_out=False, head=classifier.head_name or "")
    return Guard(detector, replace(about, precision=classifier.precision))


@pytest.mark.parametrize("kind", [Functional, Convolved])
@pytest.mark.parametrize("known", [True, False])
def test_a_head_that_is_no_linear_layer_takes_one_pass_and_no_lock(kind: type[nn.Module], known: bool) -> None:
    """Whether or not the guard knows a size of images to look at before the first call."""
    net = kind().eval()
    guard = guard_of(net, known=known)
    live = guard.attach(net)
    batch = DIGITS.batch(PICTURES[..., 0])
    said = live.tensors(batch)
    decided = guard.detector.decide(Classifier(net), batch)
    torch.testing.assert_close(said.scores, decided.scores, rtol=1e-4, atol=1e-4)
    assert torch.equal(said.classes, decided.classes)
    runs: list[int] = []
    count = next(module for module in live._guarded.modules() if isinstance(module, nn.Conv2d))  # type: ignore[union-attr]
    count.register_forward_hook(lambda *_: runs.append(1))
    live.tensors(batch)
    assert runs == [1]


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
