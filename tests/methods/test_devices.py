"""Every tensor follows the network's device: each method's scoring runs on `meta`, next to the CPU's tensors.

A tensor on `meta` has a shape and no values. torch lets some operations mix it with tensors on the CPU, which no GPU
would, so every operation is looked at. Checks that look at values are left out there.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from oodshape import METHODS, Classifier, Features
from oodshape.features.proxy import proxy_features
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import ArraySet
from oodshape.methods.detector import Detector
from oodshape.methods.perturb.odin import Odin
from oodshape.methods.slots import Batch, Evidence

pytestmark = pytest.mark.usefixtures("one_thread")
GRAY = Preprocessing(mean=(0.5,), std=(0.5,))


class OneDevice(TorchDispatchMode):
    """Refuses an operation on tensors of two devices, but for copies and single numbers, as a GPU would."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor) and each.ndim > 0]
        devices = sorted({each.device.type for each in tensors})
        copies = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        assert len(devices) < 2 or func in copies, f"{func} mixes {' and '.join(devices)}"
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 4)).eval()


@pytest.fixture(scope="module")
def detectors(net: nn.Module) -> dict[str, Detector]:
    pictures = np.random.default_rng(0).integers(0, 256, size=(240, 8, 8), dtype=np.uint8)
    images = ArraySet("made", pictures)
    classifier = Classifier(net)
    train = Features.extract(classifier, images, GRAY, workers=0)
    proxy = proxy_features(classifier, images, GRAY, size=60, workers=0)
    return {name: method.fit(train, proxy=proxy) for name, method in METHODS.items()}


@pytest.mark.parametrize("name", METHODS)
def test_the_scores_of_a_method_stay_on_the_device_of_the_network(
    name: str, net: nn.Module, detectors: dict[str, Detector]
) -> None:
    there = Classifier(copy.deepcopy(net).to("meta"), head="3")
    seen = there(torch.rand(5, 1, 8, 8))  # images come from the CPU
    assert seen.features.device.type == seen.logits.device.type == seen.head.weight.device.type == "meta"
    with OneDevice():
        fitted, batch = detectors[name], Batch(seen.features, seen.head, given_logits=seen.logits, checked=False)
        scores = fitted.scorer.of(Evidence(batch, fitted.shape, fitted.head, fitted.head.bind(seen.head)))
    assert (scores.device.type, scores.shape, scores.dtype) == ("meta", (5,), torch.float32)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.exportable])
def test_a_guarded_network_goes_to_another_device_as_a_whole(
    name: str, net: nn.Module, detectors: dict[str, Detector]
) -> None:
    guarded = detectors[name].calibrate(np.linspace(0, 1, 50)).wrap(copy.deepcopy(net)).to("meta")
    guarded.checked = True  # which a value would tell
    with OneDevice():
        logits, score, accepted = guarded(torch.rand(5, 1, 8, 8, device="meta"))
    assert [each.device.type for each in (logits, score, accepted)] == ["meta"] * 3


def test_a_perturbation_stays_on_the_device_of_the_images(net: nn.Module) -> None:
    there = Classifier(copy.deepcopy(net).to("meta"), head="3")
    with OneDevice():
        assert Odin(eps=0.01)(there, torch.rand(5, 1, 8, 8, device="meta")).device.type == "meta"
