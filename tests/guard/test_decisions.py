"""What a decision costs, what it is made on, and what a row without one says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch import Tensor

from oodshape import METHODS, Classifier, Detector, Features, Guard, InputError, Method
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.methods.perturb.odin import Odin
from oodshape.networks.zoo import build


class Counted(torch.nn.Module):
    """A network that counts its forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = build("digits-convnet")
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += 1
        logits: Tensor = self.net(images)
        return logits


@pytest.fixture(scope="module")
def net() -> Counted:
    return Counted()


@pytest.fixture(scope="module")
def images() -> Tensor:
    pictures = digits_sets()["train"]
    return DIGITS.batch(pictures[i] for i in range(60))


@pytest.fixture(scope="module")
def train(net: Counted, images: Tensor) -> Features:
    outputs = Classifier(net)(images)
    return Features.from_arrays(outputs.features.numpy(), outputs.head)


def fitted(method: Method, classifier: Classifier, train: Features, images: Tensor) -> Detector:
    detector = method.fit(train)
    return detector.calibrate(detector.score(classifier, images))


def test_a_decision_takes_one_forward_pass(net: Counted, train: Features, images: Tensor) -> None:
    classifier = Classifier(net, "net.head")
    detector = fitted(METHODS["optfs-e"], classifier, train, images)
    net.passes = 0
    decision = detector.decide(classifier, images[:8])
    assert net.passes == 1
    assert torch.equal(decision.classes, classifier(images[:8]).logits.argmax(dim=1))
    torch.testing.assert_close(decision.scores, detector.score(classifier, images[:8]))


def test_a_method_that_perturbs_takes_the_class_of_the_image_itself(
    net: Counted, train: Features, images: Tensor
) -> None:
    classifier = Classifier(net, "net.head")
    detector = fitted(Method(perturb=Odin(eps=0.2, std=DIGITS.std)), classifier, train, images)
    decision = detector.decide(classifier, images[:8])
    assert torch.equal(decision.classes, classifier(images[:8]).logits.argmax(dim=1))
    torch.testing.assert_close(decision.scores, detector.score(classifier, images[:8]))
    assert not torch.allclose(decision.scores, METHODS["energy"].fit(train).score(classifier, images[:8]))
    with pytest.raises(InputError, match="needs images"):
        detector.decide(classifier)


class Numbered(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.zeros(1, 16, 16), row


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"images": "train"}, "got dict"),
        (None, "give images to fit on, or parts"),
        (3, "got int"),
        ([3, 4], "got list with int at place 0"),
        (["a.png", None], "got list with NoneType at place 1"),
        (["a.png", torch.zeros(1)], r"\[C, H, W\] with 1, 3 or 4 channels, got \[1\]"),
        (torch.zeros(2, 1, 16, 16) - 1, r"lies in 0..1, got -1 to -1; .*prepared=True"),
        (torch.zeros(2, 1, 16, 16, dtype=torch.int64), "uint8, or float in 0..1, got torch.int64"),
        (np.zeros((2, 16, 16), np.uint8), r"got uint8\[2, 16, 16\]; gray images .* images\[..., None\]"),
        (np.zeros((16, 16)), r"got float64\[16, 16\]"),
        (np.zeros((0, 16, 16, 3), np.uint8), r"got uint8\[0, 16, 16, 3\]"),
        (torch.utils.data.DataLoader(Numbered(), batch_size=2), r"got \[2, 1, 16, 16\]; .*prepared=True"),
    ],
)
def test_what_is_no_image_is_refused_before_any_work(given: Any, named: str) -> None:
    with pytest.raises(InputError, match=named) as refused:
        Guard.fit("zoo:digits-convnet", images=given, method="msp")
    assert "\n" not in str(refused.value)


def test_score_refuses_when_it_is_called(tmp_path: Path) -> None:
    for i, picture in enumerate(digits_sets()["train"].images[:100]):
        PIL.Image.fromarray(picture).save(tmp_path / f"{i:02}.png")
    guard = Guard.fit("zoo:digits-convnet", images=tmp_path, method="msp", progress=False)
    with pytest.raises(InputError, match="got int"):
        guard.score(3, model="zoo:digits-convnet")  # no row is asked for
    with pytest.raises(InputError, match="got int"):
        guard.check(tmp_path, {"strange": 3}, model="zoo:digits-convnet")
    with pytest.raises(InputError, match="prepared=True takes .* got int"):
        guard.score(3, model="zoo:digits-convnet", prepared=True)
    (row,) = guard.score([tmp_path / "00.png"], model="zoo:digits-convnet")  # paths of any kind
    assert row.path == str(tmp_path / "00.png")
