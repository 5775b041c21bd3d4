"""ONNX files that are not written: where the graph would say something else than the network, or cannot be made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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


class Wrapped(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.inner = net


class Softmax(Wrapped):
    """Probabilities in place of the logits."""

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images).softmax(1)


class ByWidth(Wrapped):
    """Changes what has not the width of its logits: its head's input, once that stands in the head's place."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.inner(images)
        return logits if logits.shape[1] == 8 else logits * 2


class CountsImages(Wrapped):
    """A network whose forward takes the number of images for a constant."""

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images.reshape(len(images), *images.shape[1:]))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Softmax, r"head='inner.head' does not give the logits .*a softmax"),
        (lambda net: Classifier(Softmax(net), "inner.head"), r"head='inner.head' does not give the logits .*a softmax"),
        (ByWidth, r"differ by .* in the logits, .* the output of 'inner.head' as it is"),
        (CountsImages, r"fixes the number of images, here 2; write x.shape\[0\]"),
    ],
)
def test_a_network_whose_graph_would_say_something_else_is_not_exported(
    made: Any, said: str, net: nn.Module, detectors: dict[str, Detector], images: Tensor, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        export_onnx(made(net), detectors["energy"], tmp_path / "guard.onnx", images)
    assert list(tmp_path.iterdir()) == []


def test_a_transformer_takes_any_number_of_images(images: Tensor, tmp_path: Path) -> None:
    other = build("digits-vit")
    outputs = Classifier(other)(images)
    known = Features.from_arrays(outputs.features.numpy(), outputs.head)
    report = export_onnx(other, METHODS["energy"].fit(known).calibrate(known), tmp_path / "vit.onnx", images)
    assert (report.images, report.logits < 1e-4) == (64, True)
    session = runtime.InferenceSession(str(tmp_path / "vit.onnx"), providers=["CPUExecutionProvider"])
    assert len(session.run(["score"], {"images": images[:3].numpy()})[0]) == 3


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
