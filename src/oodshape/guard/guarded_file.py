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
from oodshape.guard.verdict import Verdict
from oodshape.images.decode import Unreadable, open_image
from oodshape.images.formats import open_format
from oodshape.images.image_set import Image
from oodshape.images.limits import TURNS
from oodshape.images.preprocessing import Preprocessing
from oodshape.metrics.conformal import by_class

EXIF = {True: "turned upright", False: "ignored"}  # what becomes of an image's EXIF orientation, as files say it
ORIENTATION = 0x0112  # the EXIF field
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
        self._session = _session(self.path, threads)
        said = self._session.get_modelmeta().custom_metadata_map
        if "preprocessing" not in said or not {"method", "oodshape"} <= set(said):
            raise InputError(f"{path} does not say how images are prepared; {WAY_OUT} of a guard with a preprocessing")
        with reading(self.path, WAY_OUT):
            self.preprocessing = Preprocessing(**json.loads(said["preprocessing"]))
            self.names: tuple[str, ...] = tuple(json.loads(said.get("classes", "[]")))
            self.method, self.version = said["method"], said["oodshape"]
            self.exif = said.get("exif")  # None in files of 0.1.0, which do not say
            self.alpha = float(said["alpha"]) if "alpha" in said else None
            self.calibration: Floats = np.frombuffer(base64.b64decode(said.get("calibration", "")), "<f4")  # ascending
            groups = np.frombuffer(base64.b64decode(said["groups"]), "<i4") if "groups" in said else None
            (given,) = self._session.get_overridable_initializers()
            self.per_class = given.shape != [1]
            # files of 0.1.0 do not say it, and only the graph knows it
            self.threshold: Floats = np.frombuffer(base64.b64decode(said.get("threshold", "")), "<f4")
            self._own = {} if groups is None else by_class(self.calibration, groups, self.alpha or 0.0)
        # files of 0.1.0 with a threshold per class do not say which score is of which class
        self.has_p_values = len(self.calibration) > 0 and (groups is not None or not self.per_class)
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
        """A verdict for each prepared image, those of one size together; an error for one without a finite score."""
        sizes: dict[tuple[int, ...], list[int]] = {}
        found: dict[int, Verdict | InputError] = {}
        for row, each in enumerate(pixels):
            if self.size in (None, each.shape[:2]):
                sizes.setdefault(each.shape, []).append(row)
            else:
                (height, width), (high, wide) = each.shape[:2], self.size or (0, 0)
                found[row] = InputError(f"is {width} x {height} pixels, and this network takes {wide} x {high} alone")
        for rows in sizes.values():
            batch = self.preprocessing.normalized(np.stack([pixels[row] for row in rows]))
            answers = self._session.run(OUTPUTS, {"images": batch})
            found |= dict(zip(rows, map(self._verdict, *answers), strict=True))
        return [found[row] for row in range(len(pixels))]

    def _verdict(self, logits: Floats, score: np.float32, accepted: np.bool_) -> Verdict | InputError:
        if not math.isfinite(score):
            return InputError("the image has no score: its logits or features hold NaN or infinite values")
        place = int(logits.argmax())
        name = self.names[place] if self.names else place
        limit = float(self.threshold[place if self.per_class else 0]) if len(self.threshold) else math.nan
        return Verdict(name, place, float(score), self._p_value(score, place), bool(accepted), limit)

    def _p_value(self, score: np.float32, place: int) -> float:
        if not self.has_p_values:
            return math.nan
        held_out = self._own.get(place, self.calibration)
        return (1 + int(np.searchsorted(held_out, score, side="right"))) / (len(held_out) + 1)

    def _read(self, image: str | PathLike[str] | bytes) -> Image:
        file: Any = BytesIO(image) if isinstance(image, (bytes, bytearray)) else fspath(image)
        name = f"an image of {len(image)} bytes" if isinstance(image, (bytes, bytearray)) else str(file)
        if self.exif is None and _asks_to_be_turned(file):
            raise Unreadable(
                name, "asks to be turned (EXIF), and the ONNX file does not say whether it may: export it anew"
            )
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


def _session(path: Path, threads: int | None) -> Any:
    runtime = import_optional("onnxruntime", "serve", "a guarded file")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors; it warns of every input that has a default
    options.intra_op_num_threads = threads or 0
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other work needs the cores
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's own types, of no common base
        raise InputError(f"{path} is no ONNX file, or a damaged one ({one_line(error)}); {WAY_OUT}") from None


def _asks_to_be_turned(file: Any) -> bool:
    """Whether the EXIF orientation is another than upright; a file that is no image says so later."""
    try:
        with open_format(file) as image:
            return image.getexif().get(ORIENTATION) in range(2, 9)
    except Exception:  # a broken file can raise almost anything
        return False
