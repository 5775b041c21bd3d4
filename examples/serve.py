"""A service that says which images to trust: FastAPI and onnxruntime, without torch.

GUARDED=guarded.onnx uvicorn serve:create --factory --port 8000
curl -F image=@cat.jpg http://localhost:8000/

The file is the one that `oodshape export` writes: it holds the network, the detector, the threshold, and in its
metadata how images are prepared, the names of the classes and the scores behind the p-values.
"""

from __future__ import annotations

import base64
import io
import json
import os
from typing import Annotated, Any

import numpy as np
import onnxruntime
import PIL.Image
import PIL.ImageOps
from fastapi import FastAPI, File, HTTPException, UploadFile
from numpy.typing import NDArray

LARGEST = 20 * 2**20  # bytes of an uploaded file
ORIENTATION = 0x0112  # the EXIF field
FILTERS = {
    "bilinear": PIL.Image.Resampling.BILINEAR,
    "bicubic": PIL.Image.Resampling.BICUBIC,
    "nearest": PIL.Image.Resampling.NEAREST,
}


class Guarded:
    """The exported graph with what its metadata say."""

    def __init__(self, path: str) -> None:
        """Load the file."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns of every input that has a default
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        said = self.session.get_modelmeta().custom_metadata_map
        if "preprocessing" not in said:
            raise ValueError(f"{path} does not say how images are prepared: export it with its preprocessing")
        self.preprocessing = json.loads(said["preprocessing"])
        self.exif = said.get("exif")  # "turned upright", "ignored", or None in files that do not say
        self.classes = json.loads(said["classes"]) if "classes" in said else None
        self.method = said["method"]
        (threshold,) = self.session.get_overridable_initializers()
        by_class = threshold.shape != [1]  # then each class has calibration scores of its own
        scores = b"" if by_class else base64.b64decode(said.get("calibration", ""))
        self.calibration: NDArray[np.float32] = np.frombuffer(scores, "<f4")  # ascending

    def __call__(self, image: PIL.Image.Image) -> dict[str, Any]:
        """What the network says about an image, and whether to trust it."""
        pixels = prepared(oriented(image, self.exif), self.preprocessing)
        logits, score, accepted = self.session.run(["logits", "score", "accepted"], {"images": pixels[None]})
        place = int(logits[0].argmax())
        n = len(self.calibration)
        below = int(np.searchsorted(self.calibration, score[0], side="right"))
        return {
            "class": place if self.classes is None else self.classes[place],
            "score": float(score[0]),
            "p_value": (1 + below) / (n + 1) if n else None,
            "accepted": bool(accepted[0]),
        }


def oriented(image: PIL.Image.Image, exif: str | None) -> PIL.Image.Image:
    """The picture as the guard saw it when it was fitted: turned as its EXIF orientation says, or as it was held."""
    if exif is None and image.getexif().get(ORIENTATION) in range(2, 9):
        raise ValueError("it asks to be turned (EXIF), and the ONNX file does not say whether it may: export it anew")
    if exif == "turned upright":
        PIL.ImageOps.exif_transpose(image, in_place=True)
    return image


def prepared(image: PIL.Image.Image, how: dict[str, Any]) -> NDArray[np.float32]:
    """float32 [C, H, W]: resized, cropped and normalised, as in training."""
    picture = in_mode(in_mode(image, "RGB"), "L" if len(how["mean"]) == 1 else "RGB")
    if how["resize"] is not None:
        if isinstance(how["resize"], int):  # of the shorter side
            short = min(picture.size)
            size = tuple(int(how["resize"] * side / short) for side in picture.size)
        else:  # height and width, exactly
            size = tuple(reversed(how["resize"]))
        picture = picture if size == picture.size else picture.resize(size, FILTERS[how["interpolation"]])
    if how["crop"] is not None:
        side = how["crop"]
        missing = [max(side - length, 0) for length in picture.size]
        if any(missing):
            borders = *(m // 2 for m in missing), *((m + 1) // 2 for m in missing)
            picture = PIL.ImageOps.expand(picture, borders)
        left, top = (round((length - side) / 2) for length in picture.size)
        picture = picture.crop((left, top, left + side, top + side))
    pixels = np.asarray(picture, np.float32).reshape(picture.height, picture.width, -1).transpose(2, 0, 1)
    mean, std = (np.array(how[name], np.float32)[:, None, None] for name in ("mean", "std"))
    return np.ascontiguousarray((pixels / np.float32(255) - mean) / std)


def in_mode(image: PIL.Image.Image, mode: str) -> PIL.Image.Image:
    """The picture in colour or gray, 8 bits: 16 bits are scaled, alpha is dropped, as in training."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        image = PIL.Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no fixed range: save the image with 8 or 16 bits")
    elif image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    return image.convert(mode)


def create() -> FastAPI:
    """The service around the file named by GUARDED."""
    guarded = Guarded(os.environ.get("GUARDED", "guarded.onnx"))
    app = FastAPI(title="oodshape", description="Which images to trust.")

    @app.get("/")
    def about() -> dict[str, Any]:
        """What is served."""
        return {"method": guarded.method, "classes": guarded.classes, "calibration_images": len(guarded.calibration)}

    @app.post("/")
    def judge(image: Annotated[UploadFile, File()]) -> dict[str, Any]:
        """Class, score, p-value and accepted for one image."""
        content = image.file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise HTTPException(413, f"the file is larger than {LARGEST // 2**20} MiB")
        try:
            picture = PIL.Image.open(io.BytesIO(content))
            picture.load()
            return guarded(picture)
        except Exception as error:  # a broken file can raise almost anything
            raise HTTPException(400, f"this is no image that can be read: {error}") from None

    return app
