"""--device and --precision: what they name, and what they do to a network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import Classifier
from oodshape.networks.device import described, device_named
from oodshape.networks.loading import open_model
from small_nets import Net, body, explains, images

pytestmark = pytest.mark.usefixtures("one_thread")


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
    assert device_named("auto") == device_named("cuda") == torch.device("cuda", 0)
    assert described(device_named("cuda:1")) == "cuda:1 (Made-up 1)"
    with pytest.raises(InputError, match="there are 2 cuda devices, cuda:0 to cuda:1, but got 'cuda:2'"):
        device_named("cuda:2")


@pytest.mark.usefixtures("no_gpus")
def test_without_a_gpu_auto_is_the_cpu() -> None:
    assert device_named("auto") == torch.device("cpu")
    assert described(device_named("auto")) == "cpu"
    for name in ("cuda", "cuda:0", "mps", "xpu"):
        with pytest.raises(InputError, match=f"sees no {name[:4].rstrip(':')} device here, but got '{name}'; use auto"):
            device_named(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "CPU"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="device must be auto, cpu, cuda, cuda:N, mps or xpu, got "):
        device_named(name)


@pytest.mark.usefixtures("no_gpus")
def test_a_device_that_is_not_here_is_refused_before_a_network_is_opened() -> None:
    with pytest.raises(InputError, match="sees no cuda device"):
        open_model("nowhere:nothing", device="cuda")


def test_a_network_moves_and_is_taken_in_another_precision() -> None:
    net = Net()
    source = open_model(net, head="fc", device="cpu", precision="bfloat16")
    assert (source.classifier.precision, source.classifier.head_name) == ("bfloat16", "fc")
    assert open_model(source).classifier is source.classifier
    assert open_model(source, precision="float32").classifier.precision == "float32"
    assert Classifier(net).to("cpu").device == torch.device("cpu")


def test_a_wrong_precision_is_refused() -> None:
    with pytest.raises(InputError, match="precision must be float32, bfloat16 or float16, got 'half'"):
        Classifier(Net(), precision="half")  # type: ignore[arg-type]


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


def test_gradients_go_through_a_lower_precision() -> None:
    torch.manual_seed(0)
    batch = images().requires_grad_(True)
    classifier = Classifier(Net(), head="fc", precision="bfloat16")
    (gradient,) = torch.autograd.grad(classifier.logits(batch).sum(), batch)
    assert float(gradient.abs().max()) > 0
