"""The ONNX file: torch's numbers in onnxruntime, no value on the wrong side of an edge; and what is not written."""

from __future__ import annotations

import csv
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from commands import GUARD, MODEL, call
from data import arrays, features, proxy
from folders_of_digits import write_digits
from oodshape import METHODS, Auto, Classifier, Detector, Features, Guard, InputError, Method
from oodshape.guard.export import onnx as export
from oodshape.guard.export.onnx import export_onnx
from oodshape.methods.fusion import Fusion, log_p
from oodshape.methods.perturb.odin import Odin
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.networks.zoo import MODELS, build

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

DIGITS = MODELS["digits-convnet"].native


def test_the_threshold_is_an_input_with_a_default(
    net: nn.Module, detectors: dict[str, Detector], images: Tensor, tmp_path: Path
) -> None:
    names, path = [f"digit {i}" for i in range(8)], tmp_path / "guarded.onnx"
    report = export_onnx(net, detectors["optfs-e"], path, images, preprocessing=DIGITS, classes=names)
    assert max(report.logits, report.score, report.same_features) < 1e-4
    assert str(report).endswith("0 different decisions")
    assert "1 different decision, by rounding" in str(replace(report, decisions=1))
    run, fed = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]), {"images": images.numpy()}
    assert [value.name for value in run.get_inputs()] == ["images"]
    assert [value.name for value in run.get_overridable_initializers()] == ["threshold"]
    (score,) = run.run(["score"], fed)
    (accepted,) = run.run(["accepted"], fed | {"threshold": np.sort(score)[20:21]})
    assert accepted.sum() == 44


