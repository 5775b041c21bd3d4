"""What a service reads: exported ONNX files, and the bodies of requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch

from damage import tree_damaged
from given_files import Net
from kind import Files, Kind, equal
from oodshape import METHODS, GuardedFile, Preprocessing
from oodshape.core.errors import InputError
from oodshape.core.files import one_line
from oodshape.features.features import Features
from oodshape.guard.export.edit_onnx import HEX, START, add_checksum
from oodshape.guard.export.onnx import export_onnx
from oodshape.guard.service.body import Refused, parse_images
from oodshape.networks.classifier import Classifier
from own_files import written

PIXELS = np.random.default_rng(5).integers(0, 256, (4, 8, 8), np.uint8)


def exports() -> Kind:
    """Exported files: their verdicts on some images."""
    import onnx

    torch.manual_seed(0)
    net = Net().eval()
    images = Preprocessing((0.5,), (0.5,)).batch(list(PIXELS))
    outputs = Classifier(net)(torch.randn(60, 1, 8, 8))
    train = Features.from_arrays(outputs.features.numpy(), head=outputs.head)
    seeds = []
    for per_class in (False, True):
        detector = METHODS["energy"].fit(train).calibrate(train, 0.1, per_class=per_class)
        how = {"preprocessing": Preprocessing((0.5,), (0.5,)), "classes": ["a", "b"]}
        seeds.append(written("g.onnx", lambda path: export_onnx(net, detector, path, images, **how)))  # noqa: B023

    def read(folder: Path) -> bytes:
        guarded = GuardedFile(folder / "g.onnx", threads=1)
        return repr((guarded(list(PIXELS)), guarded.metadata.facts())).encode()

    def forge(files: Files, rng: Random) -> Files:
        """Metadata with one value changed and the right checksum."""
        model = onnx.load_from_string(files["g.onnx"][: -len(START) - HEX])
        said = tree_damaged({each.key: each.value for each in model.metadata_props}, rng)
        del model.metadata_props[:]
        for key, value in said.items() if isinstance(said, dict) else ():
            text = value if isinstance(value, str) else json.dumps(value)
            model.metadata_props.add(key=key, value=text.encode("utf-8", "replace").decode())
        return {"g.onnx": add_checksum(model.SerializeToString())}

    return Kind("onnx", tuple(seeds), read, equal, forge)


def bodies() -> Kind:
    """Bodies of requests, the type of their content in the first line: the images in them."""
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\nabc\r\n--b--\r\n'
    given = {"images": [base64.b64encode(b"abc").decode(), ""]}
    seeds = (
        {"body": b"application/json\n" + json.dumps(given).encode()},
        {"body": b"multipart/form-data; boundary=b\n" + form},
    )

    def read(folder: Path) -> bytes:
        kind, _, body = (folder / "body").read_bytes().partition(b"\n")
        try:
            return repr(parse_images(kind.decode("latin-1"), bytearray(body), 64)).encode()
        except Refused as refused:
            raise InputError(refused.detail) from None
        except Exception as error:  # as the service does: the standard library's parsers fail in many ways
            raise InputError(f"the body is malformed: {one_line(error)}") from None

    return Kind("body", seeds, read)


def every() -> dict[str, Callable[[], Kind]]:
    """How each kind is made, by its name."""
    return {"onnx": exports, "body": bodies}
