"""A guard attached to its network: one call per image, one forward pass, from any number of threads."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch import nn

from data import CALLERS
from oodshape import METHODS, Classifier, Features, Guard, InputError, Live, Verdict
from oodshape.guard.fitted import About
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.methods.detector import Method
from oodshape.methods.perturb.odin import Odin
from oodshape.networks.zoo import build

PICTURES = load_digits_sets()["test"].images


def guard_of(net: nn.Module, method: str | Method = "optfs-e", precision: str = "float32", **more: Any) -> Guard:
    """A guard from one batch of digits, without a fit's folders."""
    train = load_digits_sets()["train"]
    classifier = Classifier(net, precision=precision)
    outputs = classifier(DIGITS.batch(train.images[::4]))
    features = Features.from_arrays(outputs.features, outputs.head)
    recipe = METHODS[method] if isinstance(method, str) else method
    detector = recipe.fit(features).calibrate(features, **more)
    about = About(DIGITS, classifier.fingerprint, held_out=False, head=classifier.head_name or "")
    return Guard(detector, replace(about, precision=precision))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return build("digits-convnet")


@pytest.fixture(scope="module")
def guard(net: nn.Module) -> Guard:
    return guard_of(net)


@pytest.fixture(scope="module")
def live(guard: Guard, net: nn.Module) -> Live:
    return guard.attach(net)


def agree(found: Any, wanted: Any) -> None:
    """The same verdict on the same image, from batches of other sizes, which may round otherwise."""
    assert (found.label, found.accepted) == (wanted.label, wanted.accepted)
    assert found.score == pytest.approx(wanted.score, rel=1e-4)
    assert found.p_value == pytest.approx(wanted.p_value, abs=0.01)  # a step where a calibration score is as near


def test_a_verdict_is_the_row_of_score(guard: Guard, net: nn.Module, live: Live) -> None:
    pictures = PICTURES[:20, :, :, None]
    rows = list(guard.score(pictures, model=net))
    verdicts = live(pictures)
    assert isinstance(verdicts, list)
    for row, verdict in zip(rows, verdicts, strict=True):
        agree(verdict, row)
        assert verdict.class_index == row.label
        assert verdict.threshold == guard.detector.threshold
    both = live(np.concatenate([PICTURES[:20], 255 - PICTURES[:20]])[..., None])
    assert {verdict.accepted for verdict in both} == {True, False}


def test_one_image_gives_one_verdict_and_a_list_a_list(live: Live, tmp_path: Path) -> None:
    picture = PIL.Image.fromarray(PICTURES[0])
    picture.save(tmp_path / "a.png")
    path = tmp_path / "a.png"
    gray = PICTURES[0]
    for one in (picture, path, str(path), path.read_bytes(), gray, gray[..., None], torch.from_numpy(gray)[None]):
        verdict = live(one)
        assert isinstance(verdict, Verdict)
        assert verdict == live(picture)
    for several in ([picture], [path, gray], gray[None, ..., None], tmp_path, torch.from_numpy(gray)[None, None]):
        agree(live(several)[0], live(picture))
    prepared = live(DIGITS(picture)[None], prepared=True)
    assert prepared == live([picture])
    with pytest.raises(InputError, match="image 1: .* is not a readable image"):
        live([picture, b"text"])
    with pytest.raises(InputError, match="there is no file"):
        live(str(tmp_path / "b.png"))
    with pytest.raises(InputError, match="got int"):
        live(3)


def test_tensors(guard: Guard, net: nn.Module, live: Live) -> None:
    batch = DIGITS.batch(PICTURES[:9])
    found, wanted = live.tensors(batch), guard.detector.decide(Classifier(net), batch)
    assert torch.equal(found.classes, wanted.classes)
    torch.testing.assert_close(found.scores, wanted.scores, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.accepted, wanted.accepted)
    with pytest.raises(InputError, match=r"a batch \[N, ...\] .* got \[16\]"):
        live.tensors(batch[0, 0, 0])
    bad = live.tensors(torch.stack([batch[0], batch[1], batch[2] * torch.nan]))
    assert torch.equal(bad.accepted, torch.stack([found.accepted[0], found.accepted[1], torch.tensor(False)]))
    assert bad.scores.isnan().tolist() == bad.p_values.isnan().tolist() == [False, False, True]
    with pytest.raises(InputError, match="the network fails on torch.uint8 images"):
        live.tensors(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))


def test_a_call_is_one_pass() -> None:
    net, passes = build("digits-convnet"), list[int]()
    net.register_forward_hook(lambda *_: passes.append(1))  # the guard runs a copy, which has the same hook
    live = guard_of(net).attach(net)
    live(PICTURES[0])  # the sizes are free here, so that this one compares the head with the network
    before = len(passes)
    live(PICTURES[:3, :, :, None])
    assert len(passes) == before + 1


