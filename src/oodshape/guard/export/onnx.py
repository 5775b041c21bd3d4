"""A network and its detector as one ONNX graph: images -> logits, score, accepted; compared before it is written."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import oodshape
from oodshape.core.errors import InputError, import_optional
from oodshape.core.files import one_line, replacing
from oodshape.core.progress import progress_bar
from oodshape.core.text import format_count
from oodshape.guard.describe import EXIF
from oodshape.guard.export.edit_onnx import add_checksum, read_exported
from oodshape.guard.export.guarded_file import OUTPUTS, open_session
from oodshape.guard.export.recalibrate import describe_threshold
from oodshape.guard.fitted import Fitted
from oodshape.images.decode.prefetch import prepare_item
from oodshape.images.decode.preprocessing import Preprocessing, check_shape
from oodshape.images.sources.memory import iterate_prepared
from oodshape.images.sources.open_images import Given, stream_images
from oodshape.methods.detector import Detector
from oodshape.methods.fusion import Fusion
from oodshape.methods.guarded_net import GuardedNet, wrap_network
from oodshape.methods.registry import METHODS
from oodshape.networks.classifier import Classifier
from oodshape.networks.loading import OpenNet

OPSET = 18
TOLERANCE = 1e-4  # of the largest value, between torch and the ONNX runtime
LOG_P_TOLERANCE = 0.05  # of the score of a fusion, a log p-value: distances between close features lose digits
Answers = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class ExportReport:
    """How the graph in the ONNX runtime differs from torch, over the images that both were given.

    `score` compares image by image. `same_features` compares the score alone, both from the features that the
    runtime computed: a network's last bits may differ, but no feature may change sides at an edge.
    """

    path: Path
    images: int
    logits: float  # the largest difference
    features: float
    score: float
    same_features: float
    decisions: int  # how many images one accepts and the other does not

    def __str__(self) -> str:
        decisions = format_count(self.decisions, "different decision")
        return (
            f"{self.path}: {self.images} images in onnxruntime and torch; largest difference of logits "
            f"{self.logits:.2g}, score {self.score:.2g} ({self.same_features:.2g} from the same features), "
            f"{decisions}{', by rounding at the threshold' if self.decisions else ''}"
        )


def export_onnx(
    net: nn.Module | Classifier,
    detector: Detector,
    path: str | Path,
    images: Tensor,
    *,
    preprocessing: Preprocessing | None = None,
    upright: bool = False,
    classes: Sequence[str] | None = None,
    head: str | None = None,
    method: str = "",
    held_out: bool = True,
    progress: bool | None = None,
) -> ExportReport:
    """Write network and detector as one ONNX file, `images` [N, ...] -> `logits`, `score`, `accepted`, for any N.

    The graph is compared with torch on the images given. The input `threshold` ([1], or one per predicted class) has
    the detector's as its default. The file ends with a checksum.

    Args:
        net: The network.
        detector: The calibrated detector.
        path: The file to write.
        images: [N, ...] images as the network takes them, to compare on.
        preprocessing: Preprocessing for the file's metadata.
        upright: Whether images are rotated as their EXIF orientation says, for the metadata.
        classes: Class names for the metadata.
        head: The dotted name of the head, if it cannot be found by value.
        method: Name of the method for the metadata.
        held_out: Whether the network was not trained on the calibration images; otherwise there is no guarantee.
        progress: Whether to show the steps; None: if standard error is a terminal.

    Returns:
        How the graph compares with torch.

    Raises:
        InputError: If the method cannot be exported, or the graph differs from torch by more than rounding; then no
            file is written.

    >>> from oodshape import METHODS, Features
    >>> net, images = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), torch.rand(2, 3, 2, 2)
    >>> train = Features.extract(Classifier(net), images, prepared=True, progress=False)
    >>> export_onnx(net, METHODS["msp"].fit(train), "guarded.onnx", images)
    Traceback (most recent call last):
    ...
    oodshape.core.errors.InputError: ...
    """
    onnx, _, _ = (import_optional(name, "onnx", "ONNX export") for name in ("onnx", "onnxruntime", "onnxscript"))
    if not isinstance(images, Tensor) or images.ndim < 2 or len(images) == 0:
        raise InputError("export needs a batch of preprocessed images [N, ...] to trace the network and to compare")
    guarded = wrap_network(net, detector, detector.limits, head, images)
    names = None if classes is None else list(map(str, classes))
    if names is not None and len(names) != guarded.tap.out_features:
        raise InputError(f"{len(names)} class names were given, the network has {guarded.tap.out_features} classes")
    _check(net.net if isinstance(net, Classifier) else net, guarded, images[:2])
    with progress_bar("export", 2, progress, "steps") as report_step:
        report_step(0, text="export: capture the graph")
        try:
            model = _traced(guarded, images)
        except torch.onnx.OnnxExporterError as error:
            why = one_line(error.__cause__ or error)
            raise InputError(f"{path} was not written: torch cannot capture the network as a graph: {why}") from None
        (batch, *_) = next(value for value in model.graph.input if value.name == "images").type.tensor_type.shape.dim
        if batch.dim_value:
            raise InputError(
                f"{path} was not written: the network's forward fixes the number of images, here {batch.dim_value}; "
                "write x.shape[0] where it has len(x) or a number"
            )
        said = _metadata(detector, preprocessing, upright, names, method)
        scores, alpha = detector.held_out()
        said |= describe_threshold(detector.limits.tolist(), alpha, scores, detector.groups, held_out)
        model.metadata_props.extend(onnx.StringStringEntryProto(key=key, value=value) for key, value in said.items())
        model.graph.initializer.append(onnx.numpy_helper.from_array(guarded.threshold.cpu().numpy(), "threshold"))
        report_step(1, text="export: compare with torch and write")
        answers = _run(model, images, [*OUTPUTS, "features"])
        report = _compared(guarded, detector, images, answers, Path(path))
        features = next(output for output in model.graph.output if output.name == "features")
        model.graph.output.remove(features)
        onnx.checker.check_model(model)
        with replacing(path) as temporary:
            temporary.write_bytes(add_checksum(model.SerializeToString()))
            (alone,) = open_session(read_exported(temporary)).run(["score"], {"images": _array(images[:1])})
            apart = float(np.abs(alone - answers["score"][:1]).max())
            if not apart <= _allowed(detector, float(np.abs(answers["score"]).max())):
                raise InputError(f"{path} was not written: an image's score alone and in a batch differ by {apart:.2g}")
    return report


def _check(net: nn.Module, guarded: GuardedNet, images: Tensor) -> None:
    """Refuse a network whose logits are not what its head gives, or not what the guarded network gives."""
    wanted = Classifier(net, guarded.head_name)(images).logits
    with torch.no_grad():
        logits = guarded(images)[0].float()
    apart, size = float((logits - wanted).abs().max()), float(wanted.abs().max())
    if not apart <= max(TOLERANCE, 8 * torch.finfo(guarded.tap.weight.dtype).eps) * size:
        raise InputError(
            f"the guarded network and the network itself differ by {apart:.2g} in the logits, whose largest value is "
            f"{size:.2g}; wrap the network so that it returns the output of {guarded.head_name!r} as it is"
        )


class _WithFeatures(nn.Module):
    """The guarded network, its threshold an input and its features an output, for the comparison."""

    def __init__(self, guarded: GuardedNet) -> None:
        super().__init__()
        self.guarded = guarded

    def forward(self, images: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        features = self.guarded.features(images)
        return *self.guarded.score_features(features, threshold), features


def _traced(guarded: GuardedNet, images: Tensor) -> Any:
    two = images[:2] if len(images) > 1 else images.repeat(2, *(1 for _ in images.shape[1:]))  # 1 would be fixed
    with torch.no_grad(), _silence():
        program = torch.onnx.export(
            _WithFeatures(guarded).eval(),
            (two, guarded.threshold),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=["images", "threshold"],
            output_names=[*OUTPUTS, "features"],
            dynamic_shapes={"images": {0: torch.export.Dim("batch")}, "threshold": None},
            custom_translation_table={torch.ops.aten.sort.stable: _stable_sort},
        )
    assert program is not None
    return _without_traces(program.model_proto)


def _without_traces(model: Any) -> Any:
    """The model without the tracer's notes: where each node stands in whose source files is nobody else's business."""
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    graph = model.graph
    for noted in (graph, *nodes, *graph.input, *graph.output, *graph.value_info, *graph.initializer, *model.functions):
        del noted.metadata_props[:]
        noted.doc_string = ""
    return model


def _stable_sort(self: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """Values and places: TopK over all values puts equal ones in the order of their places (ONNX standard)."""
    op: Any = import_module("onnxscript").opset18
    size = op.Reshape(op.Gather(op.Shape(self), op.Constant(value_int=dim), axis=0), op.Constant(value_ints=[1]))
    return op.TopK(self, size, axis=dim, largest=descending, sorted=True)


def _metadata(
    detector: Detector, preprocessing: Preprocessing | None, upright: bool, names: list[str] | None, method: str
) -> dict[str, str]:
    """The metadata that a server needs, but for the threshold."""
    found = {
        "oodshape": oodshape.__version__,
        "method": method or next((name for name, each in METHODS.items() if each == detector.method), "custom"),
        "recipe": repr(detector.method),
        "head": str(detector.fingerprint),
        "n_train": str(detector.n_train),
        "exif": EXIF[upright],
    }
    if preprocessing is not None:
        found["preprocessing"] = json.dumps(asdict(preprocessing))
    if names is not None:
        found["classes"] = json.dumps(names)
    return found


def _allowed(detector: Detector, size: float, tolerance: float = TOLERANCE) -> float:
    """How much a score may differ if the largest is `size`: 5 % of a p-value where scores are log p-values."""
    fused = isinstance(detector.scorer, Fusion) and len(detector.scorer.components) > 1
    return max(tolerance * size, LOG_P_TOLERANCE if fused else 0.0)


def _compared(guarded: GuardedNet, detector: Detector, images: Tensor, answers: Answers, path: Path) -> ExportReport:
    """The differences, each inside its limit."""
    with torch.no_grad():
        features = guarded.features(images)
        logits, score, accepted = guarded.score_features(features)
        theirs = [torch.from_numpy(answers[name]).to(images.device) for name in ("features", "logits")]
        same, limit = guarded.score(*theirs), guarded.limit(theirs[1])
    eps = torch.finfo(features.dtype).eps if features.is_floating_point() else 0.0
    tolerance = max(TOLERANCE, 8 * eps)
    got = torch.from_numpy(answers["score"]).to(images.device)
    alike = "score of the same features"
    pairs = {"features": (features, theirs[0]), "logits": (logits, theirs[1]), alike: (same, got)}
    found = {}
    for name, (ours, other) in pairs.items():
        ours, other = ours.float(), other.float()
        found[name], size = float((ours - other).abs().max()), float(ours.abs().max())
        if not found[name] <= (_allowed(detector, size, tolerance) if name == alike else tolerance * size):
            raise InputError(
                f"{path} was not written: torch and onnxruntime differ by {found[name]:.2g} in the {name}, whose "
                f"largest value is {size:.2g}; try a network in float32"
            )
    taken = torch.from_numpy(answers["accepted"]).to(images.device)
    clear = (same - limit).abs() > _allowed(detector, float(same.abs().max()), tolerance)
    if not torch.equal(taken[clear], (same >= limit)[clear]):
        raise InputError(f"{path} was not written: torch and onnxruntime accept different images by the same scores")
    return ExportReport(
        path=path,
        images=len(images),
        logits=found["logits"],
        features=found["features"],
        score=float((score - got).abs().max()),
        same_features=found[alike],
        decisions=int((taken != accepted).sum()),
    )


def _run(model: Any, images: Tensor, names: list[str]) -> Answers:
    session = open_session(model.SerializeToString())
    parts = [session.run(names, {"images": _array(part)}) for part in torch.split(images, 32)]
    return {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(names)}


def _array(images: Tensor) -> np.ndarray[Any, Any]:
    return images.detach().cpu().contiguous().numpy()


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing of the exporter's own notes: what matters is compared afterwards."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


COMPARED = 64  # images at the most


def export_guard(
    guard: Fitted, source: OpenNet, path: str | Path, images: Given | None = None, progress: bool | None = None
) -> ExportReport:
    """Write the ONNX file, compared on the first images given, or on made-up ones; how it compares."""
    about = guard.about
    if about.preprocessing is None and (images is not None or about.input_shape is not None):
        batch = _prepared(about.input_shape, images)
    else:
        batch = _make_test_images(guard.preprocessing) if images is None else _given(guard, images)
    check_shape(batch.shape[1:], about.input_shape)
    return export_onnx(
        source.classifier,
        guard.detector,
        path,
        batch,
        preprocessing=about.preprocessing,
        upright=about.upright,
        method=about.method,
        held_out=about.held_out,
        classes=about.classes or None,
        progress=progress,
    )


def _prepared(shape: tuple[int, ...] | None, images: Given | None) -> Tensor:
    """Tensors as the network takes them: the first batch, or random ones of a shape."""
    if images is not None:
        return next(iter(iterate_prepared(images)))[0][:COMPARED]
    assert shape is not None
    return torch.randn(COMPARED, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32)


def _given(guard: Fitted, images: Given) -> Tensor:
    listing = stream_images(images)
    read = partial(listing.read, upright=guard.about.upright)
    every = (prepare_item(read, guard.preprocessing, pair) for pair in listing.pairs())
    found = list(islice((pixels for pixels in every if not isinstance(pixels, InputError)), COMPARED))
    if not found:
        raise InputError(f"no image of {listing.name} can be read; give other images to compare on")
    one_size = [pixels for pixels in found if pixels.shape == found[0].shape]
    return guard.preprocessing.normalize(np.stack(one_size))


def _make_test_images(preprocessing: Preprocessing, count: int = 16) -> Tensor:
    """[count, C, H, W]: smooth random images, seeded, prepared as the network wants them.

    >>> from oodshape.images.decode.preprocessing import IMAGENET
    >>> _make_test_images(IMAGENET, 2).shape
    torch.Size([2, 3, 224, 224])
    """
    size = preprocessing.size
    if size is None:
        raise InputError("the preprocessing leaves images in their own size; give --images to compare on")
    chance = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, preprocessing.channels, 8, 8, generator=chance, dtype=torch.float32)
    smooth = torch.nn.functional.interpolate(coarse, size, mode="bilinear")
    pixels = (255 * smooth).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    return preprocessing.normalize(pixels.numpy())
