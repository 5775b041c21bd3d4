"""Weights from files: all of them, or an error that says why and an unchanged network."""

from __future__ import annotations

import json
import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from oodshape.core.errors import InputError
from oodshape.images.decode.limits import Limits
from oodshape.networks.classifier import Classifier
from oodshape.networks.loading import open_model
from oodshape.networks.weights import load_weights, read_weights
from oodshape.networks.zoo.registry import build
from small_nets import same, values

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Small(nn.Module):
    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Linear(5, classes)


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
    "sparse": (lambda s: {**s, "fc.bias": torch.ones(4).to_sparse()}, r"fc.bias sparse_coo float32\[4\], here float32"),
    "meta": (lambda s: {**s, "fc.bias": torch.ones(4, device="meta")}, r"fc.bias meta float32\[4\], here float32"),
    "prefixes": (lambda s: {**s, "net." * 100_000: torch.ones(2)}, "1 unknown to the network"),
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
        ("module.pth", "test_weights.Small"),
    ):
        with pytest.raises(InputError, match=f"{name} asks for .*{asked} .* none of it was run"):
            load_weights(net, tmp_path / name)
    assert not ran.exists()
    assert same(values(net), before)


def test_files_without_weights(tmp_path: Path) -> None:
    endless: dict[str, Any] = {}
    endless["model"] = endless
    odd = (({"epoch": 3}, "keys epoch"), ([1, 2], "list"), (torch.ones(3), "Tensor"), (endless, "keys model"))
    for content, said in odd:
        torch.save(content, tmp_path / "a.pth")
        with pytest.raises(InputError, match=rf"holds no weights by name \({said}\)"):
            load_weights(Small(), tmp_path / "a.pth")
    for array in (np.array(["text"]), np.zeros(2, "f4,i4"), np.zeros(2, "M8[s]")):
        np.savez(tmp_path / "a.npz", a=array)
        with pytest.raises(InputError, match=r"a.npz is damaged .* it must hold arrays of numbers"):
            load_weights(Small(), tmp_path / "a.npz")
    with pytest.raises(InputError, match="there is no file"):
        load_weights(Small(), tmp_path / "b.pth")
    (tmp_path / "a.onnx").write_bytes(b"")
    with pytest.raises(InputError, match=r"a.onnx has an unknown ending; weights are read from .safetensors, .pth"):
        load_weights(Small(), tmp_path / "a.onnx")


def test_a_packed_checkpoint_is_not_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, packed = tmp_path / "whole.pt", tmp_path / "packed.pt"
    torch.save({"a": torch.zeros(1 << 20)}, whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for name in source.namelist():
            made.writestr(name, source.read(name))
    assert read_weights(packed)["a"].shape == (1 << 20,)  # torch reads it, and so it may be meant
    monkeypatch.setattr(Limits, "_now", Limits(inflated=1 << 20))
    assert read_weights(whole)["a"].shape == (1 << 20,)  # 4 MB that take 4 MB
    with pytest.raises(InputError, match=r"packed\.pt has .* inflates to 4,19\d,\d{3} or more, over the limit"):
        read_weights(packed)


@pytest.mark.parametrize("letter", ["a", "\u00e9"])  # no ASCII: a name that torch reads, and pickletools does not
@pytest.mark.parametrize("packed", [True, False])
def test_an_endless_name_does_not_hang(packed: bool, letter: str, tmp_path: Path) -> None:
    """torch's message about what it refuses takes the square of the name's length."""
    asks = b"\x80\x02c" + letter.encode() * (100_000 // len(letter.encode())) + b"\nb\n."
    path = tmp_path / "long.pth"
    if packed:
        torch.save({"w": torch.zeros(2)}, path)
        with zipfile.ZipFile(path) as whole:
            kept = {name: whole.read(name) for name in whole.namelist()}
        with zipfile.ZipFile(path, "w") as made:
            for name, content in kept.items():
                made.writestr(name, asks if name.endswith("data.pkl") else content)
    else:
        path.write_bytes(asks)
    with pytest.raises(InputError, match=r"by a name of 100,003 letters.*none of it was run"):
        read_weights(path)


def test_a_file_of_very_many_tensors_is_refused(tmp_path: Path) -> None:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"{number:040}": empty for number in range(100_000)}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(InputError, match="has a header of"):
        load_weights(nn.Linear(2, 2), tmp_path / "w.safetensors")


def test_an_encrypted_archive_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "locked.pth"
    torch.save({"w": torch.zeros(2)}, path)
    content = bytearray(path.read_bytes())
    for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of a file, and of its directory entry
        at = content.find(sign)
        while at >= 0:
            content[at + place] |= 1
            at = content.find(sign, at + 1)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"locked\.pth"):
        read_weights(path)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        traced: Any = torch.jit.trace(nn.Linear(3, 2), torch.rand(2, 3))
        traced.save(tmp_path / "net.pt")
    return tmp_path / "net.pt"


def test_a_torchscript_file_is_told_as_model_and_as_weights(script: Path) -> None:
    with pytest.raises(InputError, match=r"is a TorchScript archive .*\(package.module:function"):
        open_model(str(script))
    with pytest.raises(InputError, match=r"is a TorchScript archive .* none of it was run"):
        load_weights(nn.Linear(3, 2), script)


def test_images_of_a_size_that_the_network_cannot_take_are_named() -> None:
    images = torch.zeros(2, 1, 40, 50)
    with pytest.raises(InputError, match=r"images of shape \[1, 40, 50\] with RuntimeError: mat1 .*--preprocessing"):
        Classifier(build("digits-mixer"))(images)
