"""Networks from where users have them, on a device and in a precision."""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from oodshape import Classifier, Guard, InputError, Preprocessing
from oodshape.core.options import ModelOptions
from oodshape.networks.device import describe_device, find_device
from oodshape.networks.loading import OpenNet, call_builder, open_model, override
from oodshape.networks.model_names import imagenet_classes
from oodshape.networks.zoo import build
from small_nets import Net, body, explains, images

pytestmark = pytest.mark.usefixtures("one_thread")
IMAGES = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def export(path: Path, net: nn.Module | None = None, batch: object = torch.export.Dim("batch")) -> Path:
    shapes = ({0: batch},) if batch else None
    program = torch.export.export(net or build("digits-convnet"), (IMAGES,), dynamic_shapes=shapes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No complete tensor found")
        torch.export.save(program, path)
    return path


def test_zoo_and_networks_that_are_made() -> None:
    source = open_model("zoo:digits-convnet")
    assert (source.spec, source.weights) == ("zoo:digits-convnet", "")
    assert source.native is not None
    assert source.native.channels == 1
    net = build("digits-convnet")
    made = open_model(net)
    assert made.native is None
    assert made.classifier.fingerprint == source.classifier.fingerprint
    assert open_model(made) is made
    assert open_model(Classifier(net)).classifier.net is net
    with pytest.raises(InputError, match="weights and num_classes are for a model that is named by a spec"):
        open_model(net, weights="w.safetensors")


def test_the_number_of_classes_comes_from_the_weights(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from oodshape.networks.zoo.digits_nets import SmallViT

    save_file(SmallViT(classes=5).state_dict(), tmp_path / "five.safetensors")
    source = open_model("zoo:digits-vit", weights=tmp_path / "five.safetensors")
    assert source.classifier(IMAGES).logits.shape == (3, 5)
    assert source.weights == str(tmp_path / "five.safetensors")
    save_file({"other": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="does not fit"):
        open_model("zoo:digits-vit", weights=tmp_path / "other.safetensors")


def test_timm_and_torchvision(tmp_path: Path, torchvision_ops: object) -> None:
    pytest.importorskip("timm")
    import timm
    import torchvision
    from safetensors.torch import save_file

    save_file(timm.create_model("resnet10t", num_classes=4).state_dict(), tmp_path / "t.safetensors")
    source = open_model("timm:resnet10t", weights=tmp_path / "t.safetensors")
    assert source.classifier(torch.rand(2, 3, 64, 64)).logits.shape == (2, 4)
    assert source.native == Preprocessing.from_timm(timm.create_model("resnet10t"))
    save_file(torchvision.models.resnet18(num_classes=6).state_dict(), tmp_path / "v.safetensors")
    source = open_model("torchvision:resnet18", weights=tmp_path / "v.safetensors")
    assert source.classifier(torch.rand(2, 3, 64, 64)).logits.shape == (2, 6)
    assert source.native is not None
    assert (source.native.resize, source.native.crop, source.names) == (256, 224, ())
    save_file(torchvision.models.resnet18().state_dict(), tmp_path / "v.safetensors")
    published = tmp_path / "resnet18-f37072fd.pth"  # the name under which torchvision publishes them
    torch.save(torchvision.models.resnet18().state_dict(), published)
    names = open_model("torchvision:resnet18", weights=published).names
    assert names[0] == "tench"
    assert names == tuple(imagenet_classes().values())
    for file, wanted in (("resnet10t_176_c3-f3215ab1.pth", names), ("of another set.pth", ())):
        torch.save(timm.create_model("resnet10t").state_dict(), tmp_path / file)
        assert open_model("timm:resnet10t", weights=tmp_path / file).names == wanted
    with pytest.raises(InputError, match="did you mean .*resnet10t"):
        open_model("timm:resnet10x", weights=tmp_path / "t.safetensors")
    with pytest.raises(InputError, match="torchvision has no model 'resnet19'"):
        open_model("torchvision:resnet19")
    with pytest.raises(InputError, match="has no trained head"):
        open_model("timm:resnet10t", num_classes=4)


@pytest.mark.parametrize("spec", ["timm:resnet10t.c3_in1k", "torchvision:resnet18", "hf:nobody/nothing"])
def test_hubs_are_announced_and_offline_never_asked(
    spec: str,
    torchvision_ops: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("transformers" if spec.startswith("hf:") else "timm")
    touched: list[object] = []

    def refuse(*words: object, **_: object) -> None:
        touched.append(words)
        raise OSError("no network here")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("OODSHAPE_OFFLINE", "1")
    with pytest.raises(InputError, match=f"{spec}: not in the cache of its hub, and --offline .* forbids downloads"):
        open_model(spec)
    assert (touched, capsys.readouterr().err) == ([], "")
    monkeypatch.delenv("OODSHAPE_OFFLINE")
    with pytest.raises(InputError, match="cannot get"):
        open_model(spec)
    assert touched
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("downloading"))
    assert spec in line


class Touch:
    """A pickled object that makes a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, (str(self.path),))


def test_weights_in_a_folder_of_timm_run_nothing(tmp_path: Path, torchvision_ops: object) -> None:
    """Before timm 1.0.26 they do: the reason for the lower bound."""
    pytest.importorskip("timm")
    told = {"architecture": "resnet10t", "num_classes": 4, "pretrained_cfg": {"input_size": [3, 64, 64]}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    torch.save({"weight": Touch(tmp_path / "CODE_RAN")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="weights_only") as caught:
        open_model(f"timm:local-dir:{tmp_path}")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "CODE_RAN").exists()


BUILDER = """
from torch import nn
from oodshape import Preprocessing
def pair():
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 8)), Preprocessing(mean=(0.5,), std=(0.5,))
def plain():
    return pair()[0]
def wrong():
    return 7
def boom():
    return nn.Linear(3, later)
def deep():
    return nn.Linear(-1, "x")
"""


def test_a_function_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets_of_this_test.py").write_text(BUILDER)
    monkeypatch.chdir(tmp_path)
    source = open_model("my_nets_of_this_test:pair")
    assert source.native == Preprocessing(mean=(0.5,), std=(0.5,))
    assert open_model("my_nets_of_this_test:plain").native is None
    with pytest.raises(InputError, match="must return a network, or .*got int"):
        call_builder("my_nets_of_this_test:wrong")
    message = (
        r"^my_nets_of_this_test:boom failed: NameError: name 'later' is not defined \(my_nets_of_this_test.py:11\)$"
    )
    with pytest.raises(InputError, match=message):
        open_model("my_nets_of_this_test:boom")
    with pytest.raises(InputError, match=r"deep failed: \w+Error: .* \(my_nets_of_this_test.py:13\)$") as caught:
        open_model("my_nets_of_this_test:deep")
    assert "\n" not in str(caught.value)
    (tmp_path / "broken_net_of_this_test.py").write_text("x = 1\n\nz = 1 / 0\n")
    with pytest.raises(
        InputError, match=r"^broken_net_of_this_test failed: ZeroDivisionError: .*_of_this_test.py:3\)$"
    ):
        open_model("broken_net_of_this_test:make")
    with pytest.raises(InputError, match="cannot import 'my_nets_of_this_test:none'"):
        call_builder("my_nets_of_this_test:none")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("digits-vit", "did you mean zoo:digits-vit"),
        ("resnet", "names no model; a model is timm:NAME"),
        ("my.pt", r"my.pt is a file of weights: give it with --weights .*--model names the network"),
        ("runs/my.safetensors", "give it with --weights"),
        ("zoo:nothing", "no network is called 'nothing'"),
        ("zoo:resnet50", "needs weights"),
        ("nowhere.pt2", "cannot read nowhere.pt2"),
    ],
)
def test_mistakes_say_what_a_model_is(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_model(spec)


def test_a_pair_of_sides_takes_the_place_of_resize_and_crop() -> None:
    native = Preprocessing(mean=(0.5,), std=(0.5,), resize=20, crop=16)
    assert override(native, resize=24) == Preprocessing(mean=(0.5,), std=(0.5,), resize=24, crop=16)
    assert override(native, resize=(64, 48)) == Preprocessing(mean=(0.5,), std=(0.5,), resize=(64, 48))
    assert override(native, resize=(64, 48), crop=40).crop == 40
    with pytest.raises(InputError, match=r"Preprocessing\(mean=.*--preprocessing 'mean=0.485.*Give mean and std"):
        override(None, mean=(0.1,))


def test_an_archive_gives_what_the_network_gives(tmp_path: Path) -> None:
    path = export(tmp_path / "net.pt2")
    source = open_model(path, trust_code=True)
    assert isinstance(source, OpenNet)
    ours, theirs = source.classifier(IMAGES), Classifier(build("digits-convnet"))(IMAGES)
    torch.testing.assert_close(ours.logits, theirs.logits)
    torch.testing.assert_close(ours.features, theirs.features)
    assert ours.head.fingerprint == theirs.head.fingerprint
    assert len(source.classifier(IMAGES[:1])) == 1
    for weights, head in (("w.safetensors", None), (None, "fc")):
        with pytest.raises(InputError, match="leave weights, num_classes and head out; .* returns the logits alone"):
            open_model(path, weights=weights, head=head, trust_code=True)
    guard = Guard.fit("zoo:digits-convnet", images=torch.rand(300, 1, 16, 16), prepared=True, method="msp")
    assert guard.about.head == "head"  # which an archive of the same network does not name
    assert guard.open_network(str(path), ModelOptions(trust_code=True)).classifier.fingerprint == guard.about.network


def test_an_archive_for_one_batch_size_says_how_to_export(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="batches of exactly 3; export it for any number"):
        open_model(export(tmp_path / "net.pt2", batch=None), trust_code=True)


def test_an_archive_that_cannot_be_loaded_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = export(tmp_path / "net.pt2")
    (tmp_path / "cut.pt2").write_bytes(path.read_bytes()[:5000])
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as old:
        old.writestr("serialized_state_dict.pt", b"")
    for name in ("cut.pt2", "old.pt2"):
        with pytest.raises(
            InputError, match=rf"{name} cannot be loaded by torch .*; export the network again"
        ) as caught:
            open_model(tmp_path / name, trust_code=True)
        assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Made-up {device.index}")


@pytest.fixture
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oodshape.networks.device._count", lambda kind: 0)


@pytest.mark.usefixtures("two_gpus")
def test_auto_takes_the_gpu_that_is_here_and_says_which() -> None:
    assert find_device("auto") == find_device("cuda") == torch.device("cuda", 0)
    assert describe_device(find_device("cuda:1")) == "cuda:1 (Made-up 1)"
    with pytest.raises(InputError, match="there are 2 cuda devices, cuda:0 to cuda:1, but got 'cuda:2'"):
        find_device("cuda:2")


@pytest.mark.usefixtures("no_gpus")
def test_without_a_gpu_auto_is_the_cpu() -> None:
    assert find_device("auto") == torch.device("cpu")
    assert describe_device(find_device("auto")) == "cpu"
    for name in ("cuda", "cuda:0", "mps", "xpu"):
        with pytest.raises(InputError, match=f"sees no {name[:4].rstrip(':')} device here, but got '{name}'; use auto"):
            find_device(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "CPU"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="precision must be float32, bfloat16 or float16, got "):
        Classifier(Net(), precision=name)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="device must be auto, cpu, cuda, cuda:N, mps or xpu, got "):
        find_device(name)


def test_a_network_moves_and_is_taken_in_another_precision() -> None:
    net = Net()
    source = open_model(net, head="fc", device="cpu", precision="bfloat16")
    assert (source.classifier.precision, source.classifier.head_name) == ("bfloat16", "fc")
    assert open_model(source).classifier is source.classifier
    assert open_model(source, precision="float32").classifier.precision == "float32"
    assert Classifier(net).to("cpu").device == torch.device("cpu")


def test_bfloat16_runs_under_autocast_and_gives_float32() -> None:
    torch.manual_seed(0)
    seen: list[torch.dtype] = []
    net = nn.Sequential(body(), nn.Linear(7, 5))
    net[1].register_forward_hook(lambda layer, args, output: seen.append(output.dtype))
    batch = images()
    exact, rough = Classifier(net)(batch), Classifier(net, precision="bfloat16")(batch)
    half = len(seen) // 2  # the search for the head, the batch and the check of the network, in each precision
    assert seen == [torch.float32] * half + [torch.bfloat16] * half
    explains(rough)
    assert 0 < float((exact.features - rough.features).abs().max()) < 0.05 * float(exact.features.abs().max())
    assert net[1].weight.dtype == torch.float32
