"""The embedded benchmark: its images are what they claim to be, and its networks classify them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from oodshape.core.errors import InputError
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.image_set import ArraySet
from oodshape.networks.zoo.digits_nets import SMALL_NETS, load_small_net


def digest(data: ArraySet) -> str:
    return hashlib.sha256(data.images.tobytes() + data.labels.astype("<i8").tobytes()).hexdigest()[:16]


@pytest.fixture(scope="module")
def sets() -> dict[str, ArraySet]:
    return load_digits_sets()


def test_no_image_is_in_two_sets_or_twice_in_one(sets):
    seen = [image.tobytes() for data in sets.values() for image in data.images]
    assert len(seen) == len(set(seen))


def test_split_is_the_one_the_networks_were_trained_on(sets):
    known = {
        "train": "fc464ed7c9204848",
        "test": "11a82977dae00808",
        "gaussian": "73f7450a95d639aa",
        "uniform": "908f880e2d6099d8",
    }
    assert {name: digest(sets[name]) for name in known} == known


def test_bad_sets_are_refused():
    with pytest.raises(InputError, match=r"x: images are uint8 \[N, H, W\(, 3\)\], got float64\[2, 4, 4\]"):
        ArraySet("x", np.zeros((2, 4, 4)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"x: 2 images need 2 labels, got \[3\]"):
        ArraySet("x", np.zeros((2, 4, 4), np.uint8), np.zeros(3, np.int64))


@pytest.mark.parametrize("name", SMALL_NETS)
def test_shipped_network(name, sets):
    net = load_small_net(name)
    assert not net.training
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}
    with torch.inference_mode():
        images = DIGITS.batch(sets["test"].images)
        features, logits = net.features(images), net(images)
        torch.testing.assert_close(net.head(features), logits)
        torch.testing.assert_close(net(images[:7]), logits[:7], atol=1e-4, rtol=0)  # splitting changes nothing
    assert (logits.argmax(1).numpy() == sets["test"].labels).mean() >= 0.97
    assert features.shape == (len(images), net.head.in_features)
    negative = (features < 0).float().mean().item()
    assert negative == 0 if name == "convnet" else 0.3 < negative < 0.7
