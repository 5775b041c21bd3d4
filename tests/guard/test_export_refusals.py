"""ONNX files that are not written: where the graph would say something else than the network, or cannot be made."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from oodshape import METHODS, Classifier, Detector, Features, InputError, Method
from oodshape.guard.export.onnx import export_onnx
from oodshape.methods.perturb.odin import Odin
from oodshape.networks.zoo import build

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def session(path: Path):
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Softmax(nn.Module):
    """Probabilities in place of the logits."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.inner = net

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images).softmax(1)


def test_a_network_that_ends_in_softmax_is_not_exported(
    net: nn.Module, detectors: dict[str, Detector], images: Tensor, tmp_path
) -> None:
    for given in (Softmax(net), Classifier(Softmax(net), "inner.head")):
        with pytest.raises(InputError, match=r"head='inner.head' does not give the logits .*a softmax"):
            export_onnx(given, detectors["energy"], tmp_path / "guard.onnx", images)
    assert list(tmp_path.iterdir()) == []


class ByWidth(nn.Module):
    """Changes what has not the width of its logits: its head's input, once that stands in the head's place."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.inner = net

    def forward(self, images: Tensor) -> Tensor:
        logits = self.inner(images)
        return logits if logits.shape[1] == 8 else logits * 2


def test_a_guarded_network_with_other_logits_is_not_exported(
    net: nn.Module, detectors: dict[str, Detector], images: Tensor, tmp_path
) -> None:
    with pytest.raises(InputError, match=r"differ by .* in the logits, .* the output of 'inner.head' as it is"):
        export_onnx(ByWidth(net), detectors["energy"], tmp_path / "guard.onnx", images)
    assert list(tmp_path.iterdir()) == []


class CountsImages(nn.Module):
    """A network whose forward takes the number of images for a constant."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images.reshape(len(images), *images.shape[1:]))


def test_any_number_of_images_or_no_file(
    net: nn.Module, detectors: dict[str, Detector], images: Tensor, tmp_path
) -> None:
    with pytest.raises(InputError, match=r"fixes the number of images, here 2; write x.shape\[0\]"):
        export_onnx(CountsImages(net), detectors["energy"], tmp_path / "fixed.onnx", images)
    assert not (tmp_path / "fixed.onnx").exists()
    other = build("digits-vit")
    outputs = Classifier(other)(images)
    known = Features.from_arrays(outputs.features.numpy(), outputs.head)
    report = export_onnx(other, METHODS["energy"].fit(known).calibrate(known), tmp_path / "vit.onnx", images)
    assert (report.images, report.logits < 1e-4) == (64, True)
    assert len(session(tmp_path / "vit.onnx").run(["score"], {"images": images[:3].numpy()})[0]) == 3


def test_refusals_name_the_way_out(
    net: nn.Module, train: Features, detectors: dict[str, Detector], images: Tensor, tmp_path, monkeypatch
) -> None:
    path = tmp_path / "guard.onnx"
    with pytest.raises(InputError, match="cannot go into a graph"):
        export_onnx(net, Method(perturb=Odin(eps=0.01)).fit(train).calibrate(np.arange(99.0)), path, images)
    with pytest.raises(InputError, match="a batch of preprocessed images"):
        export_onnx(net, detectors["energy"], path, images[:0])
    with pytest.raises(InputError, match="2 class names were given, the network has 8"):
        export_onnx(net, detectors["energy"], path, images, classes=["a", "b"])
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"pip install 'oodshape\[onnx\]'"):
        export_onnx(net, detectors["energy"], path, images)
    assert not path.exists()
