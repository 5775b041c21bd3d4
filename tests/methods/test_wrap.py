"""The guarded module: what the detector says, in one pass, through torch.compile and torch.export, for any head."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oodshape import METHODS, Classifier, Detector, Features, InputError, Method
from oodshape.methods.fit_all import fit_all
from oodshape.methods.guarded_net import wrap_network
from oodshape.methods.perturb.odin import Odin
from other_heads import FOUND, POOLED, convolved
from small_nets import Net

pytestmark = pytest.mark.usefixtures("one_thread")
EXPORTABLE = [name for name, method in METHODS.items() if method.exportable]
TORCH_WARNS = pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning", "ignore::FutureWarning")
ANY_BATCH = ({0: torch.export.Dim("n")},)


def small_net(classes: int = 7) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 10, 3), nn.BatchNorm2d(10), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(40, classes), nn.Dropout(0.5))


def pictures(n: int, seed: int = 1, channels: int = 1) -> Tensor:
    """Each with a contrast and a brightness of its own, so that scores spread."""
    draw = torch.Generator().manual_seed(seed)
    contrast, brightness = torch.rand(2, n, 1, 1, 1, generator=draw)
    return torch.randn(n, channels, 8, 8, generator=draw) * contrast + brightness


photos = partial(pictures, channels=3)


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


def agree(
    said: tuple[Tensor, Tensor, Tensor], detector: Detector, net: nn.Module, images: Tensor, near: float = 1e-4
) -> None:
    """With the classifier and the detector, image by image."""
    classifier = Classifier(net)
    outputs, decided = classifier(images), detector.decide(classifier, images)
    size = float(decided.scores.abs().max())
    torch.testing.assert_close(said[0], outputs.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(said[1], decided.scores, rtol=near, atol=near * size)
    clear = (decided.scores - detector.threshold).abs() > near * size
    assert torch.equal(said[2][clear], decided.accepted[clear])
    assert 0 < said[2].sum() < len(images)


@pytest.mark.parametrize("name", EXPORTABLE)
def test_it_says_what_the_detector_says(name: str, net: nn.Module, detectors: dict[str, Detector]) -> None:
    images = pictures(50, seed=2)
    with torch.no_grad():
        agree(detectors[name].wrap(net)(images), detectors[name], net, images, near=1e-5)


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


@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_with_any_batch(strict: bool, net: nn.Module, detectors: dict[str, Detector], tmp_path) -> None:
    guarded, images = detectors["optfs-v"].wrap(net), pictures(9)
    program = torch.export.export(guarded, (images[:4],), dynamic_shapes=ANY_BATCH, strict=strict)
    torch.export.save(program, tmp_path / "guarded.pt2")
    loaded = torch.export.load(tmp_path / "guarded.pt2").module()
    for batch in (images, images[:1]):
        for mine, theirs in zip(loaded(batch), guarded(batch), strict=True):
            torch.testing.assert_close(mine, theirs)


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


@TORCH_WARNS
def test_other_forms_of_networks(net: nn.Module, detectors: dict[str, Detector]) -> None:
    detector, images = detectors["optfs-e"], pictures(5)
    wanted = detector.score(Classifier(net), images)
    for form in (Labelled(net), Classifier(net, head="5"), torch.compile(net)):
        torch.testing.assert_close(detector.wrap(form)(images)[1], wanted)
    with pytest.raises(InputError, match=r"gives 7 values of 40 features"):
        detector.wrap(Changed(net, lambda logits: logits[:, :7]))(images)


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
    guarded = wrap_network(net, detector, each)
    logits, score, accepted = guarded(images)
    assert torch.equal(accepted, score >= each[logits.argmax(dim=1)])
    assert torch.equal(guarded(images, torch.tensor([0.5]))[2], score >= 0.5)
    for bad in (torch.zeros(3), torch.tensor(0.0)):
        with pytest.raises(InputError, match=r"shape \[1\] or \[7\]"):
            wrap_network(net, detector, bad)


def test_what_cannot_be_wrapped_says_why(net: nn.Module, train: Features, detectors: dict[str, Detector]) -> None:
    fitted = Method(perturb=Odin(eps=0.01)).fit(train).calibrate(np.arange(99.0))
    for message, refused in {
        "cannot go into a graph.*Detector.score": lambda: fitted.wrap(net),
        "calibrate": lambda: METHODS["energy"].fit(train).wrap(net),
        f"no nn.Linear layer with the weights of head {train.head.fingerprint}": lambda: detectors["energy"].wrap(
            small_net(classes=6)
        ),
        "no nn.Linear layer 'fc'": lambda: detectors["energy"].wrap(net, head="fc"),
    }.items():
        with pytest.raises(InputError, match=message):
            refused()


@pytest.mark.parametrize("name", ["dice", "optfs-v", "fdbd"])
def test_heads_without_bias_in_half_precision_or_parametrized(name: str) -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 7, bias=False))
    normed, spectral = copy.deepcopy(plain), copy.deepcopy(plain)
    nn.utils.parametrizations.weight_norm(normed[3])
    nn.utils.parametrizations.spectral_norm(spectral[3])
    for net in (plain, copy.deepcopy(plain).to(torch.bfloat16), normed, spectral):
        classifier, images, before = Classifier(net.train()), pictures(100), copy.deepcopy(net.state_dict())
        outputs = classifier(images)
        assert classifier.head.fingerprint == outputs.head.fingerprint
        train = Features.from_arrays(outputs.features.numpy(), outputs.head)
        detector = METHODS[name].fit(train).calibrate(train)
        with torch.no_grad():
            _, score, _ = detector.wrap(net)(images.to(net[1].weight.dtype))
        assert score.dtype == torch.float32
        torch.testing.assert_close(dict(net.state_dict()), dict(before), rtol=0, atol=0)
        torch.testing.assert_close(score, detector.score(classifier, images), rtol=1e-4, atol=1e-4)


def fitted(net: nn.Module, head: str | None = None, method: str = "optfs-e") -> Detector:
    outputs = Classifier(net, head)(photos(120))
    train = Features.from_arrays(outputs.features.numpy(), outputs.head)
    return METHODS[method].fit(train).calibrate(train, alpha=0.3)


def made(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return FOUND[kind][0]().eval()


@pytest.mark.parametrize("kind", FOUND)
def test_a_head_of_another_form_says_what_the_detector_says(kind: str) -> None:
    net, images = made(kind), photos(40, seed=2)
    detector = fitted(net)
    with torch.no_grad():
        agree(detector.wrap(net, probe=images)(images), detector, net, images)


@TORCH_WARNS
@pytest.mark.parametrize("kind", ["convolution before pooling", "scaled output"])
def test_it_says_the_same_compiled_and_exported(kind: str) -> None:
    net, images = made(kind), photos(40, seed=2)
    detector = fitted(net)
    guarded = detector.wrap(net, probe=images)
    torch._dynamo.reset()
    any_size = ({0: torch.export.Dim("n")}, None)
    with torch.no_grad():
        guarded(images)
        agree(torch.compile(guarded, backend="eager", fullgraph=True)(images), detector, net, images)
        program = torch.export.export(guarded, (images[:3], guarded.threshold), dynamic_shapes=any_size)
        agree(program.module()(images, guarded.threshold), detector, net, images)


def test_the_head_can_be_the_second_output() -> None:
    torch.manual_seed(0)
    net, images = Net(finish=lambda y: (y * 2, y)).eval(), photos(40, seed=2)
    detector = fitted(net, head="fc")
    with torch.no_grad():
        logits, score, _ = detector.wrap(net, head="fc", probe=images)(images)
    classifier = Classifier(net, "fc")
    torch.testing.assert_close(logits, classifier(images).logits)
    torch.testing.assert_close(score, detector.score(classifier, images))


def test_without_a_batch_one_line_says_what_to_give() -> None:
    net = convolved(*POOLED).eval()
    detector = fitted(net)
    classifier = Classifier(net)
    classifier(photos(2))
    detector.wrap(classifier)  # it has had one
    for given in (net, Classifier(net, "2")):
        with pytest.raises(InputError, match=r"is seen in a batch: give one, wrap\(..., probe=images\)"):
            detector.wrap(given, head="2")
    with pytest.raises(InputError, match=r"fit it again .* probe=images"):
        detector.wrap(net)
    with torch.no_grad():
        net[2].weight.mul_(2)
    with pytest.raises(InputError, match="fit it again for this checkpoint"):
        detector.wrap(net, probe=photos(2))


class Switching(nn.Module):
    """Runs its head only for images of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.net = convolved(*POOLED)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) if x.shape[-1] == 8 else x.mean((2, 3))


def test_a_pass_without_the_head_is_one_line() -> None:
    torch.manual_seed(0)
    net = Switching().eval()
    guarded = fitted(net).wrap(net, probe=photos(2))
    with pytest.raises(InputError, match="linear map 1 of a forward pass, was not met in this one"):
        guarded(torch.rand(2, 3, 4, 4))
