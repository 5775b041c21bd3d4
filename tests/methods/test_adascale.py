"""AdaSCALE against the steps of OpenOOD's implementation written in numpy; it needs images, and says so."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from oodshape import Classifier, Detector, Features, InputError, Method
from oodshape.methods.perturb.adascale import AdaScale
from oodshape.methods.records import RECORDS
from oodshape.methods.registry import find_method


class Net(nn.Module):
    """Flatten, a layer with ReLU, the head."""

    def __init__(self, inside: int, width: int, classes: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Linear(inside, width)
        self.fc = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.fc(self.body(images.flatten(1)).relu())


def theirs(net: Net, train: np.ndarray, images: np.ndarray, *, logits: bool) -> list[float]:
    """The steps of OpenOOD's postprocessor and wrapper (k1 = 5, k2 = 1, o = 0.05), image by image, in float64."""
    body, bias, head, last = (
        each.detach().double().numpy() for each in (net.body.weight, net.body.bias, net.fc.weight, net.fc.bias)
    )
    width = len(bias)

    def features(x: np.ndarray) -> np.ndarray:
        return np.maximum(body @ x + bias, 0)

    def moved(x: np.ndarray) -> np.ndarray:
        z = features(x)
        gradient = body.T @ (head[int(np.argmax(head @ z + last))] * (z > 0))
        few = np.argsort(np.abs(gradient), kind="stable")[: int(len(x) * 0.05)]
        step = np.zeros(len(x))
        step[few] = 0.5 * np.sign(gradient[few])
        return features(x + step)

    def norm(x: np.ndarray) -> float:
        z, y = features(x), moved(x)
        order = np.argsort(-z, kind="stable")
        return y[order[: int(width * 0.05)]].sum() + 10 * np.abs(z - y)[order[: int(width * 0.01)]].sum()

    known = np.array([norm(x) for x in train])
    scores = []
    for x in images:
        z = features(x)
        p = 60 + (1 - np.mean(known <= norm(x))) * 25
        k = width - round(width * p / 100)
        r = z.sum() / np.sort(z)[::-1][:k].sum()
        out = (head @ z + last) * r**2 if logits else head @ (z * math.exp(r)) + last
        scores.append(out.max() + math.log(np.exp(out - out.max()).sum()))
    return scores


@pytest.fixture(scope="module")
def data() -> tuple[Net, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return Net(3 * 8 * 8, 200, 5), torch.rand(40, 3, 8, 8), torch.rand(12, 3, 8, 8) * 1.5


@pytest.mark.parametrize("logits", [False, True])
def test_it_is_what_openood_does(data, logits: bool) -> None:
    net, train, images = data
    classifier = Classifier(net)
    step = AdaScale(on_logits=logits).learned(classifier, train.split(16))
    assert len(step.shifts) == 40
    features = Features.from_arrays(classifier(train).features, classifier.head)
    detector = Method(perturb=step).fit(features)
    before = images.clone()
    scores = detector.score(classifier, images)
    wanted = theirs(net, train.flatten(1).double().numpy(), images.flatten(1).double().numpy(), logits=logits)
    np.testing.assert_allclose(scores, wanted, rtol=1e-4)
    torch.testing.assert_close(images, before)
    parts = torch.cat([detector.score(classifier, part) for part in images.split(5)])
    torch.testing.assert_close(parts, scores, rtol=1e-5, atol=1e-5)


def test_it_needs_images_and_says_so(data, tmp_path) -> None:
    net, train, images = data
    classifier = Classifier(net)
    features = Features.from_arrays(classifier(train).features, classifier.head)
    method = find_method("adascale-a")
    with pytest.raises(InputError, match="has not seen training images"):
        method.fit(features).score(classifier, images)
    detector = Method(perturb=method.perturb.learned(classifier, [train])).fit(features)
    with pytest.raises(InputError, match="cannot score features alone"):
        detector.score(features)
    detector.save(tmp_path / "d.safetensors")
    again = Detector.load(tmp_path / "d.safetensors")
    assert again == detector
    assert torch.equal(again.score(classifier, images), detector.score(classifier, images))
    with pytest.raises(InputError, match="low must be less than high"):
        AdaScale(low=0.9, high=0.8)
    assert [name for name, record in RECORDS.items() if record.images_only] == ["adascale-a", "adascale-l"]
