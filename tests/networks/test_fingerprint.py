"""The fingerprint of a network is hashed once, and again when the weights change in whatever way."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

from oodshape.networks import classifier as module
from oodshape.networks.classifier import Classifier, network_fingerprint


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


def grown(net: nn.Module) -> None:
    with torch.no_grad():
        net[0].weight[2, 3] += 1


def trained(net: nn.Module) -> None:
    net(torch.randn(4, 8)).sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()


def through_data(net: nn.Module) -> None:
    net[2].weight.data.add_(1)


def replaced(net: nn.Module) -> None:
    net[2] = nn.Linear(6, 3)


def loaded(net: nn.Module) -> None:
    net.load_state_dict({name: value + 1 for name, value in make().state_dict().items()})


@pytest.mark.parametrize("change", [grown, trained, through_data, replaced, loaded])
def test_every_change_is_noticed(change: Callable[[nn.Module], None]) -> None:
    net = make()
    before = network_fingerprint(net)
    change(net)
    after = network_fingerprint(net)
    assert after == module._hashed(net) != before


def test_equal_weights_have_equal_fingerprints_and_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[nn.Module] = []
    real = module._hashed
    monkeypatch.setattr(module, "_hashed", lambda net: hashed.append(net) or real(net))
    first, second = make(), make()
    assert Classifier(first).fingerprint == Classifier(first).fingerprint == Classifier(second).fingerprint
    assert [net is first for net in hashed] == [True, False]
    first(torch.randn(4, 8))  # in training mode: the batch norm's buffers move
    assert Classifier(first).fingerprint != Classifier(second).fingerprint


def test_a_network_that_goes_leaves_nothing() -> None:
    gc.collect()  # networks of other tests go first
    net = make()
    network_fingerprint(net)
    Classifier(net)(torch.randn(2, 8))
    count = len(module._FINGERPRINTS)
    del net
    gc.collect()
    assert len(module._FINGERPRINTS) == count - 1
