"""Files of earlier releases are read for ever, and mean what they meant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from oodshape import (
    METHODS,
    Detector,
    Features,
    FeatureStats,
    Guard,
    InputError,
    Moments,
    Results,
    Watch,
)
from oodshape.guard import score_file

GOLDEN = Path(__file__).parent / "golden" / "0.1.0"
# Features and weights are multiples of 1/16, so sums of products are exact on every processor; exp, log and
# decompositions are not, and their last bits are all that may differ.
ROUNDING = 1e-5
# their noise came from the last bits of the features, which no two processors share
CHANGED = ("ash-rand",)
NAMES = sorted(path.stem for path in (GOLDEN / "detectors").glob("*.safetensors"))


@pytest.fixture(scope="module")
def inputs() -> dict[str, Features]:
    with np.load(GOLDEN / "inputs.npz") as arrays:
        head = arrays["weight"], arrays["bias"]
        return {name: Features.from_arrays(arrays[name], head=head) for name in ("train", "held_out", "test", "panel")}


def test_every_method_of_the_release_is_there() -> None:
    assert len(NAMES) == 36
    assert set(NAMES) <= set(METHODS)


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_detector_scores_as_it_did(name: str, inputs: dict[str, Features]) -> None:
    scores = Detector.load(GOLDEN / "detectors" / f"{name}.safetensors").score(inputs["test"]).numpy()
    with np.load(GOLDEN / "scores.npz") as kept:
        wanted = kept[name]
    if name in CHANGED:
        assert np.abs(scores - wanted).min() > ROUNDING * np.abs(wanted).max()
    else:
        np.testing.assert_allclose(scores, wanted, rtol=ROUNDING, atol=ROUNDING * np.abs(wanted).max())


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_detector_keeps_its_bits(name: str, tmp_path: Path) -> None:
    path = GOLDEN / "detectors" / f"{name}.safetensors"
    Detector.load(path).save(tmp_path / "again.safetensors")
    before, after = load_file(path), load_file(tmp_path / "again.safetensors")
    assert before.keys() == after.keys()
    for key, values in before.items():
        assert values.dtype == after[key].dtype
        assert values.tobytes() == after[key].tobytes()


def test_saved_statistics_and_moments_are_those_of_the_features(inputs: dict[str, Features]) -> None:
    kept, train = FeatureStats.load(GOLDEN / "statistics.safetensors"), inputs["train"]
    assert kept.n == len(train)
    np.testing.assert_array_equal(kept.counts, train.stats.counts)
    np.testing.assert_allclose(kept.impacts, train.stats.impacts)
    weights = FeatureStats.load(GOLDEN / "statistics_weights.safetensors").weights
    np.testing.assert_allclose(weights, FeatureStats.of(train, weights=True).weights)
    moments = Moments.load(GOLDEN / "moments.safetensors")
    rows = {row.tobytes() for _, chunk in train.chunks() for row in chunk.numpy()}
    assert moments.n == len(train)
    assert {row.tobytes() for row in moments.parts["bank"]} <= rows
    with pytest.raises(InputError, match="a bank of 0.1.0 .* collect the moments of its images again"):
        _ = moments + train.moments(frozenset(["bank"]))
    np.testing.assert_allclose(moments.parts["second"], train.moments(frozenset(["second"])).parts["second"])


@pytest.mark.parametrize("name", ["auto", "optfs-e"])
def test_a_saved_guard_still_decides(name: str) -> None:
    guard = Guard.load(GOLDEN / f"guard-{name}.safetensors")
    assert guard.detector.alpha == 0.1
    assert guard.about.method == name
    assert guard.promise.startswith("of images like the 60 held-out ones, at most 10 %")


def test_a_saved_watch_goes_on() -> None:
    assert Watch.load(GOLDEN / "watch.safetensors").seen == 24


def test_saved_results_are_read() -> None:
    results = Results.load(GOLDEN / "results.json")
    assert {row.method for row in results.rows} == {"optfs-e"}


def test_unfinished_scores_say_what_to_do_and_stay_as_they_are(tmp_path: Path) -> None:
    part = tmp_path / "scores.csv.part"
    before = (GOLDEN / "unfinished_scores.txt").read_bytes()
    part.write_bytes(before)
    who = score_file.identity(Guard.load(GOLDEN / "guard-optfs-e.safetensors"), 4)
    pairs = iter([(f"digits/test/{number:04}.png", -1) for number in range(12)])
    with (
        part.open("a+b") as file,
        pytest.raises(InputError, match=r"scores\.csv\.part was begun with .* release of oodshape; remove it to start"),
    ):
        score_file._resume(file, part, who, 4, pairs)
    assert part.read_bytes() == before
