"""The network stays as it was: modes, hooks, weights, buffers, gradients, images."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import Classifier
from small_nets import Net, images

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def state(net: nn.Module) -> dict[str, Any]:
    """All that a reader could have changed."""
    return {
        "weights": {key: value.clone() for key, value in net.state_dict().items()},
        "modes": [module.training for module in net.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()],
        "requires_grad": [weight.requires_grad for weight in net.parameters()],
        "identity": [id(weight) for weight in net.parameters()],
        "grad": [weight.grad for weight in net.parameters()],
    }


def same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    weights, old = now["weights"], before["weights"]
    bits_equal = weights.keys() == old.keys() and all(torch.equal(weights[key], old[key]) for key in old)
    return bits_equal and all(now[key] == before[key] for key in before if key != "weights")


def mixed(net: Net) -> Net:
    """Training, but for a frozen part: the mixture that one call of train() would lose."""
    net.train()
    net.body[1].eval()
    net.fc.eval()
    net.body[0].weight.requires_grad_(False)
    return net


@pytest.mark.parametrize("read", [Classifier.__call__, Classifier.logits])
def test_the_network_is_untouched(read: Callable[[Classifier, Tensor], Any]) -> None:
    net = mixed(Net(before=nn.Dropout(0.5)))
    before = state(net)
    classifier = Classifier(net)
    for _ in range(2):
        read(classifier, images())
    assert same(state(net), before)


def test_batch_norm_does_not_move_and_dropout_does_not_act_in_training_mode() -> None:
    net = Net(before=nn.Dropout(0.5)).train()
    batch, before = images(), state(net)
    outputs = Classifier(net)(batch)
    assert same(state(net), before)
    with torch.no_grad():
        assert torch.equal(outputs.logits, copy.deepcopy(net).eval()(batch))


@pytest.mark.parametrize("read", [Classifier.__call__, Classifier.logits])
def test_the_network_is_untouched_after_an_exception(read: Callable[[Classifier, Tensor], Any]) -> None:
    def fail(logits: Tensor) -> Tensor:
        raise RuntimeError("out of memory")

    for classifier in (Classifier(mixed(Net(finish=fail))), Classifier(mixed(Net(finish=fail)), head="fc")):
        before = state(classifier.net)
        with pytest.raises((RuntimeError, InputError), match="out of memory"):
            read(classifier, images())
        assert same(state(classifier.net), before)


def test_the_users_hooks_stay_and_still_run() -> None:
    net, seen = Net(), []
    net.fc.register_forward_hook(lambda *_: seen.append(1))
    Classifier(net, head="fc")(images())
    assert seen == [1]
    assert len(net.fc._forward_hooks) == 1


def test_images_are_unchanged_by_a_network_that_works_in_place() -> None:
    class InPlace(Net):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x.mul_(2.0))

    net = InPlace()
    batch = images()
    kept = batch.clone()
    classifier = Classifier(net)
    first = classifier(batch)
    assert torch.equal(batch, kept)
    assert torch.equal(first.logits, classifier(batch).logits)
    torch.testing.assert_close(classifier.logits(batch.requires_grad_()), first.logits)


def test_in_inference_mode_no_inference_tensor_is_kept() -> None:
    with torch.inference_mode():
        outputs = Classifier(Net())(images())
    assert not any(t.is_inference() for t in (outputs.features, outputs.logits, outputs.head.weight))


def test_logits_differentiate_to_the_images_and_leave_no_gradient_on_the_weights() -> None:
    net = mixed(Net(before=nn.Dropout(0.5)))
    classifier, batch = Classifier(net), images().requires_grad_()
    with torch.no_grad():
        logits = classifier.logits(batch)
    torch.testing.assert_close(logits, classifier(batch).logits)
    logits.logsumexp(1).sum().backward()
    assert all(weight.grad is None for weight in net.parameters())
    plain = batch.detach().clone().requires_grad_()
    (expected,) = torch.autograd.grad(copy.deepcopy(net).eval()(plain).logsumexp(1).sum(), plain)
    torch.testing.assert_close(batch.grad, expected)
