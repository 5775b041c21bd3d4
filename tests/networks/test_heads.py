"""Linear heads of every form are found; networks that no threshold could hold for are refused, with the fix."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oodshape import Features, Guard, Preprocessing
from oodshape.core.errors import HeadError, InputError
from oodshape.images.sources.memory import as_image
from oodshape.networks.classifier import Classifier
from other_heads import FOUND, POOLED, convolved
from small_nets import C, M, Net, body, explains, images

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class TwoHeads(nn.Module):
    def __init__(self, combine: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.first, self.second, self.combine = body(), nn.Linear(M, C), nn.Linear(M, C), combine

    def forward(self, x: Tensor) -> Tensor:
        z = self.body(x)
        return self.combine(self.first(z), self.second(z))


class UsedTwice(Net):
    def forward(self, x: Tensor) -> Tensor:
        self.fc(self.body(x.flip(-1)))
        return self.fc(self.body(x))


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "softmax": (lambda: Net(finish=lambda y: y.softmax(1)), r"'fc' \(7 -> 5\) gives other values"),
    "scale of its own": (
        lambda: Net(finish=lambda y: y / y.detach().norm(dim=1, keepdim=True)),
        r"'fc' \(7 -> 5\) gives other values",
    ),
    "in-place relu": (lambda: nn.Sequential(body(), nn.Linear(M, C), nn.ReLU(inplace=True)), "'1' .* other values"),
    "average": (lambda: TwoHeads(lambda a, b: (a + b) / 2), "'first' .* other values"),
    "used twice": (UsedTwice, r"'fc' \(7 -> 5\) ran 2 times"),
    "no linear": (lambda: nn.Sequential(nn.Conv2d(3, C, 8), nn.Flatten()), "Its nn.Linear layers: none"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_logits_that_no_layer_gives_are_refused(kind: str) -> None:
    make, reason = REFUSED[kind]
    with pytest.raises(InputError, match=reason) as caught:
        Classifier(make())(images())
    assert "no nn.Linear layer gives the logits [2, " in str(caught.value)
    assert 'head="..."' in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in REFUSED if kind != "no linear"])
def test_naming_a_layer_that_does_not_give_the_logits_is_refused(kind: str) -> None:
    net = REFUSED[kind][0]()
    name = next(name for name in ("fc", "first", "1") if name in dict(net.named_modules()))
    with pytest.raises(InputError, match=f"head='{name}' does not give the logits of this batch: it "):
        Classifier(net, head=name)(images())


def test_two_layers_with_the_same_output_are_refused_until_one_is_named() -> None:
    net = TwoHeads(lambda a, b: (a + b) / 2)
    net.second.load_state_dict(net.first.state_dict())
    with pytest.raises(
        InputError, match=r"(?s)2 nn.Linear layers give .*'second' .* gives the logits; 'first' .* gives the logits"
    ):
        Classifier(net)(images())
    with pytest.raises(HeadError, match="but not larger ones"):  # an average of both is no head
        Classifier(net, head="second")(images())


@pytest.mark.parametrize("functional", [False, True])
def test_a_limit_behind_the_head_is_found_before_an_image_meets_it(functional: bool) -> None:
    net = Net(finish=lambda y: y.clamp(-3, 3))
    if functional:  # a head that is no layer
        net.fc = Functional(net.fc)
    with pytest.raises(HeadError, match="a layer behind it changes them"):
        Classifier(net, probe=images() * 0.01)


class Functional(nn.Module):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


def test_a_wrong_name_lists_the_layers() -> None:
    with pytest.raises(InputError, match=r"head='head' is not in Net.*: 'fc' \(7 -> 5\); 'body.4' \(144 -> 7\)"):
        Classifier(Net(), head="head")
    with pytest.raises(InputError, match=r"head='body.2' .*: it is no linear layer, and holds no linear map"):
        Classifier(Net(), head="body.2")(images())


def test_the_head_is_unknown_before_the_first_batch_unless_named() -> None:
    with pytest.raises(InputError, match="the head is found at the first batch"):
        _ = Classifier(Net()).head
    net = Net()
    assert torch.equal(Classifier(net, head="fc").head.weight, net.fc.weight)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_name_their_row(value: float) -> None:
    net = Net(finish=lambda y: torch.where(torch.arange(len(y))[:, None] == 3, value, y))
    classifier = Classifier(net)
    with pytest.raises(InputError, match=r"logits of 1 of 6 images \(first: row 3\) hold NaN, infinite"):
        classifier(images())
    explains(classifier(images(3)))


@pytest.mark.parametrize(
    ("net", "batch", "message"),
    [
        (Net(), [images(1)], "images must be one tensor .* got list"),
        (Net(), images(0), r"N > 0, got shape \[0, 3, 8, 8\]"),
        (Net(), torch.randn(5), r"a batch \[N, ...\] .* got shape \[5\]"),
        (Net(finish=lambda y: {"out": y}), images(), r"got dict with \['out'\]"),
        (Net(finish=lambda y: y.mean(0)), images(), r"one row of logits per image \(2\), got \[5\]"),
        (nn.Conv2d(3, 3, 1), images(), r"returns \[2, 3, 8, 8\], values at many places"),  # segmentation
        (nn.Sequential(nn.Flatten(1, 2), nn.Linear(8, 5)), images(), r"returns \[2, 24, 5\], values at many places"),
    ],
)
def test_batches_and_outputs_that_are_none_are_refused(net: nn.Module, batch: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Classifier(net)(batch)


@pytest.mark.parametrize("kind", FOUND)
def test_a_linear_head_that_is_no_linear_layer_is_found(kind: str) -> None:
    make, name = FOUND[kind]
    net, batch = make().eval(), images()
    classifier = Classifier(net)
    outputs = classifier(batch)
    assert classifier.head_name == name
    explains(outputs)
    torch.testing.assert_close(outputs.logits, net(batch).reshape(6, -1).detach())
    again = classifier(batch[:1])
    assert again.head is outputs.head
    torch.testing.assert_close(again.features, outputs.features[:1])


def test_the_head_before_pooling_reads_the_pooled_features() -> None:
    net, batch = convolved(*POOLED).eval(), images()
    torch.testing.assert_close(Classifier(net)(batch).features, net[:2](batch).mean((2, 3)).detach())


def test_a_head_that_is_no_linear_layer_can_be_named() -> None:
    classifier = Classifier(convolved(*POOLED), head="2")
    assert not classifier.head_known
    explains(classifier(images()))
    assert classifier.head_known


def test_weights_that_change_give_another_head() -> None:
    net = convolved(*POOLED)
    classifier = Classifier(net)
    before = classifier(images()).head
    with torch.no_grad():
        net[2].weight.mul_(2)
    torch.testing.assert_close(classifier(images()).head.weight, 2 * before.weight)


def test_a_relu_between_head_and_pooling_is_refused() -> None:
    with pytest.raises(InputError, match="no nn.Linear layer gives the logits .* and no other linear map in it does"):
        Classifier(convolved(nn.ReLU(), *POOLED))(images())


class Cosine(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 16 * F.linear(F.normalize(x), F.normalize(self.weight))


class CosineByProduct(Cosine):
    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x) @ F.normalize(self.weight).T


# One image does not tell a scaled cosine from a feature of that length, so it takes two.
@pytest.mark.parametrize(("kind", "n"), [(Cosine, 2), (Cosine, 6), (CosineByProduct, 1), (CosineByProduct, 6)])
@pytest.mark.parametrize("named", [None, "1"])
def test_a_cosine_head_is_refused_for_what_it_is(kind: type[nn.Linear], named: str | None, n: int) -> None:
    with pytest.raises(InputError, match="the logits come from a cosine head in '1': .* train a linear head"):
        Classifier(nn.Sequential(body(), kind(M, C)), named)(images(n))


def test_two_outputs_are_an_error_that_asks_which() -> None:
    net = Net(finish=lambda y: (y * 2, y))
    with pytest.raises(InputError, match=r"returns 2 tensors, \[2, 5\] and \[2, 5\]: which one are the logits\?"):
        Classifier(net)(images())
    classifier, batch = Classifier(net, head="fc"), images()
    outputs = classifier(batch)
    explains(outputs)
    torch.testing.assert_close(classifier.logits(batch).detach(), outputs.logits)


@pytest.mark.parametrize("finish", [lambda y: (y.softmax(dim=1), y), lambda y: (y, y.softmax(dim=1))])
def test_logits_beside_their_softmax_are_found(finish: Callable[[Tensor], Any]) -> None:
    """YOLO's classifiers return both."""
    classifier = Classifier(Net(finish=finish))
    explains(classifier(images()))
    assert classifier.head_name == "fc"


