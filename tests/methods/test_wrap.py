"""The guarded module: what the detector says, in one pass, through torch.compile and torch.export."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from shutil import which

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oodshape import METHODS, Classifier, Detector, Features, InputError, Method
from oodshape.methods.auto import Auto
from oodshape.methods.fit_all import fit_all
from oodshape.methods.guarded_net import GuardedNet, wrap
from oodshape.methods.perturb.odin import Odin

EXPORTABLE = [name for name, method in METHODS.items() if method.exportable]
TORCH_WARNS = pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning", "ignore::FutureWarning")
ANY_BATCH = ({0: torch.export.Dim("n")},)


def small_net(classes: int = 7) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 10, 3), nn.BatchNorm2d(10), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(40, classes), nn.Dropout(0.5))


def pictures(n: int, seed: int = 1) -> Tensor:
    """Each with a contrast and a brightness of its own, so that scores spread."""
    draw = torch.Generator().manual_seed(seed)
    contrast, brightness = torch.rand(2, n, 1, 1, 1, generator=draw)
    return torch.randn(n, 1, 8, 8, generator=draw) * contrast + brightness


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return small_net()


@pytest.fixture(scope="module")
def train(net: nn.Module) -> Features:
    outputs = Classifier(net)(pictures(400))
    return Features.from_arrays(outputs.features.numpy(), outputs.head)


@pytest.fixture(scope="module")
def detectors(train: Features) -> dict[str, Detector]:
    fitted = fit_all({name: METHODS[name] for name in EXPORTABLE}, train, [train[:100]])
    return {name: detector.calibrate(train, alpha=0.2) for name, detector in fitted.items()}


@pytest.mark.parametrize("name", EXPORTABLE)
def test_it_says_what_the_detector_says(name: str, net: nn.Module, detectors: dict[str, Detector]) -> None:
    images, classifier = pictures(50, seed=2), Classifier(net)
    said, outputs = detectors[name].decide(classifier, images), classifier(images)
    guarded = detectors[name].wrap(net)
    with torch.no_grad():
        logits, score, accepted = guarded(images)
    near = {"rtol": 1e-5, "atol": 1e-5 * float(said.scores.abs().max())}
    torch.testing.assert_close(logits, outputs.logits, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(score, said.scores, **near)
    assert 0 < accepted.sum() < 50
    clear = (said.scores - detectors[name].threshold).abs() > near["atol"]
    assert torch.equal(accepted[clear], said.accepted[clear])


class Several(nn.Module):
    """The scores of many guarded networks in one graph: one trace shows that each can be traced."""

    def __init__(self, net: nn.Module, detectors: dict[str, Detector]) -> None:
        super().__init__()
        self.guarded = nn.ModuleList(detector.wrap(net) for detector in detectors.values())

    def forward(self, images: Tensor) -> Tensor:
        first = self.guarded[0]
        features = first.features(images)
        logits = first.tap.logits(features)
        return torch.stack([each.score(features, logits) for each in self.guarded])


def test_every_method_compiles_without_a_break(net: nn.Module, detectors: dict[str, Detector]) -> None:
    torch._dynamo.reset()  # other tests in this process have compiled, too
    several, images = Several(net, detectors), pictures(9, seed=2)
    compiled = torch.compile(several, fullgraph=True, dynamic=True, backend="eager")
    with torch.no_grad():
        for n in (5, 9):
            wanted, got = several(images[:n]), compiled(images[:n])
            size = wanted.abs().amax(dim=1, keepdim=True)
            torch.testing.assert_close(got / size, wanted / size, rtol=1e-5, atol=1e-5)


def test_fusions_go_into_the_graph(net: nn.Module, train: Features) -> None:
    noise = Classifier(net)(3 * torch.randn(100, 1, 8, 8, generator=torch.Generator().manual_seed(3)))
    method = Method(score=Auto(candidates=("energy", "optfs-e", "knn", "vim"), fuse=3))
    proxy = [Features.from_arrays(noise.features.numpy(), noise.head)]
    detector = method.fit(train, proxy=proxy).calibrate(train)
    images = torch.cat([pictures(30, seed=4), 20 * pictures(3, seed=5)])
    program = torch.export.export(detector.wrap(net), (images[:4],), dynamic_shapes=ANY_BATCH)
    wanted = detector.score(Classifier(net), images)
    torch.testing.assert_close(program.module()(images)[1], wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_with_any_batch(strict: bool, net: nn.Module, detectors: dict[str, Detector], tmp_path) -> None:
    guarded, images = detectors["optfs-v"].wrap(net), pictures(9)
    program = torch.export.export(guarded, (images[:4],), dynamic_shapes=ANY_BATCH, strict=strict)
    torch.export.save(program, tmp_path / "guarded.pt2")
    loaded = torch.export.load(tmp_path / "guarded.pt2").module()
    for batch in (images, images[:1]):
        for mine, theirs in zip(loaded(batch), guarded(batch), strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.skipif(not any(map(which, ("g++", "clang++", "c++"))), reason="inductor needs a C++ compiler")
@TORCH_WARNS
def test_inductor_takes_it_whole(
    net: nn.Module, detectors: dict[str, Detector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # code kept for wider vectors may not compile here
    guarded, images = detectors["optfs-e"].wrap(net), pictures(6)
    with torch.no_grad():
        got = torch.compile(guarded, fullgraph=True)(images)
        torch.testing.assert_close(got[1], guarded(images)[1], rtol=1e-5, atol=1e-5)


def test_the_network_is_left_alone(net: nn.Module, detectors: dict[str, Detector]) -> None:
    net.train()
    before = copy.deepcopy(net.state_dict())
    guarded = detectors["energy"].wrap(net)
    guarded.train()
    assert not any(module.training for module in guarded.modules())
    assert all(module.training for module in net.modules())
    _, first, _ = guarded(pictures(5))
    assert torch.equal(guarded(pictures(5))[1], first)  # no dropout, no batch statistics
    assert type(net.get_submodule("5")) is nn.Linear
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(module._forward_hooks for module in guarded.modules())
    weights = {weight.data_ptr() for weight in net.parameters()}
    assert {weight.data_ptr() for weight in guarded.parameters()} == weights


class Labelled(nn.Module):
    """Gives a mapping, its head under two names, an inner dimension of 1."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.body = net[:5]
        self.head = net[5]
        self.last = self.head

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"logits": self.last(self.body(images)[:, None]).squeeze(1)}


