"""The zoo, and networks of timm and torchvision; published weights give the published features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as f

from oodshape.core.errors import InputError
from oodshape.images.datasets.cifar_mnist_svhn import read_cifar
from oodshape.networks.classifier import Classifier
from oodshape.networks.weights import load_weights
from oodshape.networks.zoo import MODELS, build, find_weights
from small_nets import C, explains

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_densenet_gives_the_stored_features_and_labels(shared: Path) -> None:
    net = build("cifar10-densenet101", shared / "weights" / "densenet101_cifar10.safetensors")
    data, rows = read_cifar(shared / "data/cifar10", 10, train=False), slice(0, 5000, 50)
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
    "name", ["resnet10t", "mobilenetv2_100", "swin_tiny_patch4_window7_224", "mixer_s32_224", "vit_tiny_patch16_224"]
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


JAX = """stem/kernel stem/bias MixerBlock_0/LayerNorm_0/scale MixerBlock_0/LayerNorm_0/bias
MixerBlock_0/token_mixing/Dense_0/kernel MixerBlock_0/token_mixing/Dense_0/bias
MixerBlock_0/token_mixing/Dense_1/kernel MixerBlock_0/token_mixing/Dense_1/bias
MixerBlock_0/LayerNorm_1/scale MixerBlock_0/LayerNorm_1/bias
MixerBlock_0/channel_mixing/Dense_0/kernel MixerBlock_0/channel_mixing/Dense_0/bias
MixerBlock_0/channel_mixing/Dense_1/kernel MixerBlock_0/channel_mixing/Dense_1/bias
pre_head_layer_norm/scale pre_head_layer_norm/bias head/kernel head/bias"""  # of Mixer-B_16.npz, in timm's order


def test_google_s_mixer_loads_from_npz(tmp_path: Path, torchvision_ops: object) -> None:
    mixer = pytest.importorskip("timm.models.mlp_mixer")
    small = {"num_classes": 5, "img_size": 8, "patch_size": 4, "num_blocks": 1, "embed_dim": 6}
    net, other = (mixer.MlpMixer(**small).eval() for _ in range(2))
    axes = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}
    values = [value.permute(axes[value.ndim]).numpy() for value in net.state_dict().values()]
    np.savez(tmp_path / "Mixer-B_16.npz", **dict(zip(JAX.split(), values, strict=True)))
    assert find_weights("mixer_b_16", tmp_path) == tmp_path / "Mixer-B_16.npz"
    load_weights(other, tmp_path / "Mixer-B_16.npz")
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(net(images), other(images))


def test_efficientnet_lite0_loads_by_its_published_names(tmp_path: Path, torchvision_ops: object) -> None:
    pytest.importorskip("timm")
    net = build("efficientnet_lite0")
    published = {
        "_conv_stem.weight": "conv_stem.weight",
        "_blocks.0._depthwise_conv.weight": "blocks.0.0.conv_dw.weight",
        "_blocks.5._project_conv.weight": "blocks.3.0.conv_pwl.weight",
        "_blocks.15._bn2.running_var": "blocks.6.0.bn3.running_var",
        "_bn1.bias": "bn2.bias",
        "_fc.weight": "classifier.weight",
    }
    ours = {new: old for old, new in published.items()}
    torch.save({ours.get(name, name): value + 1 for name, value in net.state_dict().items()}, tmp_path / "lite.pth")
    before = net.state_dict()["blocks.3.0.conv_pwl.weight"].clone()
    load_weights(net, tmp_path / "lite.pth")
    assert torch.equal(net.state_dict()["blocks.3.0.conv_pwl.weight"], before + 1)


def test_the_authors_mixer_nano_computes_what_its_weights_say() -> None:
    net, x = build("cifar10-mixer_nano"), torch.rand(2, 3, 32, 32)
    own = net.state_dict()
    part = lambda name: (own[f"{name}.weight"], own[f"{name}.bias"])  # noqa: E731
    t = f.conv2d(x, *part("patch_emb.0"), stride=4).flatten(2).mT
    for i in range(8):
        for mlp, apply in (("mlp1", f.conv1d), ("mlp2", f.linear)):
            at = f"mixer_layers.{i}.{mlp}"
            inner = f.gelu(apply(f.layer_norm(t, (128,), *part(f"{at}.ln")), *part(f"{at}.fc1")))
            t = t + apply(inner, *part(f"{at}.fc2"))
    torch.testing.assert_close(net(x), f.linear(f.layer_norm(t, (128,), *part("ln")).mean(1), *part("clf")))
