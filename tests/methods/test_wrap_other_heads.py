"""Heads that are linear and no nn.Linear, in a guarded network: eager, compiled, exported, as an ONNX graph."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from oodshape import METHODS, Classifier, Detector, Features, InputError
from oodshape.methods.guarded_net import GuardedNet
from other_heads import FOUND, POOLED, convolved
from small_nets import Net

pytestmark = pytest.mark.usefixtures("one_thread")
TORCH_WARNS = pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning", "ignore::FutureWarning")


def pictures(n: int, seed: int = 1) -> Tensor:
    """Each with a contrast of its own, so that scores spread."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, 8, 8, generator=draw) * torch.rand(n, 1, 1, 1, generator=draw)


def fitted(net: nn.Module, head: str | None = None, method: str = "optfs-e") -> Detector:
    outputs = Classifier(net, head)(pictures(120))
    train = Features.from_arrays(outputs.features.numpy(), outputs.head)
    return METHODS[method].fit(train).calibrate(train, alpha=0.3)


def made(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return FOUND[kind][0]().eval()


def agree(said: tuple[Tensor, Tensor, Tensor], detector: Detector, net: nn.Module, images: Tensor) -> None:
    """With the classifier and the detector, image by image."""
    classifier = Classifier(net)
    outputs, decided = classifier(images), detector.decide(classifier, images)
    size = float(decided.scores.abs().max())
    torch.testing.assert_close(said[0], outputs.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(said[1], decided.scores, rtol=1e-4, atol=1e-4 * size)
    clear = (decided.scores - detector.threshold).abs() > 1e-4 * size
    assert torch.equal(said[2][clear], decided.accepted[clear])
    assert 0 < said[2].sum() < len(images)


@pytest.mark.parametrize("kind", FOUND)
def test_it_says_what_the_detector_says(kind: str) -> None:
    net, images = made(kind), pictures(40, seed=2)
    detector = fitted(net)
    with torch.no_grad():
        agree(detector.wrap(net, probe=images)(images), detector, net, images)


@TORCH_WARNS
@pytest.mark.parametrize("kind", ["convolution before pooling", "scaled output"])
def test_it_says_the_same_compiled_and_exported(kind: str) -> None:
    net, images = made(kind), pictures(40, seed=2)
    detector = fitted(net)
    guarded = detector.wrap(net, probe=images)
    torch._dynamo.reset()
    any_size = ({0: torch.export.Dim("n")}, None)
    with torch.no_grad():
        guarded(images)
        agree(torch.compile(guarded, backend="eager", fullgraph=True)(images), detector, net, images)
        program = torch.export.export(guarded, (images[:3], guarded.threshold), dynamic_shapes=any_size)
        agree(program.module()(images, guarded.threshold), detector, net, images)


@TORCH_WARNS
@pytest.mark.parametrize(
    "kind", ["convolution before pooling", "convolution after pooling", "function", "scaled output"]
)
def test_it_becomes_an_onnx_file(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from oodshape.guard.export.onnx import export_onnx

    net, images = made(kind), pictures(12, seed=2)
    detector = fitted(net)
    report = export_onnx(net, detector, tmp_path / "guarded.onnx", images)  # compares with torch, or refuses
    assert (report.images, report.decisions) == (12, 0)
    assert (tmp_path / "guarded.onnx").is_file()


def test_the_head_can_be_the_second_output() -> None:
    torch.manual_seed(0)
    net, images = Net(finish=lambda y: (y * 2, y)).eval(), pictures(40, seed=2)
    detector = fitted(net, head="fc")
    with torch.no_grad():
        logits, score, _ = detector.wrap(net, head="fc", probe=images)(images)
    classifier = Classifier(net, "fc")
    torch.testing.assert_close(logits, classifier(images).logits)
    torch.testing.assert_close(score, detector.score(classifier, images))


def test_a_classifier_that_has_had_a_batch_needs_no_probe_and_nothing_is_left_on_the_network() -> None:
    net, images = made("function").train(), pictures(40, seed=2)
    classifier = Classifier(net)
    detector = fitted(net)
    classifier(images[:2])
    guarded = detector.wrap(classifier)
    assert isinstance(guarded, GuardedNet)
    assert net.training
    assert torch.overrides._get_current_function_mode() is None
    assert {id(each) for each in net.parameters()} <= {id(each) for each in guarded.parameters()}


def test_without_a_batch_one_line_says_what_to_give() -> None:
    net = convolved(*POOLED).eval()
    detector = fitted(net)
    for given in (net, Classifier(net, "2")):
        with pytest.raises(InputError, match=r"is seen in a batch: give one, wrap\(..., probe=images\)"):
            detector.wrap(given, head="2")
    with pytest.raises(InputError, match=r"fit it again .* probe=images"):
        detector.wrap(net)


def test_other_weights_are_refused() -> None:
    net = convolved(*POOLED).eval()
    detector = fitted(net)
    with torch.no_grad():
        net[2].weight.mul_(2)
    with pytest.raises(InputError, match="fit it again for this checkpoint"):
        detector.wrap(net, probe=pictures(2))


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
    guarded = fitted(net).wrap(net, probe=pictures(2))
    with pytest.raises(InputError, match="linear map 1 of a forward pass, was not met in this one"):
        guarded(torch.rand(2, 3, 4, 4))
