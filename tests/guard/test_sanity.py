"""The sanity check of fit, and which calibration images select methods and which set the threshold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import call
from data import arrays, features
from oodshape import Auto, Classifier, Features, Guard, Method
from oodshape.features.proxy import proxy_features
from oodshape.guard.describe import facts, lines
from oodshape.guard.fit.sanity import sanity_images, sanity_tensors
from oodshape.guard.fit.split import split_held_out
from oodshape.images.datasets.synthetic import draw_constants, draw_lattice, draw_noise
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.metrics.conformal import images_needed
from oodshape.networks.zoo import build

MODEL = "zoo:digits-convnet"


@pytest.fixture(scope="module")
def energy(digits: Path) -> Guard:
    return Guard.fit(MODEL, images=digits / "train", calibrate=digits / "val", method="energy", progress=False)


def test_the_images_are_those_it_says() -> None:
    noise, constant = draw_noise(8, 6, 3), draw_constants(8, 6, 3)
    assert (noise.shape, constant.shape) == ((128, 8, 6, 3), (64, 8, 6, 3))
    assert np.mean((noise[:64] == 0) | (noise[:64] == 255)) > 0.25  # Gaussian noise of so large a spread is clipped
    assert np.mean((noise[64:] == 0) | (noise[64:] == 255)) < 0.02
    assert (constant == constant[:, :1, :1]).all()
    assert (constant[0].max(), constant[1].min()) == (0, 255)


def test_filters_are_fitted_on_other_images() -> None:
    """Neither noise nor colours are those of the check, but for black and white."""
    other = {image.tobytes() for image in (*draw_noise(8, 6, 3, 1, weak=True), *draw_lattice(8, 6, 3))}
    assert sum(image.tobytes() in other for image in (*draw_noise(8, 6, 3), *draw_constants(8, 6, 3))) == 2
    assert (draw_lattice(8, 6, 3).shape, draw_lattice(8, 6, 5).shape) == ((512, 8, 6, 3), (512, 8, 6, 5))


def test_noise_and_constant_images_follow_the_scrambled_ones(digits: Path) -> None:
    classifier = Classifier(build("digits-convnet"))
    found = proxy_features(classifier, digits / "val", DIGITS, progress=False)
    tensors = proxy_features(classifier, torch.rand(20, 1, 16, 16), prepared=True, progress=False)
    assert [len(each) for each in found] == [150, 640, 256]
    assert [len(each) for each in tensors] == [20, 704, 256]


def test_the_rates_are_those_of_the_images_through_the_network(energy: Guard) -> None:
    classifier = Classifier(build("digits-convnet"))
    accepted = [energy.detector.decide(classifier, batch).accepted.numpy() for batch in sanity_images(DIGITS, (16, 16))]
    assert [len(each) for each in accepted] == [64, 64, 64]
    wanted = {"noise": np.mean(accepted[:2]), "constant images": np.mean(accepted[2])}
    assert facts(energy)["sanity"] == pytest.approx(wanted, abs=0.02)
    text = ", ".join(f"{100 * rate:.0f} % of {name}" for name, rate in facts(energy)["sanity"].items())
    assert dict(lines(energy))["sanity"] == energy.sanity == f"accepts {text}"


def test_a_warning_names_a_method_that_rejects_them(digits: Path) -> None:
    with pytest.warns(UserWarning, match=r"accepts \d+ % of noise, .* of constant images; mds\+\+ rejects them"):
        Guard.fit(MODEL, images=digits / "train", calibrate=digits / "val", method="msp", progress=False)


def test_prepared_tensors_get_noise_of_their_mean_and_deviation(digits: Path) -> None:
    images = (
        torch.randn(200, 3, 5, 4, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2, 3])[:, None, None]
        + 7
    )
    (noise,) = sanity_tensors(images)
    assert noise.shape == (64, 3, 5, 4)
    torch.testing.assert_close(noise.mean(dim=(0, 2, 3)), torch.full((3,), 7.0), rtol=0.05, atol=0)
    torch.testing.assert_close(noise.std(dim=(0, 2, 3)), torch.tensor([1.0, 2, 3]), rtol=0.1, atol=0)
    assert list(sanity_tensors(torch.zeros(3, 4, dtype=torch.int64))) == []


def test_inspect_and_a_file_keep_it(energy: Guard, tmp_path: Path) -> None:
    path = tmp_path / "guard.safetensors"
    energy.save(path)
    assert Guard.load(path) == energy
    strict = facts(Guard.load(path).calibrate(alpha=0.3))["sanity"]  # scores are stored: a new alpha needs no images
    assert sum(strict.values()) < sum(facts(energy)["sanity"].values())
    assert f"sanity         {energy.sanity}" in call("inspect", str(path), cwd=tmp_path).stdout
    assert json.loads(call("inspect", str(path), "--json", cwd=tmp_path).stdout)["sanity"] == facts(energy)["sanity"]


TRAIN = features(60)


def identities(data: Features) -> set[int]:
    return set(data.identities.tolist())


def test_half_of_them_select_and_no_image_does_both() -> None:
    held = features(400, seed=1)
    selecting, deciding = split_held_out(TRAIN, held, 0.05)
    assert selecting is not None
    assert not identities(selecting) & identities(deciding)
    assert identities(selecting) | identities(deciding) == identities(held)
    assert len(selecting) == 200
    # by identity: another order of the same images gives the same parts
    turned, _ = split_held_out(TRAIN, held[np.arange(400)[::-1]], 0.05)
    assert turned is not None
    assert identities(turned) == identities(selecting)


@pytest.mark.parametrize(
    ("n", "alpha", "selecting"),
    [(179, 0.05, None), (180, 0.05, 80), (190, 0.05, 90), (200, 0.05, 100), (278, 0.005, None), (279, 0.005, 80)],
)
def test_both_have_enough(n: int, alpha: float, selecting: int | None) -> None:
    assert images_needed(0.005) == 199
    held = features(n, seed=1)
    found, deciding = split_held_out(TRAIN, held, alpha)
    assert (None if found is None else len(found)) == selecting
    assert len(deciding) == n - (selecting or 0)


def test_fewer_select_where_training_images_are_memorised() -> None:
    z, head = arrays(60)
    plain = Features.from_arrays(z, head)
    memorised = Features.from_arrays(z, head, labels=plain.predictions.numpy())
    for n, selecting in ((79, None), (80, 40), (150, 75)):
        assert split_held_out(plain, features(n, seed=1), 0.05)[0] is None
        found = split_held_out(memorised, features(n, seed=1), 0.05)[0]
        assert (None if found is None else len(found)) == selecting


def test_copies_stay_together() -> None:
    z, head = arrays(400, seed=1)
    copied = Features.from_arrays(z, head, identities=np.arange(400) // 2)
    selecting, deciding = split_held_out(TRAIN, copied, 0.05)
    assert selecting is not None
    assert not identities(selecting) & identities(deciding)


def test_no_class_loses_its_own_threshold() -> None:
    z, head = arrays(400, seed=1)
    needed = images_needed(0.05)
    rare = np.where(np.arange(400) < needed + 1, 0, 1)
    held = Features.from_arrays(z, head, predictions=rare)
    assert split_held_out(TRAIN, held, 0.05, per_class=True) == (None, held)
    assert split_held_out(TRAIN, held, 0.05)[0] is not None
    many = Features.from_arrays(z, head, predictions=np.arange(400) % 2)
    selecting, deciding = split_held_out(TRAIN, many, 0.05, per_class=True)
    assert selecting is not None
    assert np.unique(deciding.predictions, return_counts=True)[1].min() >= needed


def test_the_guarantee_holds_over_refits() -> None:
    """1,000 refits with other calibration images and filters: mean rejection <= alpha, within 3 standard errors."""
    alpha, recipe = 0.1, Method(score=Auto(candidates=("msp", "mds++"), fuse=2))
    drawn, (z, head) = np.random.default_rng(0), arrays(2)
    synthetic = [
        Features.from_arrays(one * drawn.normal(1, 0.02, (40, len(one))).astype(np.float32), head) for one in z
    ]
    rates = []
    for seed in range(1, 1001):
        selecting, deciding = split_held_out(TRAIN, features(190, seed=seed), alpha)
        assert selecting is not None
        detector = recipe.fit(TRAIN, proxy=[synthetic[0], *synthetic], held_out=selecting).calibrate(deciding, alpha)
        assert [each.name for each in detector.scorer.filters] == ["noise", "constant images", "constant images"]
        fresh = features(100, seed=10_000 + seed)
        rates.append(1 - float(detector.decide(fresh).accepted.double().mean()))
    error = 3 * np.std(rates) / np.sqrt(len(rates))
    assert alpha - 0.01 < np.mean(rates) + error  # the threshold is not merely low
    assert np.mean(rates) - error <= alpha
    assert error < 0.006
