"""The embedded benchmark: its images are what they claim to be, and its networks classify them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from oodshape.core.errors import InputError
from oodshape.images.datasets.digits import CLASSES, ROLES, SIDE, digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.image_set import ArraySet
from oodshape.networks.zoo.digits_nets import SMALL_NETS, small_net


def digest(data: ArraySet) -> str:
    return hashlib.sha256(data.images.tobytes() + data.labels.astype("<i8").tobytes()).hexdigest()[:16]


@pytest.fixture(scope="module")
def sets() -> dict[str, ArraySet]:
    return digits_sets()


def test_pixels_and_labels(sets):
    for data in sets.values():
        assert data.images.dtype == np.uint8
        assert data.images.shape == (len(data), SIDE, SIDE)
        assert data.labels.dtype == np.int64
        assert 300 <= len(data) <= 1000
        assert data.images.max() > 200  # 0..255, not 0..16 or 0..1
        if ROLES[data.name] in ("near", "far"):
            assert (data.labels == -1).all()
        else:
            assert set(data.labels.tolist()) == set(range(CLASSES))


def test_no_image_is_in_two_sets_or_twice_in_one(sets):
    seen = [image.tobytes() for data in sets.values() for image in data.images]
    assert len(seen) == len(set(seen))


def test_split_is_stratified_and_complete(sets):
    from sklearn.datasets import load_digits

    everything = np.bincount(load_digits().target)
    train, test = (np.bincount(sets[name].labels) for name in ("train", "test"))
    np.testing.assert_array_equal(train + test, everything[:CLASSES])
    np.testing.assert_allclose(train / everything[:CLASSES], 0.6, atol=0.01)
    assert len(sets["digits89"]) == everything[CLASSES:].sum()


def test_split_is_the_one_the_networks_were_trained_on(sets):
    known = {
        "train": "fc464ed7c9204848",
        "test": "11a82977dae00808",
        "gaussian": "73f7450a95d639aa",
        "uniform": "908f880e2d6099d8",
    }
    assert {name: digest(sets[name]) for name in known} == known


def test_bad_sets_are_refused():
    with pytest.raises(InputError, match=r"x: images must be uint8 \[N, H, W\(, 3\)\], got float64\[2, 4, 4\]"):
        ArraySet("x", np.zeros((2, 4, 4)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"x: 2 images need 2 labels, got \[3\]"):
        ArraySet("x", np.zeros((2, 4, 4), np.uint8), np.zeros(3, np.int64))


def test_normalize_constants_are_the_training_splits(sets):
    pixels = DIGITS.batch(sets["train"].images)
    assert pixels.shape == (len(sets["train"]), 1, SIDE, SIDE)
    assert pixels.dtype == torch.float32
    assert pixels.mean().item() == pytest.approx(0, abs=0.005)
    assert pixels.std().item() == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize("name", SMALL_NETS)
def test_shipped_network(name, sets):
    net = small_net(name)
    assert not net.training
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}
    with torch.inference_mode():
        images = DIGITS.batch(sets["test"].images)
        features, logits = net.features(images), net(images)
        torch.testing.assert_close(net.head(features), logits)
        torch.testing.assert_close(net(images[:7]), logits[:7], atol=1e-4, rtol=0)  # splitting changes nothing
    assert (logits.argmax(1).numpy() == sets["test"].labels).mean() >= 0.97
    assert isinstance(net.head, torch.nn.Linear)
    assert features.shape == (len(images), net.head.in_features)
    negative = (features < 0).float().mean().item()
    assert negative == 0 if name == "convnet" else 0.3 < negative < 0.7


def test_unknown_network_is_refused():
    with pytest.raises(InputError, match="no small network is called 'resnet'; choose one of convnet, vit, mixer"):
        small_net("resnet")
