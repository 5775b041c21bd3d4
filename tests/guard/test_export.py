"""The ONNX file: torch's numbers in onnxruntime, no value on the wrong side of an edge, and no torch needed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from data import arrays, features, proxy
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


def run_as(form: str, module: nn.Module, given: Tensor) -> Tensor:
    """What a module gives in one of the forms that a guard runs in."""
    made: Tensor = module(given)  # a guarded network has run once before it is compiled
    if form == "onnx":
        return torch.from_numpy(in_runtime(module, given))
    return made if form == "torch" else torch.compile(module, fullgraph=True, dynamic=True, backend="eager")(given)


@pytest.mark.parametrize("form", ["torch", "compiled", "onnx"])
def test_one_certain_component_has_a_veto(form: str) -> None:
    """The law: fused log p <= q_min(min L) + log 5, in every form that a guard runs in."""
    fusion = METHODS["auto"].fit(features(400), proxy=[proxy()]).scorer
    drawn = torch.Generator().manual_seed(0)
    each = torch.rand(300, len(fusion.components), generator=drawn).log()
    each[100:, 2] -= torch.linspace(0, 50, 200)  # one component grows certain
    fused = run_as(form, Fused(fusion), each)
    lowest, minima = each.amin(dim=1).double(), torch.from_numpy(fusion.minima.copy()).double()
    veto = log_p(lowest, minima) + math.log(5)
    assert (fused.double() <= veto + 1e-3).all()
    assert (fused.double() - veto).abs()[-50:].max() < 1e-2 * veto.abs().max()  # there the veto decides
    np.testing.assert_allclose(fused.numpy(), fusion.fuse(each.T).numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["torch", "compiled", "onnx"])
def test_a_guard_against_noise_decides_alone(form: str) -> None:
    """The law: where the components accept noise, the score is at most the guard's log p; other noise has no guard."""
    train, (weight, bias) = features(400), arrays(1)[1]
    one, drawn = next(train.chunks())[1][:1].float(), torch.Generator().manual_seed(0)
    accepted = one * (1 + 0.02 * torch.randn(60, train.width, generator=drawn))
    rejected = 30 * torch.randn(60, train.width, generator=drawn)
    synthetic = [Features.from_arrays(each[:40], train.head) for each in (accepted, rejected)]
    detector = METHODS["auto"].fit(train, proxy=[proxy(), *synthetic]).calibrate(features(200, seed=2))
    (guard,) = detector.scorer.guards
    assert guard.name == "noise"
    net = nn.Sequential(nn.Identity(), nn.Linear(train.width, len(weight))).requires_grad_(False)
    net[1].load_state_dict({"weight": torch.as_tensor(weight), "bias": torch.as_tensor(bias)})
    z = torch.cat([accepted[40:], torch.from_numpy(arrays(100, seed=3)[0])])
    plain = replace(detector, scorer=replace(detector.scorer, guards=()))
    own = replace(detector, scorer=guard)
    modules = [Several(net, {"auto": each}) for each in (detector, plain, own)]
    fused, without = (run_as(form, module, z)[0] for module in modules[:2])
    law = torch.minimum(without, guard.log_p(modules[2](z)[0]))
    np.testing.assert_allclose(fused.numpy(), law.numpy(), rtol=1e-3, atol=1e-3)
    assert without[:20].min() > math.log(0.05)
    assert fused[:20].max() < math.log(0.01)


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


WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "oodshape", "numba"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import numpy, onnxruntime
images = numpy.load(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
numpy.save(sys.argv[3], session.run(["score"], {"images": images})[0])
assert "torch" not in sys.modules
"""


def test_the_file_runs_without_torch(guarded: Path, images: Tensor, tmp_path) -> None:
    np.save(tmp_path / "images.npy", images.numpy())
    files = [str(guarded), str(tmp_path / "images.npy"), str(tmp_path / "score.npy")]
    subprocess.run([sys.executable, "-I", "-c", WITHOUT_TORCH, *files], check=True, capture_output=True)
    (wanted,) = session(guarded).run(["score"], {"images": images.numpy()})
    np.testing.assert_allclose(np.load(tmp_path / "score.npy"), wanted, rtol=1e-5)
