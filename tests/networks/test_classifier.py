"""Classifier: it finds the head by value, and the head explains the logits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

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
    "weight norm": (
        lambda: nn.Sequential(body(), nn.utils.parametrizations.weight_norm(nn.Linear(M, C))),
        "1",
    ),
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


def test_a_layer_with_two_names_is_one_layer() -> None:
    net = Net()
    net.alias = net.fc
    explains(Classifier(net)(images()))
    explains(Classifier(net, head="alias")(images()))


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


def test_autocast_is_still_explained() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        outputs = Classifier(Net())(images())
    explains(outputs, tolerance=2e-2)


def test_a_compiled_network_is_read_through() -> None:
    net = Net()
    compiled = torch.compile(net, backend="eager")
    batch = images()
    assert torch.equal(Classifier(compiled)(batch).logits, Classifier(net)(batch).logits)
    assert Classifier(compiled).fingerprint == Classifier(net).fingerprint


def test_threads_do_not_mix_their_batches() -> None:
    net = Net().train()
    classifier = Classifier(net)
    batches = [images(n) for n in range(1, 21)]
    expected = [classifier(batch).features for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        for features, outputs in zip(expected, pool.map(classifier, batches), strict=True):
            assert torch.equal(outputs.features, features)
    assert all(module.training for module in net.modules())


def test_the_fingerprint_is_of_all_weights_and_buffers() -> None:
    net = Net()
    classifier = Classifier(net)
    prints = [classifier.fingerprint]
    classifier(images())
    assert classifier.fingerprint == Classifier(copy.deepcopy(net).eval()).fingerprint == prints[0]
    assert len(prints[0]) == 16
    assert int(prints[0], 16) >= 0
    with torch.no_grad():
        net.body[0].weight.view(-1)[5] += 1e-6
        prints.append(classifier.fingerprint)
        net.body[1].running_mean[0] += 1e-6
        prints.append(classifier.fingerprint)
    assert len(set(prints)) == 3
