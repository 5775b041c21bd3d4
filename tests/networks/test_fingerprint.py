"""The fingerprint of a network changes when its weights do, in whatever way."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from oodshape.networks.classifier import network_fingerprint


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
    assert network_fingerprint(net) == network_fingerprint(copy.deepcopy(net)) != before
