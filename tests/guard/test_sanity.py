"""The sanity check of fit: noise and constant images, what is stored, shown and warned of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import call
from oodshape import Classifier, Guard
from oodshape.features.proxy import proxy_features
from oodshape.guard.describe import facts, lines
from oodshape.guard.fit.sanity import image_batches, tensor_batches
from oodshape.images.datasets.synthetic import constant_images, lattice_images, noise_images
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.networks.zoo import build

MODEL = "zoo:digits-convnet"


@pytest.fixture(scope="module")
def energy(digits: Path) -> Guard:
    return Guard.fit(MODEL, images=digits / "train", calibrate=digits / "val", method="energy", progress=False)


def test_the_images_are_those_it_says() -> None:
    noise, constant = noise_images(8, 6, 3), constant_images(8, 6, 3)
    assert (noise.shape, constant.shape) == ((128, 8, 6, 3), (64, 8, 6, 3))
    assert np.mean((noise[:64] == 0) | (noise[:64] == 255)) > 0.25  # Gaussian noise of so large a spread is clipped
    assert np.mean((noise[64:] == 0) | (noise[64:] == 255)) < 0.02
    assert (constant == constant[:, :1, :1]).all()
    assert (constant[0].max(), constant[1].min()) == (0, 255)
    assert len(np.unique(constant[:, 0, 0], axis=0)) == 64
    assert np.array_equal(noise, noise_images(8, 6, 3))


def test_guards_are_fitted_on_other_images() -> None:
    """Neither noise nor colours are those of the check, but for black and white."""
    other = {image.tobytes() for image in (*noise_images(8, 6, 3, 1), *lattice_images(8, 6, 3))}
    assert sum(image.tobytes() in other for image in (*noise_images(8, 6, 3), *constant_images(8, 6, 3))) == 2
    assert (lattice_images(8, 6, 3).shape, lattice_images(8, 6, 5).shape) == ((216, 8, 6, 3), (216, 8, 6, 5))


def test_noise_and_constant_images_follow_the_scrambled_ones(digits: Path) -> None:
    classifier = Classifier(build("digits-convnet"))
    found = proxy_features(classifier, digits / "val", DIGITS, progress=False)
    tensors = proxy_features(classifier, torch.rand(20, 1, 16, 16), prepared=True, progress=False)
    assert [len(each) for each in found] == [150, 128, 256]
    assert [len(each) for each in tensors] == [20, 192, 256]


def test_the_rates_are_those_of_the_images_through_the_network(energy: Guard) -> None:
    classifier = Classifier(build("digits-convnet"))
    accepted = [energy.detector.decide(classifier, batch).accepted.numpy() for batch in image_batches(DIGITS, (16, 16))]
    assert [len(each) for each in accepted] == [64, 64, 64]
    wanted = {"noise": np.mean(accepted[:2]), "constant images": np.mean(accepted[2])}
    assert facts(energy)["sanity"] == pytest.approx(wanted, abs=0.02)
    text = ", ".join(f"{100 * rate:.0f} % of {name}" for name, rate in facts(energy)["sanity"].items())
    assert dict(lines(energy))["sanity"] == energy.sanity == f"accepts {text}"


def test_another_threshold_has_other_rates(energy: Guard) -> None:
    """Scores are stored, not rates: a new alpha needs no images."""
    strict = energy.calibrate(alpha=0.3)
    assert sum(facts(strict)["sanity"].values()) < sum(facts(energy)["sanity"].values())


def test_a_warning_names_a_method_that_rejects_them(digits: Path) -> None:
    with pytest.warns(UserWarning, match=r"accepts \d+ % of noise, .* of constant images; mds\+\+ rejects them"):
        Guard.fit(MODEL, images=digits / "train", calibrate=digits / "val", method="msp", progress=False)


def test_parts_give_the_same(digits: Path, tmp_path: Path) -> None:
    for shard in (1, 2):
        words = ("--model", MODEL, "--images", str(digits / "train"), "--method", "energy", "--shard", f"{shard}/2")
        assert call("collect", *words, "--out", f"{shard}.part", cwd=tmp_path).returncode == 0
    fitted = Guard.fit(MODEL, parts=str(tmp_path / "*.part"), calibrate=digits / "val", method="energy", progress=False)
    whole = Guard.fit(MODEL, images=digits / "train", calibrate=digits / "val", method="energy", progress=False)
    assert fitted.about.sanity is not None
    np.testing.assert_allclose(fitted.about.sanity.scores, whole.about.sanity.scores, rtol=1e-4)


def test_prepared_tensors_get_noise_of_their_mean_and_deviation(digits: Path) -> None:
    images = (
        torch.randn(200, 3, 5, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2, 3])[:, None, None]
        + 7
    )
    (noise,) = tensor_batches(images)
    assert noise.shape == (64, 3, 5, 4)
    torch.testing.assert_close(noise.mean(dim=(0, 2, 3)), torch.full((3,), 7.0), rtol=0.05, atol=0)
    torch.testing.assert_close(noise.std(dim=(0, 2, 3)), torch.tensor([1.0, 2, 3]), rtol=0.1, atol=0)
    assert list(tensor_batches(torch.zeros(3, 4, dtype=torch.int64))) == []


def test_inspect_and_a_file_keep_it(energy: Guard, tmp_path: Path) -> None:
    path = tmp_path / "guard.safetensors"
    energy.save(path)
    assert Guard.load(path) == energy
    assert f"sanity         {energy.sanity}" in call("inspect", str(path), cwd=tmp_path).stdout
    assert json.loads(call("inspect", str(path), "--json", cwd=tmp_path).stdout)["sanity"] == facts(energy)["sanity"]
    old = Guard(energy.detector, replace(energy.about, sanity=None))
    assert (old.sanity, facts(old)["sanity"]) == ("", None)
