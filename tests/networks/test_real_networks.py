"""Networks of timm and torchvision, seen as features and a head."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import Classifier
from small_nets import C, explains

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "name",
    ["resnet10t", "mobilenetv2_100", "swin_tiny_patch4_window7_224", "mixer_s32_224", "vit_tiny_patch16_224"],
)
def test_timm_networks(name: str, torchvision_ops: object) -> None:
    timm = pytest.importorskip("timm")
    net = timm.create_model(name, pretrained=False)
    nn.init.normal_(net.get_classifier().weight, std=0.1)  # some start at zero, where the law is empty
    classifier = Classifier(net)
    outputs = classifier(torch.randn(1, 3, 224, 224))
    explains(outputs)
    assert net.get_submodule(classifier.head_name) is net.get_classifier()
    assert all(module.training for module in net.modules())


def test_torchvision_networks(torchvision_ops: object) -> None:
    models = pytest.importorskip("torchvision.models")
    vit = models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=C
    )
    nn.init.normal_(vit.heads.head.weight)
    for net, name in ((models.resnet18(num_classes=C), "fc"), (vit, "heads.head")):
        classifier = Classifier(net)
        explains(classifier(torch.randn(2, 3, 32, 32)))
        assert classifier.head_name == name
    with pytest.raises(InputError, match=r"no nn\.Linear layer gives"):
        Classifier(models.squeezenet1_1(num_classes=C))(torch.randn(2, 3, 32, 32))
