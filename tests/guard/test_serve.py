"""The serving example: started as a user starts it, asked over HTTP, and it never needs torch."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import PIL.Image
import pytest

from oodshape import METHODS, Classifier, Detector, Features, Preprocessing
from oodshape.guard.onnx import export_onnx
from oodshape.images.digits import digits_sets
from oodshape.networks.zoo import MODELS, build

for library in ("onnx", "onnxscript", "onnxruntime", "fastapi", "uvicorn", "python_multipart"):
    pytest.importorskip(library)
httpx = pytest.importorskip("httpx")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = [f"digit {i}" for i in range(8)]


@pytest.fixture(scope="module")
def serve() -> ModuleType:
    spec = spec_from_file_location("serve", EXAMPLES / "serve.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def detector() -> Detector:
    net, pictures = build("digits-convnet"), digits_sets()["train"]
    preprocessing = MODELS["digits-convnet"].native
    outputs = Classifier(net)(preprocessing.batch(pictures[i] for i in range(len(pictures))))
    z = outputs.features.numpy()
    fitted = METHODS["optfs-e"].fit(Features.from_arrays(z[::2], outputs.head))
    return fitted.calibrate(Features.from_arrays(z[1::2], outputs.head))


WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "oodshape"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import uvicorn
uvicorn.run("serve:create", factory=True, app_dir=sys.argv[1], port=int(sys.argv[2]), log_level="warning")
"""


@pytest.fixture(scope="module")
def server(detector: Detector, tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("serve")
    preprocessing, pictures = MODELS["digits-convnet"].native, digits_sets()["test"]
    images = preprocessing.batch(pictures[i] for i in range(8))
    export_onnx(
        build("digits-convnet"), detector, folder / "guarded.onnx", images, preprocessing=preprocessing, classes=NAMES
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-I", "-c", WITHOUT_TORCH, str(EXAMPLES), str(port)]
    environment = os.environ | {"GUARDED": str(folder / "guarded.onnx")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    address = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(300):
            try:
                httpx.get(address, timeout=5)
                break
            except httpx.TransportError:
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=20)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def test_it_answers_like_the_detector(server: str, detector: Detector) -> None:
    sets, preprocessing = digits_sets(), MODELS["digits-convnet"].native
    pictures = [np.asarray(sets[name][i]) for name in ("test", "photos") for i in range(6)]
    said = detector.decide(Classifier(build("digits-convnet")), preprocessing.batch(pictures))
    assert 0 < said.accepted.sum() < 12
    for i, picture in enumerate(pictures):
        answer = httpx.post(server, files={"image": png(picture)}).json()
        assert answer["class"] == NAMES[int(said.classes[i])]
        assert answer["score"] == pytest.approx(float(said.scores[i]), abs=1e-3)
        assert answer["accepted"] == bool(said.accepted[i])
        assert answer["p_value"] == pytest.approx(float(said.p_values[i]), abs=2 / len(detector.calibration))
    about = httpx.get(server).json()
    assert about["classes"] == NAMES
    assert about["calibration_images"] == len(detector.calibration)


def test_broken_files_are_refused(server: str) -> None:
    for content in (b"", b"no image", png(np.zeros((16, 16), np.uint8))[:40]):
        answer = httpx.post(server, files={"image": content or b" "})
        assert answer.status_code == 400
        assert "no image that can be read" in answer.json()["detail"]
    assert httpx.post(server, files={"image": b"0" * (20 * 2**20 + 1)}).status_code == 413
    assert httpx.post(server).status_code == 422


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "LA"])
def test_images_are_prepared_as_in_training(serve: ModuleType, channels: int, mode: str) -> None:
    from dataclasses import asdict

    rng = np.random.default_rng(0)
    for size, resize, crop in (
        ((50, 37), 20, 16),
        ((9, 30), 12, 20),
        ((9, 30), (12, 20), None),
        ((16, 16), None, None),
    ):
        picture = PIL.Image.fromarray(rng.integers(256, size=(*size[::-1], 3), dtype=np.uint8)).convert(mode)
        how = Preprocessing((0.4,) * channels, (0.3,) * channels, resize, crop, "bicubic")
        np.testing.assert_allclose(serve.prepared(picture.copy(), asdict(how)), how(picture).numpy(), atol=1e-6)