def test_auto_of_a_confident_network_is_written(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    centres, labels = 10 * torch.randn(4, 16, generator=random).abs(), torch.arange(1200) % 4
    images = centres[labels] + 0.05 * torch.randn(1200, 16, generator=random)  # distances of 0.005 between directions
    net = nn.Sequential(nn.ReLU(), nn.Linear(16, 4))
    net[1].load_state_dict({"weight": centres / 20, "bias": -(centres**2).sum(1) / 40})
    head, z = tuple(value.detach().numpy() for value in net[1].parameters()), net[0](images).numpy()
    train, held_out = (
        Features.from_arrays(z[part], head, labels[part].numpy()) for part in (slice(600), slice(600, 1200))
    )
    recipe = Method(score=Auto(candidates=("knn", "vim", "energy"), fuse=3, always=()))
    detector = recipe.fit(train).calibrate(held_out, alpha=0.05)
    report = export_onnx(net, detector, tmp_path / "guarded.onnx", images[600:700])
    assert report.same_features < 0.05  # of a log p-value: 5 % of the p-value


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


def fuse_with_filter() -> tuple[Detector, Tensor]:
    """A detector with filters, and images: 20 of those that the components accept, then 100 ID images."""
    train = features(400)
    one, drawn = next(train.chunks())[1][:1].float(), torch.Generator().manual_seed(0)
    accepted = one * (1 + 0.02 * torch.randn(60, train.width, generator=drawn))
    rejected = 30 * torch.randn(60, train.width, generator=drawn)
    synthetic = [Features.from_arrays(each[:40], train.head) for each in (rejected, accepted)]
    detector = METHODS["auto"].fit(train, proxy=[proxy(), *synthetic]).calibrate(features(200, seed=2))
    return detector, torch.cat([accepted[40:], torch.from_numpy(arrays(100, seed=3)[0])])


@pytest.mark.parametrize("form", ["torch", "compiled", "onnx"])
def test_a_filter_decides_alone_below_its_limit(form: str) -> None:
    """The laws: fused p <= limit * (p / limit) ** 3 of the filter, and fused log p <= q_min(min L) + log 5."""
    (detector, z), (weight, bias) = fuse_with_filter(), arrays(1)[1]
    filters = detector.scorer.filters
    assert [(one.limit, one.weight) for one in filters] == [(0.05, 0), (0.08, 2), (0.03, 0)]
    net = nn.Sequential(nn.Identity(), nn.Linear(z.shape[1], len(weight))).requires_grad_(False)
    net[1].load_state_dict({"weight": torch.as_tensor(weight), "bias": torch.as_tensor(bias)})
    parts = [replace(detector, scorer=part) for part in (*detector.scorer.components, *filters)]
    fused = run_as(form, Several(net, {"auto": detector}), z)[0].double()
    each = [part.scorer.log_p(Several(net, {"": part})(z)[0]).double() for part in parts]
    for one, logs in zip(filters, each[-3:], strict=True):
        assert (fused <= 3 * logs - 2 * math.log(one.limit) + 1e-3).all()
    lowest, minima = torch.stack(each[:-3]).amin(dim=0), torch.from_numpy(detector.scorer.minima.copy()).double()
    assert (fused <= log_p(lowest, minima) + math.log(5) + 1e-3).all()
    plain = METHODS["auto"].fit(features(400), proxy=[proxy()])
    assert plain.score(Features.from_arrays(z[:20].numpy(), (weight, bias))).min() > math.log(0.05)
    assert fused[:20].max() < math.log(0.001)


def test_a_filter_is_exact_in_single_precision() -> None:
    """Rounding must not reach the p-values: exported guards whose scores differ by more than 1e-4 are refused."""
    detector, z = fuse_with_filter()
    (noise, constant, _), squares = detector.scorer.filters, []
    for part in (noise.scorer.images, constant.scorer.images, constant.scorer.classes):
        centred = z.double() - torch.tensor(part.center).double()
        white, means = centred @ torch.tensor(part.whitening).double(), torch.tensor(part.means).double()
        squares.append(torch.cdist(white, means).square())
    images, classes = ((1e-3 * z.shape[1] + each.amin(dim=1)).log() for each in squares[1:])
    wanted = (-squares[0]).exp() @ torch.tensor(noise.scorer.weights).double(), images - classes
    for one, values in zip((noise, constant), wanted, strict=True):
        found = replace(detector, scorer=one).score(Features.from_arrays(z.numpy(), arrays(1)[1]))
        torch.testing.assert_close(found.double(), values, rtol=0, atol=1e-5)


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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_digits(tmp_path_factory.mktemp("export"))
    words = ("--images", "train", "--calibrate", "val", "--per-class", "--cache", "none")
    assert call("fit", *MODEL, *words, "--out", "guard.safetensors", cwd=root).returncode == 0
    return root


def test_the_file_decides_as_score_does(place: Path) -> None:
    done = call("export", *GUARD, "--images", "test", "--out", "guarded.onnx", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("guarded.onnx: 64 images in onnxruntime and torch")
    assert "0 different decisions" in done.stdout
    assert b".py" not in (place / "guarded.onnx").read_bytes()  # no path of the machine that it was made on
    assert call("score", *GUARD, "--images", "letters", "--out", "scores.csv", cwd=place).returncode == 0
    rows = list(csv.DictReader((place / "scores.csv").read_text().splitlines()))
    session = runtime.InferenceSession(str(place / "guarded.onnx"), providers=["CPUExecutionProvider"])
    preprocessing = Guard.load(place / "guard.safetensors").about.preprocessing
    images = preprocessing.batch(Image.open(place / row["path"]) for row in rows).numpy()
    _, score, accepted = session.run(None, {"images": images})
    wanted = np.array([float(row["score"]) for row in rows])
    np.testing.assert_allclose(score, wanted, atol=1e-4 * np.abs(wanted).max())
    assert [str(bool(value)).lower() for value in accepted] == [row["accepted"] for row in rows]
    assert 0 < accepted.sum() < len(rows)


def test_bad_input_leaves_no_file(place: Path) -> None:
    for words, said in (
        (GUARD, "leaves images in their own size; give --images"),
        ((*GUARD[:2], "--model", "zoo:digits-vit", "--images", "val"), "fitted for the network zoo:digits-convnet"),
        ((*GUARD, "--images", "nothing-here"), "there is no file or folder nothing-here"),
    ):
        done = call("export", *words, "--out", "b.onnx", cwd=place)
        assert done.returncode == 2
        assert said in done.stderr
    assert not (place / "b.onnx").exists()


def test_a_graph_in_float32_decides_as_a_guard_in_float32_only(place: Path) -> None:
    words = ("--images", "train", "--calibrate", "val", "--method", "msp", "--alpha", "0.3", "--cache", "none")
    made = ("--precision", "bfloat16", "--out", "half.safetensors")
    assert call("fit", *MODEL, *words, *made, cwd=place).returncode == 0
    assert re.search("^precision +bfloat16$", call("inspect", "half.safetensors", cwd=place).stdout, re.M)
    export = ("export", "--guard", "half.safetensors", *MODEL, "--images", "test", "--out", "half.onnx")
    done = call(*export, cwd=place)
    assert done.returncode == 2
    assert "this guard was calibrated in bfloat16, but an exported graph runs in float32" in done.stderr
    again = call("calibrate", "half.safetensors", "--images", "val", "--precision", "float32", "--per-class", cwd=place)
    assert again.returncode == 0, again.stderr
    assert "all 8 classes have a threshold of their own" in again.stdout
    assert "in its other side" not in again.stderr
    assert call(*export, cwd=place).returncode == 0
    assert "precision" not in call("inspect", "half.safetensors", cwd=place).stdout


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


class ByValue(Wrapped):
    """A network that branches on the values of an image."""

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images if images.sum() > 0 else -images)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (ByValue, "torch cannot capture the network as a graph: .*data-dependent"),
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
