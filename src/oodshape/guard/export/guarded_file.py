"""GuardedFile: an exported guard at work, with numpy, pillow and onnxruntime alone: images -> verdicts.

The file that `export` writes says in its metadata all that is needed beside the graph: how images are prepared, the
names of the classes, and the scores behind the p-values.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from io import BytesIO
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from oodshape.core.errors import InputError, import_optional
from oodshape.core.reading import one_line, reading
from oodshape.guard.verdict import NO_SCORE, Verdict
from oodshape.images.decode.limits import TURNS
from oodshape.images.decode.preprocessing import Preprocessing, rows_by_size
from oodshape.images.decode.read import Unreadable, open_image
from oodshape.images.sources.image_set import Image
from oodshape.metrics.conformal import POOL, by_class

EXIF = {True: "turned upright", False: "ignored"}  # what becomes of an image's EXIF orientation, as files say it
WAY_OUT = "give the file that `oodshape export` wrote"
OUTPUTS = ("logits", "score", "accepted")
Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]


class GuardedFile:
    """Images (paths, encoded bytes, PIL images, uint8 arrays) -> verdicts, by the ONNX file of a guard.

    guarded = GuardedFile("guarded.onnx")
    guarded("cat.jpg").accepted

    Neither torch nor the network's code is needed. Threads may call it at the same time.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        """Load the file; `threads` of one call, all cores without it. Threads that wait for work do not spin."""
        self.path = Path(path)
        self._session = open_session(self.path, threads)
        said = self._session.get_modelmeta().custom_metadata_map
        if "preprocessing" not in said or not {"method", "oodshape"} <= set(said):
            raise InputError(f"{path} does not say how images are prepared; {WAY_OUT} of a guard with a preprocessing")
        with reading(self.path, WAY_OUT):
            self.preprocessing = Preprocessing(**json.loads(said["preprocessing"]))
            self.names: tuple[str, ...] = tuple(json.loads(said.get("classes", "[]")))
            self.method, self.version = said["method"], said["oodshape"]
            self.exif = said["exif"]
            self.alpha = float(said["alpha"]) if "alpha" in said else None
            self.calibration: Floats = np.frombuffer(base64.b64decode(said.get("calibration", "")), "<f4")  # ascending
            groups = np.frombuffer(base64.b64decode(said["groups"]), "<i4") if "groups" in said else None
            (given,) = self._session.get_overridable_initializers()
            self.per_class = given.shape != [1]
            self.threshold: Floats = np.array(json.loads(said["threshold"]), np.float32)
            every = {POOL: self.calibration}
            self._scores = every if groups is None else by_class(self.calibration, groups, self.alpha or 0.0)
        self.has_p_values = len(self.calibration) > 0
        self.classes = self._classes()
        shape = next(given.shape for given in self._session.get_inputs() if given.name == "images")
        fixed = len(shape) == 4 and all(isinstance(side, int) for side in shape[2:])
        self.size: tuple[int, int] | None = (shape[2], shape[3]) if fixed else None  # (height, width); None: any

    def __call__(self, images: Any) -> Any:
        """The verdict on one image, or a list of verdicts; an image that cannot be read is an error."""
        one = isinstance(images, (str, bytes, bytearray, PathLike, PIL.Image.Image, np.ndarray))
        pixels = [self.pixels(image) for image in ([images] if one else images)]
        found = self.verdicts(pixels)
        wrong = next((each for each in found if isinstance(each, InputError)), None)
        if wrong is not None:
            raise wrong
        return found[0] if one else found

    def pixels(self, image: str | PathLike[str] | bytes | Image) -> Pixels:
        """uint8 [H, W, C]: the image decoded, turned as the guard wants it, resized and cropped."""
        if isinstance(image, (PIL.Image.Image, np.ndarray)):
            return self.preprocessing.pixels(image)
        with TURNS.taking():  # large ones one after the other
            return self.preprocessing.pixels(self._read(image))

    def prepared(self, images: Iterable[Any]) -> Floats:
        """float32 [N, C, H, W]: what the graph takes as `images`."""
        return self.preprocessing.normalized(np.stack([self.pixels(image) for image in images]))

    def verdicts(self, pixels: list[Pixels]) -> list[Verdict | InputError]:
        """A verdict for each prepared image, those of one size together; an error for one of a size that is refused."""
        found: dict[int, Verdict | InputError] = {}
        for rows in rows_by_size(pixels):
            height, width = pixels[rows[0]].shape[:2]
            if self.size in (None, (height, width)):
                batch = self.preprocessing.normalized(np.stack([pixels[row] for row in rows]))
                answers = self._session.run(OUTPUTS, {"images": batch})
                found |= dict(zip(rows, map(self._verdict, *answers), strict=True))
            else:
                high, wide = self.size or (0, 0)
                error = InputError(f"is {width} x {height} pixels, and this network only accepts {wide} x {high}")
                found |= dict.fromkeys(rows, error)
        return [found[row] for row in range(len(pixels))]

    def _verdict(self, logits: Floats, score: np.float32, accepted: np.bool_) -> Verdict:
        if not math.isfinite(score):
            return NO_SCORE
        place = int(logits.argmax())
        name = self.names[place] if self.names else place
        limit = float(self.threshold[place if self.per_class else 0])
        return Verdict(name, place, float(score), self._p_value(score, place), bool(accepted), limit)

    def _p_value(self, score: np.float32, place: int) -> float:
        if not self.has_p_values:
            return math.nan
        held_out = self._scores.get(place, self._scores[POOL])
        return (1 + int(np.searchsorted(held_out, score, side="right"))) / (len(held_out) + 1)

    def _read(self, image: str | PathLike[str] | bytes) -> Image:
        file: Any = BytesIO(image) if isinstance(image, (bytes, bytearray)) else fspath(image)
        name = f"an image of {len(image)} bytes" if isinstance(image, (bytes, bytearray)) else str(file)
        try:
            return open_image(file, upright=self.exif == EXIF[True])
        except Unreadable as error:
            raise Unreadable(name, error.reason) from None

    def _classes(self) -> int:
        """How many classes the network has."""
        if self.names:
            return len(self.names)
        shape = next(output.shape for output in self._session.get_outputs() if output.name == "logits")
        return int(shape[1])


def open_session(model: Path | bytes, threads: int | None = None) -> Any:
    """Open an ONNX file, or its bytes, in onnxruntime on the CPU."""
    runtime = import_optional("onnxruntime", "serve", "an ONNX file")
    if isinstance(model, Path) and not model.is_file():
        raise InputError(f"there is no file {model}")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors; it warns of every input that has a default
    options.intra_op_num_threads = threads or 0
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other work needs the cores
    given = model if isinstance(model, bytes) else str(model)
    try:
        return runtime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own types, of no common base
        name = "the graph" if isinstance(model, bytes) else model
        raise InputError(f"{name} is no ONNX file, or a damaged one ({one_line(error)}); {WAY_OUT}") from None
