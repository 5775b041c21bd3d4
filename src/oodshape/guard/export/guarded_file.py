"""GuardedFile: run an exported guard with numpy, Pillow and onnxruntime only: images -> verdicts.

The metadata of the file that `export` writes has everything except the graph: the preprocessing, the names of the
classes, and the calibration scores behind the p-values.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from oodshape.core.errors import InputError, import_optional
from oodshape.core.files import one_line, reading
from oodshape.core.values import Ascending, AtLeast, Sizes, check_fields
from oodshape.guard.describe import EXIF, describe_guarantee
from oodshape.guard.export.edit_onnx import ADVICE, read_exported
from oodshape.guard.verdict import NO_SCORE, Verdict
from oodshape.images.decode.limits import TURNS
from oodshape.images.decode.preprocessing import Preprocessing, group_rows_by_size
from oodshape.images.sources.image_set import Image
from oodshape.images.sources.memory import as_image
from oodshape.metrics import conformal

OUTPUTS = ("logits", "score", "accepted")
CPU = "CPU"
PROVIDER_TOLERANCE = 1e-3  # of the largest value, between a provider and the CPU
Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ExportMetadata:
    """The metadata of an exported file."""

    version: str  # of oodshape
    method: str
    preprocessing: Preprocessing
    exif: Literal["turned upright", "ignored"]
    names: tuple[str, ...]  # of the classes; empty where they are not known
    classes: Annotated[int, AtLeast(1)]
    alpha: float
    calibration: Annotated[Floats, Sizes("N"), Ascending()]
    groups: Annotated[NDArray[np.int32], Sizes("N"), AtLeast(0)] | None  # predicted classes of the calibration images
    threshold: Annotated[Floats, Sizes("T")]  # one, or one per class
    held_out: bool = True  # whether the network was not trained on the calibration images

    def __post_init__(self) -> None:
        """Refuse values that `export` cannot have written."""
        check_fields(self)
        conformal.check_enough(len(self.calibration), self.alpha)
        if self.names and len(self.names) != self.classes:
            raise InputError(f"it has {len(self.names)} names of classes, its graph has {self.classes} classes")
        if self.groups is not None and self.groups.max() >= self.classes:
            raise InputError(f"a calibration image has the class {self.groups.max()}, there are {self.classes}")
        wanted = conformal.class_limits(self.calibration, self.alpha, self.groups, self.classes)
        if not np.array_equal(self.threshold, wanted):
            raise InputError("its threshold is not the one of its calibration scores and alpha")

    @classmethod
    def parse(cls, metadata: Mapping[str, str], classes: int) -> ExportMetadata:
        """Parse the metadata of an ONNX file; arrays are base64 of little-endian numbers."""
        return cls(
            version=metadata["oodshape"],
            method=metadata["method"],
            preprocessing=Preprocessing(**json.loads(metadata["preprocessing"])),
            exif=metadata["exif"],  # type: ignore[arg-type]  # checked
            names=_names(metadata.get("classes", "[]")),
            classes=classes,
            alpha=float(metadata["alpha"]),
            calibration=_array(metadata["calibration"], np.float32),
            groups=_array(metadata["groups"], np.int32) if "groups" in metadata else None,
            threshold=np.array(json.loads(metadata["threshold"]), np.float32),
            held_out=json.loads(metadata.get("held_out", "true")),
        )

    @property
    def guarantee(self) -> str:
        """What the threshold guarantees, in one line."""
        per_class = self.groups is not None
        return describe_guarantee(self.held_out, len(self.calibration), self.alpha, per_class=per_class)

    def facts(self) -> dict[str, Any]:
        """Return what the file says about itself, as JSON can hold it."""
        return {
            "method": self.method,
            "threshold": self.threshold.tolist() if len(self.threshold) > 1 else float(self.threshold[0]),
            "alpha": self.alpha,
            "calibration_images": len(self.calibration),
            "guarantee": self.guarantee,
            "preprocessing": dict(self.preprocessing._items()),
            "exif": self.exif,
            "classes": self.classes,
            "names": list(self.names),
            "version": self.version,
            "verified": True,  # its checksum
        }


def _array(text: str, dtype: Any) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), np.dtype(dtype).newbyteorder("<")).astype(dtype)


def _names(text: str) -> tuple[str, ...]:
    names = json.loads(text)
    if not isinstance(names, list):
        raise InputError("the classes of an exported file must be a list of names")
    return tuple(names)


class GuardedFile:
    """Images (paths, encoded bytes, PIL images, uint8 arrays) -> verdicts, by the ONNX file of a guard.

    Neither torch nor the network's code is needed. Several threads may call it at the same time. The checksum of the
    file and its metadata are verified, and a file with external data is refused.

    >>> GuardedFile("missing.onnx")
    Traceback (most recent call last):
    ...
    oodshape.core.errors.InputError: ...
    """

    def __init__(self, path: str | Path, *, threads: int | None = None, provider: str = CPU) -> None:
        """Load the file.

        Args:
            path: The file that `export` wrote.
            threads: Threads of a call; None: all cores. Threads that wait for work do not spin.
            provider: The execution provider of onnxruntime, such as CUDA or CPU. Scores on another one than the CPU
                are compared with those of the CPU here, because the threshold was calibrated on scores like these.

        Raises:
            InputError: The file is not one of `export`, or the provider is missing or gives other scores.
        """
        self.path, data = Path(path), read_exported(Path(path))
        self._session = open_session(data, threads, self.path, provider)
        with reading(self.path, ADVICE):
            metadata = self._session.get_modelmeta().custom_metadata_map
            if "preprocessing" not in metadata:
                raise InputError(f"{path} has no preprocessing; {ADVICE} of a guard with a preprocessing")
            outputs = {output.name: output for output in self._session.get_outputs()}
            self.classes = int(outputs["logits"].shape[1])  # how many classes the network has
            self.metadata = ExportMetadata.parse(metadata, self.classes)
            shape = {each.name: each.shape for each in self._session.get_inputs()}["images"]
            fixed = len(shape) == 4 and all(isinstance(side, int) for side in shape[2:])
            self.size: tuple[int, int] | None = (shape[2], shape[3]) if fixed else None  # (height, width); None: any
            replace(self.metadata.preprocessing, resize=self.size, crop=None)  # an error if no image can have the size
        self.preprocessing, self.exif = self.metadata.preprocessing, self.metadata.exif
        found = self.metadata
        self._class_scores = conformal.group_by_class(found.calibration, found.groups, found.alpha)
        if provider != CPU:
            self._compare_with_cpu(data, provider)

    def _compare_with_cpu(self, data: bytes, provider: str) -> None:
        """Refuse a provider that gives other scores than the CPU on made-up images."""
        size = self.preprocessing.size or self.size or (64, 64)
        pixels = np.random.default_rng(0).integers(0, 256, (4, *size, self.preprocessing.channels), np.uint8)
        found, session = self._run(pixels), self._session
        self._session = open_session(data, None, self.path)
        wanted, self._session = self._run(pixels), session
        for name, ours, theirs in zip(OUTPUTS, found, wanted, strict=False):
            apart, size_of = float(np.abs(ours - theirs).max()), float(np.abs(theirs).max())
            if not apart <= PROVIDER_TOLERANCE * size_of:
                raise InputError(
                    f"{provider} differs from the CPU by {apart:.2g} in the {name}, whose largest value is "
                    f"{size_of:.2g}; use --provider CPU, or calibrate the file on this provider"
                )

    def __call__(self, images: Any) -> Any:
        """Return the verdict on one image, or a list of verdicts on several images.

        Args:
            images: A path, encoded bytes, a PIL image or a uint8 array, or several of them.

        Returns:
            The verdict or verdicts.

        Raises:
            InputError: If an image cannot be read.
        """
        one = isinstance(images, (str, bytes, bytearray, PathLike, PIL.Image.Image, np.ndarray))
        pixels = [self.pixels(image) for image in ([images] if one else images)]
        found = self.verdicts(pixels)
        wrong = next((each for each in found if isinstance(each, InputError)), None)
        if wrong is not None:
            raise wrong
        return found[0] if one else found

    def pixels(self, image: str | PathLike[str] | bytes | Image) -> Pixels:
        """Decode, rotate (if the guard follows the EXIF orientation), resize and crop an image.

        Args:
            image: A path, encoded bytes, a PIL image or a uint8 array.

        Returns:
            uint8 [H, W, C].
        """
        with TURNS.taking():  # large ones one after the other
            return self.preprocessing.pixels(as_image(image, upright=self.exif == EXIF[True]))

    def prepared(self, images: Iterable[Any]) -> Floats:
        """Prepare images as the graph takes them.

        Args:
            images: Images of any kind that a call takes.

        Returns:
            float32 [N, C, H, W].
        """
        return self.preprocessing.normalize_array(np.stack([self.pixels(image) for image in images]))

    def verdicts(self, pixels: list[Pixels]) -> list[Verdict | InputError]:
        """Decide on prepared images; images of the same size share a batch.

        Args:
            pixels: What `pixels` returned for each image.

        Returns:
            A verdict for each image, or an error for an image of a size that the guard refuses.
        """
        found: dict[int, Verdict | InputError] = {}
        for rows in group_rows_by_size(pixels):
            height, width = pixels[rows[0]].shape[:2]
            if self.size in (None, (height, width)):
                logits, scores = self._run(np.stack([pixels[row] for row in rows]))
                found |= dict(zip(rows, map(self._verdict, logits, scores), strict=True))
            else:
                high, wide = self.size or (0, 0)
                error = InputError(f"is {width} x {height} pixels, and this network only accepts {wide} x {high}")
                found |= dict.fromkeys(rows, error)
        return [found[row] for row in range(len(pixels))]

    def _run(self, pixels: Pixels) -> tuple[Floats, Floats]:
        """[N, H, W, C] -> logits [N, C], scores [N]; the decision is made here, from the threshold in the metadata."""
        try:
            logits, scores = self._session.run(OUTPUTS[:2], {"images": self.preprocessing.normalize_array(pixels)})
        except Exception as error:  # the runtime's own types have no common base
            raise InputError(f"the graph of {self.path} fails ({one_line(error)}); export it again") from None
        for values, shape in ((logits, (len(pixels), self.classes)), (scores, (len(pixels),))):
            if values.dtype != np.float32 or values.shape != shape:
                found = f"{values.dtype}{list(values.shape)}, not float32{list(shape)}"
                raise InputError(f"the graph of {self.path} gives {found}; export it again")
        return logits, scores

    def _verdict(self, logits: Floats, score: np.float32) -> Verdict:
        if not (math.isfinite(score) and np.isfinite(logits).all()):
            return NO_SCORE
        metadata, index = self.metadata, int(logits.argmax())
        name = metadata.names[index] if metadata.names else index
        limit = metadata.threshold[index if len(metadata.threshold) > 1 else 0]
        held_out = self._class_scores.get(index, self._class_scores[conformal.POOL])
        p_value = (1 + int(np.searchsorted(held_out, score, side="right"))) / (len(held_out) + 1)
        return Verdict(name, index, float(score), p_value, bool(score >= limit), float(limit))


def open_session(model: bytes, threads: int | None = None, name: object = "the graph", provider: str = CPU) -> Any:
    """Open the bytes of an ONNX file in onnxruntime, on the CPU or another execution provider."""
    runtime = import_optional("onnxruntime", "serve", "an ONNX file")
    known = [each.removesuffix("ExecutionProvider") for each in runtime.get_available_providers()]
    if provider not in known:
        raise InputError(f"onnxruntime has no provider {provider!r} here; it has {', '.join(known)}")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # its messages hold names from the file, unescaped; errors are exceptions too
    options.intra_op_num_threads = threads or 0
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other work needs the cores
    # the runtime has another format, which it recognises by a few bytes, and which nothing here checks
    options.add_session_config_entry("session.load_model_format", "ONNX")
    chosen = [f"{each}ExecutionProvider" for each in dict.fromkeys((provider, CPU))]  # the CPU runs what it lacks
    try:
        # no second attempt, before which the runtime would print the error as it is
        session = runtime.InferenceSession(model, options, providers=chosen, enable_fallback=0)
    except Exception as error:  # the runtime's own types have no common base
        raise InputError(f"{name} is no ONNX file, or a damaged one ({one_line(error)}); {ADVICE}") from None
    if session.get_providers()[0] != chosen[0]:
        raise InputError(f"the provider {provider} of onnxruntime does not start on this machine; use --provider CPU")
    return session
