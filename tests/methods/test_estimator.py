"""The estimator keeps scikit-learn's contract, and the detector's numbers."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from data import arrays, features
from oodshape import METHODS, InputError, OODEstimator

pytestmark = pytest.mark.usefixtures("one_thread")

# method -> check -> why it cannot hold
EXPECTED_FAILURES = {
    "optfs-e": {},
    "mds++": {"check_fit2d_1feature": "rows of one feature all have the same direction, which has no covariance"},
}


@pytest.mark.filterwarnings("ignore:.*too few to calibrate", "ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("method", EXPECTED_FAILURES)
def test_scikit_learns_own_checks(method: str) -> None:
    expected = EXPECTED_FAILURES[method]
    results = check_estimator(OODEstimator(method), expected_failed_checks=expected, on_fail=None)
    status = {result["check_name"]: result["status"] for result in results}
    assert {name for name, what in status.items() if what == "failed"} == set()
    assert {name for name, what in status.items() if what == "xfail"} == set(expected)  # no reason without a failure
    assert list(status.values()).count("passed") > 40


def test_it_is_the_detector_with_the_networks_head() -> None:
    z, head = arrays(400)
    new, _ = arrays(50, seed=3)
    estimator = OODEstimator("optfs-e", weight=head[0], bias=head[1], calibration=None).fit(z)
    detector = METHODS["optfs-e"].fit(features(400))
    scores = detector.score(features(50, seed=3)).numpy()
    np.testing.assert_allclose(estimator.score_samples(new), scores, rtol=1e-5)
    inside = detector.score(features(400)).numpy()
    assert estimator.offset_ == pytest.approx(np.sort(inside)[19], rel=1e-5)  # floor(0.05 * 401) = 20th
    assert not estimator.guaranteed_
    decision = estimator.decision_function(new)
    np.testing.assert_allclose(decision, estimator.score_samples(new) - estimator.offset_)
    assert np.array_equal(estimator.predict(new), np.where(decision >= 0, 1, -1))


@pytest.mark.parametrize("labelled", [True, False])
def test_the_promise_holds_on_new_rows(labelled: bool) -> None:
    rejected = []
    for seed in range(8):
        z, head = arrays(1000, signed=True, seed=seed)
        y = (z @ head[0].T).argmax(axis=1) if labelled else None
        estimator = OODEstimator("mds++", alpha=0.1, random_state=seed).fit(z[:400], None if y is None else y[:400])
        assert estimator.guaranteed_
        rejected.append((estimator.predict(z[400:]) == -1).mean())
    # the mean share has a standard deviation of 0.3 / sqrt(100 * 8), and little more from the test rows
    assert np.mean(rejected) == pytest.approx(0.1, abs=4 * 0.3 / np.sqrt(100 * 8))
    far = np.full((5, 40), -9.0)
    assert (estimator.predict(far) == -1).all()


def test_copies_of_a_row_are_not_calibration_rows() -> None:
    z, head = arrays(100)
    estimator = OODEstimator(weight=head[0]).fit(np.repeat(z, 20, axis=0))
    assert len(estimator.detector_.calibration) == 25  # a quarter of the distinct rows, none of them fitted


def test_refusals_name_the_way_out() -> None:
    z, head = arrays(60)
    with pytest.raises(InputError, match="no method is called 'magic'; `oodshape methods` lists them"):
        OODEstimator("magic").fit(z)
    with pytest.raises(InputError, match=r"did you mean 0.05"):
        OODEstimator(alpha=5).fit(z)
    with pytest.raises(InputError, match="X has 60 rows, y has 3"):
        OODEstimator().fit(z, [0, 1, 2])
    with pytest.raises(NotFittedError):
        OODEstimator().predict(z)
    with pytest.warns(UserWarning, match="15 of 60 distinct rows are too few to calibrate .*calibration=None"):
        assert not OODEstimator(weight=head[0]).fit(z).guaranteed_
