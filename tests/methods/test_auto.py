"""Auto: the selection by proxy sets and held-out classes, p-values, the veto, the fallback."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from data import arrays, features, proxy
from oodshape import METHODS, Features, InputError, Method, auroc
from oodshape.features.proxy import cross_features
from oodshape.features.training_sums import Sums
from oodshape.methods.auto import CANDIDATES, Auto, split_selection, try_on_proxies
from oodshape.methods.fusion import SCRAMBLED, Component, Fusion
from oodshape.methods.heads import Linear
from oodshape.methods.held_out_classes import HeldOutClasses
from oodshape.methods.scores.logits import Energy
from oodshape.methods.shapes.clipping import ReAct
from oodshape.methods.slots import Identity

AUTO = Method(score=Auto())
OTHER_HEAD = Features.from_arrays(arrays(50)[0], (arrays(50)[1][0] + 1, arrays(50)[1][1]))


def component(reference: list[float]) -> Component:
    return Component("energy", Identity(), Linear(), Energy(), np.array(reference))


def test_parts_are_disjoint_and_go_by_identity() -> None:
    z, head = arrays(1001)
    z[:, 0] = np.arange(1001)
    found = []
    for rows in (np.arange(1001), np.random.default_rng(0).permutation(1001)):
        data = Features.from_arrays(z[rows], head, identities=rows)
        numbers = [{int(row[0]) for _, raw in part.chunks() for row in raw} for part in split_selection(data, 0.25)]
        assert numbers[0] | numbers[1] == set(range(1001))
        assert not numbers[0] & numbers[1]
        assert 200 < len(numbers[1]) < 300
        found.append(numbers)
    assert found[0] == found[1]
    with pytest.raises(InputError, match="0.25 of 3 training images is none"):
        split_selection(features(3), 0.25)


def test_p_values_are_shares_and_fall_below_the_lowest() -> None:
    one = component(list(range(100)))
    log_p = one.log_p(torch.tensor([10.0, 50.0, 50.5, 99.0, 500.0]))
    torch.testing.assert_close(log_p.exp(), torch.tensor([11.0, 51.0, 51.5, 100.0, 100.0]) / 101, rtol=1e-3, atol=0)
    # the lowest tenth, 0..9, lies 5.5 below its limit 10 on average
    low = one.log_p(torch.tensor([10.0 - 5.5, -45.0]))
    torch.testing.assert_close(low, torch.log(torch.tensor(11 / 101)) - torch.tensor([1.0, 10.0]), rtol=1e-3, atol=0)
    steps = one.log_p(torch.linspace(-50, 99, 3000))
    assert (steps.diff() > 0).all()


@pytest.mark.parametrize("tied", [400, 80], ids=["all images", "every fifth"])
def test_equal_id_images_are_one_whatever_the_batch(tied: int) -> None:
    z, head = arrays(400)
    z[:: 400 // tied] = z[0]
    blank = Features.from_arrays(np.random.default_rng(0).permuted(z[:200], axis=1), head)
    detector = AUTO.fit(Features.from_arrays(z, head), proxy=[blank])
    test = Features.from_arrays(np.repeat(z[:1], 64, axis=0), head)
    whole = detector.score(test)
    for size in (1, 7, 33):
        parts = torch.cat([detector.score(test[first : first + size]) for first in range(0, 64, size)])
        torch.testing.assert_close(parts, whole, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("tied", "at"), [(50, 1.0), (50, -3.0), (50, 0.0), (8, 1.0), (45, 1.0)])
def test_equal_id_scores_get_one_value_and_order_stays(tied: int, at: float) -> None:
    rest = at + np.linspace(0.1, 1, 50 - tied)
    one = Component("energy", Identity(), Linear(), Energy(), np.sort(np.append([at] * tied, rest)))
    bits = at * (1 + 2e-6 * torch.linspace(-1, 1, 101))
    values = one.log_p(bits)
    assert float(values.max() - values.min()) < 0.05
    steps = one.log_p(at + torch.linspace(-1, 2, 3001))
    assert torch.isfinite(steps).all()
    assert (steps.diff() >= 0).all()
    assert steps[0] < steps[900] < values.min()


def naive_log_p(reference: np.ndarray, score: float) -> float:
    """The log p-value of one score by its definition, in float64; scores within 1e-4 of one another are one."""
    ordered = sorted(reference.astype(float))
    n, k = len(ordered), len(ordered) // 10

    def place(value: float) -> float:
        below = sum(other < value for other in ordered)
        if below in (0, n):
            return max(below, 1)
        low, high = ordered[below - 1], ordered[below]
        return below + (value - low) / (high - low)

    def share(value: float) -> float:
        around = 1e-4 * max(abs(value), 0.01)
        return np.log((place(value - around) + place(value + around)) / 2 / (n + 1))

    limit = ordered[k] - 1e-4 * max(abs(ordered[k]), 0.01)
    if score >= limit:
        return share(score)
    return share(limit) - (limit - score) * k / sum(ordered[k] - value for value in ordered[:k])


def test_the_best_candidates_are_fused_with_a_veto() -> None:
    train, images, test = features(400), proxy(), features(50, seed=1)
    detector = AUTO.fit(train, proxy=[images])
    fusion = detector.scorer
    assert isinstance(fusion, Fusion)
    fitting, selection = split_selection(train, 0.25)
    means, seen, wanted = {}, {}, {}
    near, crossed = HeldOutClasses.of(fitting, selection), cross_features(selection)
    for name in CANDIDATES:
        single = METHODS[name].fit(fitting)
        inside = single.score(selection).numpy()
        far = [auroc(inside, single.score(proxy)) for proxy in (images, crossed)]
        means[name] = (sum(far) + near.aurocs({"": METHODS[name]})[""]) / 3
        seen[name], wanted[name] = (
            [naive_log_p(inside, float(score)) for score in single.score(data)] for data in (selection, test)
        )
    assert dict(fusion.ranking) == pytest.approx(means)
    ranked = sorted(means, key=lambda name: -means[name])
    best = [name for place, name in enumerate(ranked) if place < 5 or name in ("gen", "mds++")]
    assert [part.name for part in fusion.components] == best
    inside, outside = (np.array([each[name] for name in best]) for each in (seen, wanted))
    fisher = [naive_log_p(inside.sum(axis=0), value) for value in outside.sum(axis=0)]
    veto = [naive_log_p(inside.min(axis=0), value) + np.log(5) for value in outside.min(axis=0)]
    np.testing.assert_allclose(detector.score(test).numpy(), np.minimum(fisher, veto), rtol=2e-3, atol=2e-3)
    assert str(fusion).startswith(f"components: {best[0]}, ")


def test_filters_see_the_length_of_features() -> None:
    """White noise on an MLP of pixels has the directions of ID features; its features are only shorter."""
    train, (z, head) = features(400), arrays(400)
    short, other = (Features.from_arrays(0.6 * z[rows], head) for rows in (slice(200), slice(200, 400)))
    detector = Method(score=Auto(candidates=("msp", "knn", "mds++"))).fit(train, proxy=[proxy(), short, short])
    assert len(detector.scorer.filters) == 3
    detector = detector.calibrate(features(300, seed=2))
    short, inside = (detector.decide(each).accepted.double().mean() for each in (other, features(300, seed=3)))
    assert short < 0.3 < 0.85 < inside


def test_noise_that_overlaps_id_images_gets_most_of_alpha() -> None:
    """Left-out noise decides: the limits change only where noise like that of the fit is still accepted."""
    train, (z, head) = features(400), arrays(400)
    far, close = (Features.from_arrays(scale * z, head) for scale in (0.6, 0.95))
    fused = [Method(score=Auto()).fit(train, proxy=[proxy(), noise, far]).scorer for noise in (far, close)]
    assert [[one.limit for one in each.filters] for each in fused] == [[0.05, 0.08, 0.03], [0.2, 0.02, 0.03]]


def test_constant_images_with_the_same_features_are_filtered() -> None:
    train, (z, head) = features(400), arrays(400)
    same, short = Features.from_arrays(np.repeat(z[:1], 50, axis=0), head), Features.from_arrays(0.6 * z, head)
    for synthetic in ([short, same], [same, short]):
        detector = AUTO.fit(train, proxy=[proxy(), *synthetic]).calibrate(features(300, seed=2))
        assert not detector.decide(same).accepted.any()


def test_signed_features_have_fewer_candidates_and_cop() -> None:
    z, head = arrays(400)
    parts = AUTO.fit(Features.from_arrays(z - z.mean(), head), proxy=[proxy()]).scorer.components
    assert len({part.name for part in parts} - {"gen", "mds++", "cop"}) == len(parts) - 3 <= 2


def test_a_saturated_proxy_set_has_no_weight() -> None:
    train, images = features(400), proxy()
    z, head = arrays(100)
    trivial = Features.from_arrays(np.zeros_like(z), head)
    assert AUTO.fit(train, proxy=[images]).scorer.notes == ()
    names = ("energy", "msp", "knn", "gen")
    few = try_on_proxies({name: METHODS[name] for name in names}, *split_selection(train, 0.25), [trivial])
    (place,) = np.flatnonzero(few.saturated)
    assert few.proxies[place] == SCRAMBLED
    assert few.notes == (f"{SCRAMBLED}: saturated, weight 0",)
    others = [at for at in range(3) if at != place]
    for name, mean in few.ranking:
        assert mean == pytest.approx(np.mean([few.aurocs[name][at] for at in others]))


def test_a_file_loads_where_nothing_else_is_imported(tmp_path) -> None:
    AUTO.fit(features(400), proxy=[proxy()]).save(tmp_path / "auto.safetensors")
    code = "import sys; from oodshape import Detector; print(Detector.load(sys.argv[1]).scorer)"
    command = [sys.executable, "-c", code, str(tmp_path / "auto.safetensors")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("components: ")


def test_one_is_the_plain_method() -> None:
    train, test = features(400), features(50, seed=1)
    detector = Method(score=Auto(candidates=("energy", "msp"), fuse=1)).fit(train, proxy=[proxy()])
    (chosen,) = detector.scorer.components
    assert chosen.name == detector.scorer.ranking[0][0]
    wanted = METHODS[chosen.name].fit(split_selection(train, 0.25)[0]).score(test)
    torch.testing.assert_close(detector.score(test), wanted)


@pytest.mark.parametrize(
    ("n", "images", "why"),
    [
        (60, [], "no proxy set to select by: no scrambled images.*no classes.*no crossed features: all 27 images"),
        (39, [proxy()], "at least 10 there, got 9 of 39"),
    ],
    ids=["no proxy set", "too few images"],
)
def test_where_it_cannot_select_it_is_optfs_and_says_so(n: int, images: list[Features], why: str) -> None:
    z, head = arrays(n)
    train, test = Features.from_arrays(z, head, predictions=np.zeros(n, int)), features(50, seed=1)
    with pytest.warns(UserWarning, match=f"{why}.* falls back to optfs"):
        detector = AUTO.fit(train, proxy=images)
    torch.testing.assert_close(detector.score(test), METHODS["optfs"].fit(train).score(test))
    assert str(detector.scorer).startswith("components: optfs\nnote: auto ")


def test_a_candidate_that_refuses_the_features_is_left_out() -> None:
    z, head = arrays(400)
    z = -z - 1  # no percentile is positive, as BFAct needs one
    train, images = Features.from_arrays(z, head), Features.from_arrays(z[:50] * 0.1, head)
    detector = Method(score=Auto(candidates=("bfact", "energy"))).fit(train, proxy=[images])
    assert [name for name, _ in detector.scorer.ranking] == ["energy"]
    with pytest.raises(InputError, match="BFAct needs a positive limit"):
        Method(score=Auto(candidates=("bfact",))).fit(train, proxy=[images])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Auto(fuse=0), "fuse must be at least 1"),
        (lambda: Auto(share=25), "did you mean 0.25"),
        (lambda: Auto(candidates=("magic",)).methods(), "no method is called 'magic'"),
        (lambda: Method(score=Auto(), shape=ReAct()), "Auto reads the features themselves"),
        (lambda: AUTO.fit(Sums.of(features(400), frozenset())), "give fit the Features"),
        (lambda: AUTO.fit(features(400), proxy=[OTHER_HEAD]), "extract both through the same classifier"),
    ],
)
def test_bad_settings_are_one_clear_error(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def values_of(data: Features) -> np.ndarray:
    return torch.cat([raw for _, raw in data.chunks()]).numpy()


def class_left_out(near: HeldOutClasses, whole: Features) -> int:
    """The class whose row the smaller head lacks."""
    rows = [row.tolist() for row in near.inside.head.weight]
    (gone,) = [place for place, row in enumerate(whole.head.weight) if row.tolist() not in rows]
    return gone


def test_the_classes_left_out_are_those_of_the_whole_head() -> None:
    fitting, selection = features(300), features(200, seed=1)
    near = HeldOutClasses.of(fitting, selection)
    assert (near.left_out, near.classes, near.fitting.head.classes) == (1, 7, 6)
    gone = class_left_out(near, fitting)
    predicted = selection.predictions.numpy()
    np.testing.assert_array_equal(values_of(near.outside), values_of(selection)[predicted == gone])
    np.testing.assert_array_equal(values_of(near.inside), values_of(selection)[predicted != gone])
    np.testing.assert_array_equal(values_of(near.fitting), values_of(fitting)[fitting.predictions.numpy() != gone])
    # an image of a class that stays keeps its class; one of the class left out gets another
    stays = [place for place in range(7) if place != gone]
    assert [stays[c] for c in near.inside.predictions] == predicted[predicted != gone].tolist()
    assert str(near) == f"held-out classes ({len(near.outside)} images, 1 of 7 classes)"


def test_the_worth_is_the_auroc_of_the_smaller_network() -> None:
    fitting, selection = features(300), features(200, seed=1)
    near = HeldOutClasses.of(fitting, selection)
    detector = METHODS["energy"].fit(near.fitting)
    assert near.aurocs({"": METHODS["energy"]})[""] == auroc(detector.score(near.inside), detector.score(near.outside))
    assert near.aurocs({"energy": METHODS["energy"]})["energy"] > 0.55  # the class is told from the others
    z, head = arrays(300)
    classes = np.arange(300) % 7
    negative = Features.from_arrays(-z - 1, head, predictions=classes)
    assert HeldOutClasses.of(negative, negative).aurocs({"": METHODS["bfact"]})[""] == 0.5  # it refuses


@pytest.mark.parametrize(
    ("classes", "n", "why"),
    [(2, 200, "the network has 2 classes, and 2 must remain"), (7, 40, "selection images on one side, 10 needed")],
)
def test_too_little_is_refused(classes: int, n: int, why: str) -> None:
    z, head = arrays(n, classes=classes)
    data = Features.from_arrays(z, head)
    with pytest.raises(InputError, match=why):
        HeldOutClasses.of(data, data)


def test_most_images_in_the_classes_left_out_are_refused() -> None:
    z, (weight, bias) = arrays(400)
    data = Features.from_arrays(z, (weight, bias))
    gone = class_left_out(HeldOutClasses.of(data, data), data)
    rare = np.where(np.arange(400) % 5 < 3, gone, (gone + 1) % 7)
    crowded = Features.from_arrays(z, (weight, bias), predictions=rare)
    with pytest.raises(InputError, match="240 of 400 images belong to the held-out classes, more than half"):
        HeldOutClasses.of(crowded, crowded)


def test_held_out_images_choose_where_they_are_given() -> None:
    train, held, images = features(300), features(200, seed=5), proxy()
    fusion = Method(score=Auto(candidates=("energy", "msp"))).fit(train, proxy=[images], held_out=held).scorer
    near = HeldOutClasses.of(train, held)
    for name, (value, far, _) in zip(dict(fusion.ranking), fusion.values, strict=True):
        fitted = METHODS[name].fit(train)
        assert far == auroc(fitted.score(held), fitted.score(images))
        assert value == near.aurocs({"": METHODS[name]})[""]
    assert len(fusion.components[0].reference) == 200
    with pytest.raises(InputError, match="the held-out part comes from head"):
        AUTO.fit(train, proxy=[images], held_out=OTHER_HEAD)


@pytest.mark.parametrize("known", [True, False])
def test_a_network_that_knows_its_images_by_heart_is_named(known: bool) -> None:
    z, head = arrays(400)
    plain = Features.from_arrays(z, head)
    labels = plain.predictions.numpy() if known else np.full(400, 3)
    train = Features.from_arrays(z, head, labels=labels)
    notes = AUTO.fit(train, proxy=[proxy()]).scorer.notes
    assert [("has memorised" in note and "accuracy 100.0 %" in note) for note in notes] == [True] * known
    assert AUTO.fit(train, proxy=[proxy()], held_out=features(200, seed=5)).scorer.notes == ()
