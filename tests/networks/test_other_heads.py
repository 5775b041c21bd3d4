"""Heads that are linear and no nn.Linear are found; a cosine head and two outputs get an error that says why."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oodshape.core.errors import InputError
from oodshape.networks.classifier import Classifier
from other_heads import FOUND, POOLED, convolved
from small_nets import C, M, Net, body, explains, images

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


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


def test_a_reading_that_failed_leaves_nothing_behind() -> None:
    net = convolved(nn.ReLU(), *POOLED)
    with pytest.raises(InputError, match=r"images of shape \[5, 8, 8\] .*channels"):
        Classifier(net, head="2")(torch.randn(2, 5, 8, 8))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert torch.overrides._get_current_function_mode() is None


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


def test_torchscript_is_named_for_what_it_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        traced = torch.jit.trace(Net().eval(), images())
    with pytest.raises(InputError, match=r"TorchScript module \(torch.jit\).* torch.export archive"):
        Classifier(traced)
