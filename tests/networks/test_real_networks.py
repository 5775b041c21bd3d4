"""Networks of timm and torchvision, seen as features and a head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import Classifier
from oodshape.networks.head import Outputs
from small_nets import C, explains

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "name",
    ["resnet50", "mobilenetv2_100", "swin_small_patch4_window7_224", "mixer_b16_224", "vit_base_patch16_224"],
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


def test_deit_tiny_on_real_images(shared: Path, torchvision_ops: object) -> None:
    timm = pytest.importorskip("timm")
    net = timm.create_model("deit_tiny_patch16_224", pretrained=False)
    weights = load_file(shared / "weights" / "deit_tiny_patch16_224.fp16.safetensors")
    net.load_state_dict({key: value.float() for key, value in weights.items()})
    files = [next(folder.glob("*.jpg")) for folder in sorted((shared / "data/imagenet/val").iterdir())]
    labels = torch.arange(1000)[::5]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = torch.from_numpy(np.stack([np.asarray(Image.open(files[i]).convert("RGB")) for i in labels]))
    batch = ((pixels / 255 - mean) / std).permute(0, 3, 1, 2)
    classifier = Classifier(net)
    parts = [classifier(part) for part in batch.split(50)]
    features, logits = torch.cat([p.features for p in parts]), torch.cat([p.logits for p in parts])
    explains(Outputs(features, logits, parts[0].head))
    accuracy = (logits.argmax(1) == labels).float().mean()
    assert abs(accuracy - 0.71) < 3 * 0.032  # about 71 % on all images; 200 have a standard error of 3.2 points

    # The same network run elsewhere on two images per class, of which the first is the one here.
    stored = np.load(shared / "features/imagenet_deit_tiny/val.npz")
    torch.testing.assert_close(features, torch.from_numpy(stored["features"])[2 * labels].float(), rtol=0, atol=0.02)