def test_networks_that_share_a_module_take_turns() -> None:
    shared = build("digits-convnet")
    nets = [nn.Sequential(shared), nn.Sequential(shared)]
    batch, inside = DIGITS.batch(PICTURES[:2]), []
    shared.register_forward_pre_hook(lambda *_: inside.append("in"))
    shared.register_forward_hook(lambda *_: inside.append("out"))
    classifiers = [Classifier(net) for net in nets]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: classifiers[number % 2](batch), range(12)))
    assert inside == ["in", "out"] * (len(inside) // 2)


def test_threads_get_what_one_gets(live: Live) -> None:
    wanted = [live(picture) for picture in PICTURES[:24]]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(live, PICTURES[:24])) == wanted


@pytest.mark.parametrize("assign", [False, True])
def test_the_network_is_left_alone_and_a_change_is_noticed(guard: Guard, assign: bool) -> None:
    net = build("digits-convnet").train()
    modes = [module.training for module in net.modules()]
    live = guard.attach(net)
    live(PICTURES[0])
    assert [module.training for module in net.modules()] == modes
    assert not any(module._forward_hooks for module in net.modules())
    with pytest.raises(InputError, match="device.* but got 'cuda:99'"):
        live.to("cuda:99")
    moved = live.to("cpu")
    agree(moved(PICTURES[0]), live(PICTURES[0]))
    forged = Guard(replace(guard.detector, fingerprint="0"), guard.about)  # no image is at fault
    with pytest.raises(InputError, match="this detector was fitted for head 0"):
        forged.attach(net)(PICTURES[0])
    net.load_state_dict({name: 2 * part for name, part in net.state_dict().items()}, assign=assign)
    with pytest.raises(InputError, match="weights were changed or moved since the guard was attached"):
        live(PICTURES[0])
    moved(PICTURES[0])  # it has weights of its own
    with pytest.raises(InputError, match="this guard was fitted for the network"):
        guard.attach(net)


def test_a_method_that_cannot_be_traced(net: nn.Module) -> None:
    guard = guard_of(net, Method(score=METHODS["msp"].score))
    odin = Method(score=METHODS["msp"].score, perturb=Odin(eps=0.01, std=(0.32,)))
    live = Guard(replace(guard.detector, method=odin), guard.about).attach(net)
    found, plain = live(PICTURES[:4, :, :, None]), guard.attach(net)(PICTURES[:4, :, :, None])
    assert [each.label for each in found] == [each.label for each in plain]
    assert all(one.score > other.score for one, other in zip(found, plain, strict=True) if other.score < 0.99)
    with pytest.raises(InputError, match="needs images"):
        live.guard.detector.decide(Classifier(net))


def test_an_attached_guard_runs_in_the_precision_of_its_fit(net: nn.Module) -> None:
    guard, images = guard_of(net, precision="bfloat16"), PICTURES[:12, :, :, None]
    low = np.array([verdict.score for verdict in guard.attach(net)(images)])
    np.testing.assert_allclose(low, [row.score for row in guard.score(images, model=net)], rtol=1e-4)
    with pytest.warns(UserWarning, match="was fitted in bfloat16 and runs in float32"):
        exact = guard.attach(net, precision="float32")(images)
    assert np.abs(low - [verdict.score for verdict in exact]).max() > 1e-3 * np.abs(low).max()


@pytest.mark.parametrize("caller", CALLERS)
def test_settings_of_the_caller_change_no_score(guard: Guard, net: nn.Module, live: Live, caller) -> None:
    images = PICTURES[:12, :, :, None]
    wanted, guarded = [verdict.score for verdict in live(images)], guard.detector.wrap(net)
    with caller():
        for found in (live(images), guard.score(images, model=net), guard_of(net).attach(net)(images)):
            np.testing.assert_allclose([each.score for each in found], wanted, rtol=1e-4)
        np.testing.assert_allclose(guarded(DIGITS.batch(images))[1].detach(), wanted, rtol=1e-4)


def test_a_data_parallel_network_is_its_own_and_a_copy_of_low_precision_is_another(net: nn.Module) -> None:
    guard, images = guard_of(net), PICTURES[:12, :, :, None]
    found = guard.attach(nn.DataParallel(net))(images)
    assert [each.accepted for each in found] == [each.accepted for each in guard.attach(net)(images)]
    for name, other in {"float16": copy.deepcopy(net).half(), "bfloat16": copy.deepcopy(net).bfloat16()}.items():
        with pytest.raises(InputError, match=f"its weights are {name}: a copy in another type is another network"):
            guard.attach(other)
