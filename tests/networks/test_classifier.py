"""Classifier: it finds the head, the head explains the logits, the network stays as it was; its fingerprint."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import Classifier
from small_nets import ByKeyword, C, M, ModelOutput, Net, body, explains, images

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


NETS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "sequential": (lambda: nn.Sequential(*body(), nn.Linear(M, C)), "6"),
    "dropout before": (lambda: Net(before=nn.Dropout(0.5)), "fc"),
    "dropout after": (lambda: nn.Sequential(body(), nn.Linear(M, C), nn.Dropout(0.5)), "1"),
    "identity after": (lambda: nn.Sequential(body(), nn.Sequential(nn.Linear(M, C), nn.Identity())), "1.0"),
    "one token": (lambda: Net(before=nn.Unflatten(1, (1, M)), finish=lambda y: y.squeeze(1)), "fc"),
    "one token kept": (lambda: Net(before=nn.Unflatten(1, (1, M))), "fc"),
    "squeeze": (lambda: Net(finish=torch.squeeze), "fc"),
    "flatten": (lambda: Net(finish=lambda y: y[:, :, None, None].flatten(1)), "fc"),
    "object": (lambda: Net(finish=ModelOutput), "fc"),
    "dict": (lambda: Net(finish=lambda y: {"hidden": y + 1, "logits": y}), "fc"),
    "tuple of one": (lambda: Net(finish=lambda y: (y, None)), "fc"),
    "keyword": (ByKeyword, "fc"),
    "no bias": (lambda: nn.Sequential(body(), nn.Linear(M, C, bias=False)), "1"),
    "square head": (lambda: nn.Sequential(body(), nn.Linear(M, M), nn.ReLU(), nn.Linear(M, M)), "3"),
    "weight norm": (lambda: nn.Sequential(body(), nn.utils.parametrizations.weight_norm(nn.Linear(M, C))), "1"),
}


@pytest.mark.parametrize("n", [1, 6])
@pytest.mark.parametrize("kind", NETS)
def test_the_head_is_found_and_explains_the_logits(kind: str, n: int) -> None:
    make, name = NETS[kind]
    net = make()
    classifier, batch = Classifier(net), images(n)
    outputs = classifier(batch)
    assert classifier.head_name == name
    assert outputs.logits.shape[0] == n
    explains(outputs)
    torch.testing.assert_close(classifier(batch[:1]).logits, outputs.logits[:1])


def test_features_are_what_enters_the_head() -> None:
    net = Net().eval()
    batch = images()
    outputs = Classifier(net)(batch)
    with torch.no_grad():
        torch.testing.assert_close(outputs.features, net.body(batch), rtol=0, atol=0)
        torch.testing.assert_close(outputs.logits, net(batch), rtol=0, atol=0)
    assert torch.equal(outputs.head.weight, net.fc.weight)
    assert torch.equal(outputs.head.bias, net.fc.bias)


def test_tokens_stay_integers() -> None:
    net = nn.Sequential(nn.Embedding(20, M), nn.Flatten(), nn.Linear(4 * M, C))
    explains(Classifier(net)(torch.randint(0, 20, (6, 4))))


def test_the_network_may_be_the_head_itself() -> None:
    classifier = Classifier(nn.Linear(M, C), probe=torch.randn(3, M))
    assert classifier.head_name == ""
    explains(classifier(torch.randn(6, M)))


def test_tied_weights_are_copied() -> None:
    net = nn.Sequential(nn.Linear(M, M), nn.ReLU(), nn.Linear(M, M))
    net[2].weight = net[0].weight
    classifier = Classifier(net)
    outputs = classifier(torch.randn(6, M))
    explains(outputs)
    before = outputs.head.weight.clone()
    with torch.no_grad():
        net[0].weight.mul_(2)
    assert torch.equal(outputs.head.weight, before)
    assert torch.equal(classifier.head.weight, 2 * before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_come_out_in_float32(dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, C)).to(dtype)
    outputs = Classifier(net)(images())
    explains(outputs, tolerance=max(1e-5, 2 * torch.finfo(dtype).eps))
    assert net[3].weight.dtype == dtype


def test_threads_do_not_mix_their_batches() -> None:
    net = Net().train()
    classifier = Classifier(net)
    batches = [images(n) for n in range(1, 21)]
    expected = [classifier(batch).features for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        for features, outputs in zip(expected, pool.map(classifier, batches), strict=True):
            assert torch.equal(outputs.features, features)
    assert all(module.training for module in net.modules())


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
    net, seen = mixed(Net(before=nn.Dropout(0.5))), []
    net.fc.register_forward_hook(lambda *_: seen.append(1))
    before, batch = state(net), images()
    classifier = Classifier(net)
    for _ in range(2):
        read(classifier, batch)
    seen.clear()
    found = read(classifier, batch)
    assert seen == [1]  # the user's hooks run
    assert same(state(net), before)
    with torch.no_grad():  # dropout does not act, and batch norm does not move
        assert torch.equal(getattr(found, "logits", found), copy.deepcopy(net).eval()(batch))


@pytest.mark.parametrize("read", [Classifier.__call__, Classifier.logits])
def test_the_network_is_untouched_after_an_exception(read: Callable[[Classifier, Tensor], Any]) -> None:
    def fail(logits: Tensor) -> Tensor:
        raise RuntimeError("out of memory")

    for classifier in (Classifier(mixed(Net(finish=fail))), Classifier(mixed(Net(finish=fail)), head="fc")):
        before = state(classifier.net)
        with pytest.raises((RuntimeError, InputError), match="out of memory"):
            read(classifier, images())
        assert same(state(classifier.net), before)


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


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


def grown(net: nn.Module) -> None:
    with torch.no_grad():
        net[0].weight[2, 3] += 1


def moved(net: nn.Module) -> None:
    net[1].running_mean[0] += 1e-6


def replaced(net: nn.Module) -> None:
    net[2] = nn.Linear(6, 3)


@pytest.mark.parametrize("change", [grown, moved, replaced])
def test_every_change_is_noticed(change: Callable[[nn.Module], None]) -> None:
    net = make()
    before = Classifier(net).fingerprint
    change(net)
    assert Classifier(net).fingerprint == Classifier(copy.deepcopy(net)).fingerprint != before
