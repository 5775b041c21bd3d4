"""Classifier: it finds the head by value, the head explains the logits, and the network stays as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import Classifier
from oodshape.networks.head import Outputs

C, M = 5, 7

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def body() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, M), nn.GELU())


def images(n: int = 6) -> Tensor:
    return torch.randn(n, 3, 8, 8)


class Net(nn.Module):
    """A body and a head, and between and after them whatever a test asks for."""

    def __init__(self, before: nn.Module | None = None, finish: Callable[[Tensor], Any] = lambda logits: logits):
        super().__init__()
        self.body, self.before, self.fc, self.finish = (
            body(),
            before or nn.Identity(),
            nn.Linear(M, C),
            finish,
        )

    def forward(self, x: Tensor) -> Any:
        return self.finish(self.fc(self.before(self.body(x))))


class ByKeyword(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.fc(input=self.body(x))


@dataclass
class ModelOutput:
    logits: Tensor
    hidden_states: Any = None


def explains(outputs: Outputs, tolerance: float = 1e-5) -> None:
    """The law: head(features) = logits, in float32, [N, M] and [N, C], cut off from the graph."""
    assert outputs.features.dtype == outputs.logits.dtype == torch.float32
    assert outputs.features.shape == (len(outputs.logits), outputs.head.width)
    assert not outputs.features.requires_grad
    assert outputs.logits.std() > 0.01  # a constant would make the law empty
    torch.testing.assert_close(outputs.head.logits(outputs.features), outputs.logits, rtol=tolerance, atol=tolerance)


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
    "tuple": (lambda: Net(finish=lambda y: (y, y * 2)), "fc"),
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


def test_the_head_is_one_object_until_its_weights_change() -> None:
    net = Net()
    classifier = Classifier(net, probe=images(1))
    first = classifier.head
    assert classifier(images()).head is first is classifier.head
    with torch.no_grad():
        net.fc.bias[0] += 1
    assert classifier.head is not first
    explains(classifier(images()))


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


# The network stays as it was.


def state(net: nn.Module) -> dict[str, Any]:
    """All that a reader could have changed."""
    return {
        "weights": {key: value.clone() for key, value in net.state_dict().items()},
        "modes": [module.training for module in net.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()],
        "requires_grad": [weight.requires_grad for weight in net.parameters()],
        "identity": [id(weight) for weight in net.parameters()],
        "grad": [weight.grad for weight in net.parameters()],
    }


def same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    weights, old = now["weights"], before["weights"]
    bits_equal = weights.keys() == old.keys() and all(torch.equal(weights[key], old[key]) for key in old)
    return bits_equal and all(now[key] == before[key] for key in before if key != "weights")


def mixed(net: Net) -> Net:
    """Training, but for a frozen part: the mixture that one call of train() would lose."""
    net.train()
    net.body[1].eval()
    net.fc.eval()
    net.body[0].weight.requires_grad_(False)
    return net


@pytest.mark.parametrize("read", [Classifier.__call__, Classifier.logits])
def test_the_network_is_untouched(read: Callable[[Classifier, Tensor], Any]) -> None:
    net = mixed(Net(before=nn.Dropout(0.5)))
    before = state(net)
    classifier = Classifier(net)
    for _ in range(2):
        read(classifier, images())
    assert same(state(net), before)


def test_batch_norm_does_not_move_and_dropout_does_not_act_in_training_mode() -> None:
    net = Net(before=nn.Dropout(0.5)).train()
    batch, before = images(), state(net)
    outputs = Classifier(net)(batch)
    assert same(state(net), before)
    with torch.no_grad():
        assert torch.equal(outputs.logits, copy.deepcopy(net).eval()(batch))


@pytest.mark.parametrize("read", [Classifier.__call__, Classifier.logits])
def test_the_network_is_untouched_after_an_exception(read: Callable[[Classifier, Tensor], Any]) -> None:
    def fail(logits: Tensor) -> Tensor:
        raise RuntimeError("out of memory")

    for classifier in (Classifier(mixed(Net(finish=fail))), Classifier(mixed(Net(finish=fail)), head="fc")):
        before = state(classifier.net)
        with pytest.raises(RuntimeError, match="out of memory"):
            read(classifier, images())
        assert same(state(classifier.net), before)


def test_the_users_hooks_stay_and_still_run() -> None:
    net, seen = Net(), []
    net.fc.register_forward_hook(lambda *_: seen.append(1))
    Classifier(net, head="fc")(images())
    assert seen == [1]
    assert len(net.fc._forward_hooks) == 1


def test_images_are_unchanged_by_a_network_that_works_in_place() -> None:
    class InPlace(Net):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x.mul_(2.0))

    net = InPlace()
    batch = images()
    kept = batch.clone()
    classifier = Classifier(net)
    first = classifier(batch)
    assert torch.equal(batch, kept)
    assert torch.equal(first.logits, classifier(batch).logits)
    torch.testing.assert_close(classifier.logits(batch.requires_grad_()), first.logits)


def test_in_inference_mode_no_inference_tensor_is_kept() -> None:
    with torch.inference_mode():
        outputs = Classifier(Net())(images())
    assert not any(t.is_inference() for t in (outputs.features, outputs.logits, outputs.head.weight))


# Gradients, for Odin.


def test_logits_differentiate_to_the_images_and_leave_no_gradient_on_the_weights() -> None:
    net = mixed(Net(before=nn.Dropout(0.5)))
    classifier, batch = Classifier(net), images().requires_grad_()
    with torch.no_grad():
        logits = classifier.logits(batch)
    torch.testing.assert_close(logits, classifier(batch).logits)
    logits.logsumexp(1).sum().backward()
    assert all(weight.grad is None for weight in net.parameters())
    plain = batch.detach().clone().requires_grad_()
    (expected,) = torch.autograd.grad(copy.deepcopy(net).eval()(plain).logsumexp(1).sum(), plain)
    torch.testing.assert_close(batch.grad, expected)


# What cannot be explained is refused.


class TwoHeads(nn.Module):
    def __init__(self, combine: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.first, self.second, self.combine = body(), nn.Linear(M, C), nn.Linear(M, C), combine

    def forward(self, x: Tensor) -> Tensor:
        z = self.body(x)
        return self.combine(self.first(z), self.second(z))


class UsedTwice(Net):
    def forward(self, x: Tensor) -> Tensor:
        self.fc(self.body(x.flip(-1)))
        return self.fc(self.body(x))


class Cosine(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(nn.functional.normalize(x), nn.functional.normalize(self.weight))


class Functional(Net):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.body(x), self.fc.weight, self.fc.bias)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "softmax": (lambda: Net(finish=lambda y: y.softmax(1)), r"'fc' \(7 -> 5\) gives other values"),
    "scale": (lambda: Net(finish=lambda y: y * 1.01), r"'fc' \(7 -> 5\) gives other values"),
    "in-place relu": (
        lambda: nn.Sequential(body(), nn.Linear(M, C), nn.ReLU(inplace=True)),
        "'1' .* other values",
    ),
    "average": (lambda: TwoHeads(lambda a, b: (a + b) / 2), "'first' .* other values"),
    "used twice": (UsedTwice, r"'fc' \(7 -> 5\) ran 2 times"),
    "per token": (
        lambda: Net(nn.Unflatten(1, (1, M)), lambda y: y.expand(-1, 3, -1)),
        r"gives shape \[2, 1, 5\]",
    ),
    "cosine": (lambda: nn.Sequential(body(), Cosine(M, C)), "'1' .* does not compute input"),
    "functional": (Functional, r"'fc' \(7 -> 5\) did not run"),
    "convolution": (
        lambda: nn.Sequential(body(), nn.Unflatten(1, (M, 1, 1)), nn.Conv2d(M, C, 1), nn.Flatten()),
        r"'0.4' \(144 -> 7\) gives shape \[2, 7\], the logits have \[2, 5\]",
    ),
    "no linear": (
        lambda: nn.Sequential(nn.Conv2d(3, C, 8), nn.Flatten()),
        "(?s)Its nn.Linear layers:\n  none",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_logits_that_no_layer_gives_are_refused(kind: str) -> None:
    make, reason = REFUSED[kind]
    with pytest.raises(InputError, match=reason) as caught:
        Classifier(make())(images())
    assert "no nn.Linear layer gives the logits [2, " in str(caught.value)
    assert 'head="..."' in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in REFUSED if kind not in ("convolution", "no linear")])
def test_naming_a_layer_that_does_not_give_the_logits_is_refused(kind: str) -> None:
    net = REFUSED[kind][0]()
    name = next(name for name in ("fc", "first", "1") if name in dict(net.named_modules()))
    with pytest.raises(InputError, match=f"head='{name}' does not give the logits of this batch: it "):
        Classifier(net, head=name)(images())


def test_two_layers_with_the_same_output_are_refused_until_one_is_named() -> None:
    net = TwoHeads(lambda a, b: (a + b) / 2)
    net.second.load_state_dict(net.first.state_dict())
    with pytest.raises(
        InputError,
        match=r"(?s)2 nn.Linear layers give .*'second' .* gives the logits\n  'first' .* gives the logits",
    ):
        Classifier(net)(images())
    explains(Classifier(net, head="second")(images()))


def test_a_limit_that_the_probe_did_not_meet_is_caught_later() -> None:
    net = Net(finish=lambda y: y.clamp(-3, 3))
    classifier = Classifier(net, probe=images() * 0.01)
    with pytest.raises(InputError, match="head='fc' does not give the logits of this batch: it gives other"):
        classifier(images() * 1000)


def test_a_wrong_name_lists_the_layers() -> None:
    with pytest.raises(InputError, match=r"head='head' is not in Net.*\n  'fc' \(7 -> 5\)\n  'body.4' \(144 -> 7\)"):
        Classifier(Net(), head="head")
    with pytest.raises(InputError, match=r"head='body' is a Sequential, not an nn.Linear"):
        Classifier(Net(), head="body")


def test_a_long_list_starts_with_the_likely_heads() -> None:
    thin = [nn.Linear(3, 3) for _ in range(14)]
    net = nn.Sequential(nn.Linear(M, C), nn.Linear(C, 3), *thin, nn.Linear(3, C), nn.Softmax(1))
    with pytest.raises(InputError) as caught:
        Classifier(net)(torch.randn(6, M))
    _, *lines, more = str(caught.value).splitlines()
    assert [line.split()[0] for line in lines] == ["'16'", "'0'", *(f"'{i}'" for i in range(15, 5, -1))]
    assert more == "  and 5 more"


def test_the_head_is_unknown_before_the_first_batch_unless_named() -> None:
    with pytest.raises(InputError, match="the head is found at the first batch"):
        _ = Classifier(Net()).head
    net = Net()
    assert torch.equal(Classifier(net, head="fc").head.weight, net.fc.weight)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_name_their_row(value: float) -> None:
    net = Net(finish=lambda y: torch.where(torch.arange(len(y))[:, None] == 3, value, y))
    classifier = Classifier(net)
    with pytest.raises(InputError, match=r"logits of 1 of 6 images \(first: row 3\) hold NaN or infinite"):
        classifier(images())
    explains(classifier(images(3)))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([images(1)], "images must be one tensor .* got list"),
        (images(0), r"N > 0, got shape \[0, 3, 8, 8\]"),
        (torch.randn(5), r"a batch \[N, ...\] .* got shape \[5\]"),
    ],
)
def test_what_is_no_batch_is_refused(batch: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Classifier(Net())(batch)


def test_outputs_without_logits_are_refused() -> None:
    with pytest.raises(InputError, match=r"got dict with \['out'\]"):
        Classifier(Net(finish=lambda y: {"out": y}))(images())
    with pytest.raises(InputError, match=r"one row of logits per image \(2\), got \[5\]"):
        Classifier(Net(finish=lambda y: y.mean(0)))(images())


# The fingerprint.


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


def test_the_same_bytes_under_another_name_shape_or_type_have_another_fingerprint() -> None:
    def fingerprint(name: str, value: Tensor) -> str:
        net = nn.Module()
        net.register_buffer(name, value)
        return Classifier(net).fingerprint

    bits = torch.arange(6, dtype=torch.int16)
    variants = [("a", bits), ("b", bits), ("a", bits.view(2, 3)), ("a", bits.view(torch.float16))]
    assert len({fingerprint(*variant) for variant in variants}) == 4
    assert fingerprint("a", bits.view(2, 3).T) == fingerprint("a", bits.view(2, 3).T.contiguous())


# Real networks.


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