def test_torchscript_is_named_for_what_it_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        traced = torch.jit.trace(Net().eval(), images())
    with pytest.raises(InputError, match=r"TorchScript module \(torch.jit\).* torch.export archive"):
        Classifier(traced)


IMAGES = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class Small(nn.Module):
    """A small classifier; `tracked`: whether its normalisation has statistics of its own."""

    def __init__(self, *, tracked: bool = True, random: bool = False, outputs: int = 5) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, track_running_stats=tracked)
        self.random, self.fc = random, nn.Linear(144, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.fc(nn.functional.dropout(x, 0.5, training=self.random))


def test_features_that_depend_on_the_batch_or_on_chance_are_refused() -> None:
    net, sizes = Small(), []
    net.register_forward_pre_hook(lambda _, images: sizes.append(len(images[0])))
    classifier = Classifier(net, probe=IMAGES)
    sizes.clear()
    for _ in range(2):
        classifier.check_repeatable(IMAGES[:2])
    assert sizes == [2, 2, 1, 1]  # four forward passes, once
    with pytest.raises(
        InputError, match=r"depend on the other images of its batch \(norm: track_running_stats=False\)"
    ):
        Classifier(Small(tracked=False)).check_repeatable(IMAGES[:2])
    with pytest.raises(InputError, match="random in eval mode too"):
        Classifier(Small(random=True)).check_repeatable(IMAGES[:2])
    with pytest.raises(InputError, match="depend on the other images"):
        Features.extract(Classifier(Small(tracked=False)), [IMAGES], prepared=True, progress=False)
    pictures = np.random.default_rng(0).integers(0, 256, (120, 8, 8, 1), np.uint8)
    with pytest.raises(InputError, match="depend on the other images"):
        Guard.fit(Small(tracked=False), images=pictures, preprocessing=Preprocessing((0.5,), (0.5,)), method="energy")


def test_one_output_is_refused_and_the_fix_works() -> None:
    net = Small(outputs=1)
    with pytest.raises(InputError, match=r"one output .* two logits \(0, z\)"):
        Classifier(net)(IMAGES)
    two, head = nn.Linear(144, 2), net.fc
    two.weight.data = torch.cat([0 * head.weight, head.weight]).data
    two.bias.data = torch.cat([0 * head.bias, head.bias]).data
    z = net.eval()(IMAGES)
    net.fc = two
    torch.testing.assert_close(Classifier(net)(IMAGES).logits, torch.cat([0 * z, z], dim=1))


def test_tensors_without_values_are_refused() -> None:
    with pytest.raises(InputError, match="images are on the meta device"):
        Classifier(Small())(IMAGES.to("meta"))
    with pytest.raises(InputError, match="weights are on the meta device"):
        _ = Classifier(Small().to("meta")).fingerprint
    pictures = list(np.random.default_rng(0).integers(256, size=(100, 8, 8, 1), dtype=np.uint8))
    with pytest.raises(InputError, match="weights are on the meta device"):
        Guard.fit(Small().to("meta"), images=pictures, preprocessing=Preprocessing((0.5,), (0.5,)), method="energy")
    with pytest.raises(InputError, match="meta device has no values"):
        as_image(torch.empty(1, 8, 8, device="meta"), upright=False)
