"""The ONNX file: torch's numbers in onnxruntime, no value on the wrong side of an edge, and no torch needed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from data import features, proxy
from oodshape import METHODS, Classifier, Detector, Features, Preprocessing
from oodshape.guard.export import onnx as export
from oodshape.guard.export.onnx import export_onnx
from oodshape.methods.fusion import Fusion, log_p
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.networks.zoo import MODELS

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

DIGITS = MODELS["digits-convnet"].native


@pytest.fixture(scope="module")
def guarded(net: nn.Module, detectors: dict[str, Detector], images: Tensor, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "guarded.onnx"
    report = export_onnx(
        net, detectors["optfs-e"], path, images, preprocessing=DIGITS, classes=[f"digit {i}" for i in range(8)]
    )
    assert report.images == 64
    assert max(report.logits, report.score, report.same_features) < 1e-4
    assert report.decisions == 0
    assert str(report).endswith("0 different decisions")
    return path


def session(path: Path):
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def test_the_file_says_what_the_detector_says(
    guarded: Path, net: nn.Module, detectors: dict[str, Detector], images: Tensor
) -> None:
    said = detectors["optfs-e"].decide(Classifier(net), images)
    for n in (64, 1, 5):
        logits, score, accepted = session(guarded).run(None, {"images": images[:n].numpy()})
        assert np.array_equal(logits.argmax(axis=1), said.classes[:n])
        np.testing.assert_allclose(score, said.scores[:n], rtol=1e-4, atol=1e-4)
        assert np.array_equal(accepted, said.accepted[:n])
    assert 0 < said.accepted.sum() < 64


def test_the_threshold_is_an_input_with_a_default(guarded: Path, images: Tensor) -> None:
    run, fed = session(guarded), {"images": images.numpy()}
    assert [value.name for value in run.get_inputs()] == ["images"]
    assert [value.name for value in run.get_overridable_initializers()] == ["threshold"]
    score, _ = run.run(["score", "accepted"], fed)
    limit = np.sort(score)[20:21]
    (accepted,) = run.run(["accepted"], fed | {"threshold": limit})
    assert accepted.sum() == 44


def test_the_file_carries_what_a_server_needs(guarded: Path, detectors: dict[str, Detector]) -> None:
    import base64

    said = session(guarded).get_modelmeta().custom_metadata_map
    assert Preprocessing(**json.loads(said["preprocessing"])) == DIGITS
    assert json.loads(said["classes"])[3] == "digit 3"
    assert said["method"] == repr(METHODS["optfs-e"])
    assert said["head"] == detectors["optfs-e"].fingerprint
    scores = np.frombuffer(base64.b64decode(said["calibration"]), "<f4")
    assert np.array_equal(scores, detectors["optfs-e"].calibration)
    assert float(said["alpha"]) == 0.05


class Several(nn.Module):
    """Features -> the scores of many methods: one trace and one session for all of them."""

    def __init__(self, net: nn.Module, detectors: dict[str, Detector]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(detector.wrap(net) for detector in detectors.values())

    def forward(self, features: Tensor) -> Tensor:
        logits = self.parts[0].tap.logits(features)
        return torch.stack([part.score(features, logits) for part in self.parts])


def in_runtime(module: nn.Module, z: Tensor) -> np.ndarray:
    with torch.no_grad(), export._silence():
        program = torch.onnx.export(
            module,
            (z[:2],),
            dynamo=True,
            verbose=False,
            optimize=False,  # for speed: the files of users are optimized
            input_names=["z"],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            custom_translation_table={torch.ops.aten.sort.stable: export._stable_sort},
        )
    return runtime.InferenceSession(program.model_proto.SerializeToString()).run(None, {"z": z.numpy()})[0]


class Fused(nn.Module):
    """[n, K] log p-values of the components -> [n] fused ones."""

    def __init__(self, fusion: Fusion) -> None:
        super().__init__()
        self.fusion = fusion.traced()

    def forward(self, each: Tensor) -> Tensor:
        return self.fusion.fuse(each.T)


@pytest.mark.parametrize("form", ["torch", "compiled", "onnx"])
def test_one_certain_component_has_a_veto(form: str) -> None:
    """The law: fused log p <= q_min(min L) + log 5, in every form that a guard runs in."""
    fusion = METHODS["auto"].fit(features(400), proxy=[proxy()]).scorer
    drawn = torch.Generator().manual_seed(0)
    each = torch.rand(300, len(fusion.components), generator=drawn).log()
    each[100:, 2] -= torch.linspace(0, 50, 200)  # one component grows certain
    module = Fused(fusion)
    module(each)  # a guarded network has run once before it is compiled
    if form == "onnx":
        fused = torch.from_numpy(in_runtime(module, each))
    elif form == "compiled":
        fused = torch.compile(module, fullgraph=True, dynamic=True, backend="eager")(each)
    else:
        fused = module(each)
    lowest, minima = each.amin(dim=1).double(), torch.from_numpy(fusion.minima.copy()).double()
    veto = log_p(lowest, minima) + math.log(5)
    assert (fused.double() <= veto + 1e-3).all()
    assert (fused.double() - veto).abs()[-50:].max() < 1e-2 * veto.abs().max()  # there the veto decides
    np.testing.assert_allclose(fused.numpy(), fusion.fuse(each.T).numpy(), rtol=1e-4, atol=1e-4)


def test_every_method_scores_the_same_in_the_runtime(detectors: dict[str, Detector], net: nn.Module) -> None:
    width = detectors["energy"].wrap(net).tap.in_features
    draw = torch.Generator().manual_seed(0)
    z = torch.rand(40, width, generator=draw) + 0.2 * torch.randn(40, width, generator=draw)
    got = in_runtime(Several(net, detectors), z)
    head = Classifier(net, head=detectors["energy"].wrap(net).head_name).head
    for name, scores in zip(detectors, got, strict=True):
        wanted = detectors[name].score(Features.from_arrays(z.numpy(), head)).numpy()
        np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max(), err_msg=name)
        assert np.corrcoef(scores, wanted)[0, 1] > 0.9999, name


class Shaped(nn.Module):
    def __init__(self, shape: PiecewiseConstant, z: Tensor) -> None:
        super().__init__()
        self.shape = shape.traced()
        self.shape(z)

    def forward(self, z: Tensor) -> Tensor:
        return self.shape(z)


@pytest.mark.parametrize("grid", [True, False])
def test_stored_edges_are_compared_in_the_runtime(grid: bool) -> None:
    shape = METHODS["optfs-e"].fit(features(300, width=101)).shape
    assert isinstance(shape, PiecewiseConstant)
    if not grid:
        shape = PiecewiseConstant(np.sort(np.random.default_rng(0).normal(size=101)), shape.theta)
    steps = [np.nextafter(shape.edges, np.float32(way)) for way in (-np.inf, np.inf)]
    rows = torch.from_numpy(np.stack([shape.edges, *steps, np.full(101, 1e30, np.float32), -shape.edges]))
    cells = (rows.numpy()[:, :, None] >= shape.edges).sum(axis=2)  # counted one by one
    assert np.array_equal(in_runtime(Shaped(shape, rows), rows), np.pad(shape.theta, 1)[cells] * rows.numpy())