class Reshaping(nn.Module):
    """Insists on the number of classes behind its head."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.inner = net

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images)[:, :7]


@TORCH_WARNS
def test_other_forms_of_networks(net: nn.Module, detectors: dict[str, Detector]) -> None:
    detector, images = detectors["optfs-e"], pictures(5)
    wanted = detector.score(Classifier(net), images)
    for form in (Labelled(net), Classifier(net, head="5"), torch.compile(net)):
        torch.testing.assert_close(detector.wrap(form)(images)[1], wanted)
    with pytest.raises(InputError, match=r"gives 7 values of 40 features"):
        detector.wrap(Reshaping(net))(images)


class Changed(nn.Module):
    """The logits, changed behind the head."""

    def __init__(self, net: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.change = net, change

    def forward(self, images: Tensor) -> Tensor:
        return self.change(self.inner(images))


@pytest.mark.parametrize(
    "change", [lambda x: x.softmax(1), lambda x: x / 2, lambda x: x + 1], ids=["softmax", "scale", "shift"]
)
def test_a_network_that_changes_the_logits_is_refused(
    net: nn.Module, detectors: dict[str, Detector], change: Callable[[Tensor], Tensor]
) -> None:
    guarded = detectors["energy"].wrap(Changed(net, change))
    for _ in range(2):  # not only once
        with pytest.raises(InputError, match=r"head='inner.5' does not give the logits of this network.*a softmax"):
            guarded(pictures(5))


def test_thresholds(net: nn.Module, detectors: dict[str, Detector]) -> None:
    detector, images = detectors["energy"], pictures(60, seed=7)
    each = torch.linspace(-5, 5, 7)
    guarded = wrap(net, detector, each)
    logits, score, accepted = guarded(images)
    assert torch.equal(accepted, score >= each[logits.argmax(dim=1)])
    assert torch.equal(guarded(images, torch.tensor([0.5]))[2], score >= 0.5)
    assert guarded.state_dict()["threshold"].shape == (7,)
    for bad in (torch.zeros(3), torch.tensor(0.0)):
        with pytest.raises(InputError, match=r"shape \[1\] or \[7\]"):
            wrap(net, detector, bad)


def test_an_image_without_a_score_is_not_accepted(net: nn.Module, detectors: dict[str, Detector]) -> None:
    images = pictures(3)
    images[1, 0, 4, 4] = torch.nan
    for name in ("energy", "optfs-v", "optfs-e", "msp"):
        _, score, accepted = wrap(net, detectors[name], torch.tensor([-torch.inf]))(images)
        assert accepted.tolist() == [True, False, True]
        assert torch.isfinite(score).tolist() == [True, False, True]


def test_what_cannot_be_wrapped_says_why(net: nn.Module, train: Features, detectors: dict[str, Detector]) -> None:
    fitted = Method(perturb=Odin(eps=0.01)).fit(train).calibrate(np.arange(99.0))
    with pytest.raises(InputError, match=r"cannot go into a graph.*Detector.score"):
        fitted.wrap(net)
    with pytest.raises(InputError, match="calibrate"):
        METHODS["energy"].fit(train).wrap(net)
    with pytest.raises(InputError, match=f"no nn.Linear layer with the weights of head {train.head.fingerprint}"):
        detectors["energy"].wrap(small_net(classes=6))
    with pytest.raises(InputError, match="no nn.Linear layer 'fc'"):
        detectors["energy"].wrap(net, head="fc")
    assert isinstance(detectors["energy"].wrap(net, head="5"), GuardedNet)


@pytest.mark.parametrize("name", ["dice", "optfs-v", "fdbd"])
def test_heads_without_bias_in_half_precision_or_parametrized(name: str) -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 7, bias=False))
    normed = copy.deepcopy(plain)
    nn.utils.parametrizations.weight_norm(normed[3])
    for net in (plain, copy.deepcopy(plain).to(torch.bfloat16), normed):
        classifier, images = Classifier(net), pictures(100)
        outputs = classifier(images)
        detector = (
            METHODS[name]
            .fit(Features.from_arrays(outputs.features.numpy(), outputs.head))
            .calibrate(Features.from_arrays(outputs.features.numpy(), outputs.head))
        )
        with torch.no_grad():
            _, score, _ = detector.wrap(net)(images.to(net[1].weight.dtype))
        assert score.dtype == torch.float32
        torch.testing.assert_close(score, detector.score(classifier, images), rtol=1e-4, atol=1e-4)
