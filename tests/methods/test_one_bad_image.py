"""One image whose features overflow: it is never accepted, and the other images are unaffected, in every graph."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from torch import Tensor, nn

from oodshape import METHODS, Detector, Features, Guard, GuardedFile, Preprocessing
from oodshape.guard.export.onnx import export_onnx
from oodshape.guard.service.settings import Settings
from oodshape.guard.service.worker import Scorer

WIDTH, CLASSES, ROW = 24, 6, 3
EXPORTABLE = [name for name, method in METHODS.items() if method.exportable]
BAD = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan, "1e38": 1e38, "3e38": 3e38}


class Net(nn.Module):
    """Its images are its features."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


NET = Net().eval()


def rows(n: int, seed: int) -> Tensor:
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed)).clamp_min(0) * 3


def fitted(name: str) -> Detector:
    train = Features.from_arrays(rows(300, 0), (NET.fc.weight, NET.fc.bias), labels=np.arange(300) % CLASSES)
    proxy = [Features.from_arrays(rows(300, 9).flip(1), train.head)] if name == "auto" else []
    return METHODS[name].fit(train, proxy=proxy).calibrate(Features.from_arrays(rows(200, 1), train.head), 0.05)


def check(judge: Callable[[Tensor], Any], detector: Detector, tolerance: float = 1e-4) -> None:
    good = rows(8, 2)
    wanted = detector.score(Features.from_arrays(good, (NET.fc.weight, NET.fc.bias)))
    others = torch.arange(8) != ROW
    for name, value in BAD.items():
        images = good.clone()
        images[ROW, 5] = value
        _, score, accepted = (torch.as_tensor(each) for each in judge(images))
        assert not accepted[ROW], name
        assert torch.isnan(score[ROW])
        torch.testing.assert_close(score[others], wanted[others], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", EXPORTABLE)
def test_every_exportable_method_in_torch(name: str) -> None:
    detector = fitted(name)
    check(detector.wrap(NET, "fc"), detector)


@pytest.mark.parametrize("name", ["optfs-e", "knn"])
def test_in_other_graphs(name: str, tmp_path: Path) -> None:
    import onnxruntime

    detector = fitted(name)
    guarded = detector.wrap(NET, "fc")
    guarded(rows(2, 0))
    check(torch.compile(guarded, backend="eager"), detector)
    check(torch.export.export(guarded, (rows(8, 0),)).module(), detector)
    export_onnx(NET, detector, tmp_path / "g.onnx", rows(4, 3), head="fc")
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx")
    check(lambda x: session.run(["logits", "score", "accepted"], {"images": x.numpy()}), detector, 1e-3)


class Overflows(nn.Module):
    """White images overflow."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.fc = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU()), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x) * torch.exp(((x.mean((1, 2, 3)) - 2) * 200).clamp_min(0.0))[:, None])


@pytest.mark.parametrize("method", ["optfs-e", "energy", "odin", "bfact"])
def test_in_score_live_and_an_exported_file(method: str, tmp_path: Path) -> None:
    pictures = list(np.random.default_rng(0).integers(0, 120, (603, 8, 8, 1), dtype=np.uint8))
    white, net = np.full((8, 8, 1), 255, np.uint8), Overflows().eval()
    guard = Guard.fit(
        net,
        images=pictures[:300],
        calibrate=pictures[300:600],
        method=METHODS[method],
        preprocessing=Preprocessing((0.25,), (0.2,)),
        progress=False,
    )
    given = [white, *pictures[600:]]
    wanted = [row.accepted for row in guard.score(pictures[600:], net, progress=False)]
    found = list(guard.score(given, net, progress=False))
    assert (found[0].accepted, bool(found[0].error)) == (None, True)
    assert [row.accepted for row in found[1:]] == wanted
    answers = [guard.attach(net)(given)]
    if METHODS[method].exportable:
        guard.export(tmp_path / "g.onnx", net, images=pictures[:8])
        answers.append(GuardedFile(tmp_path / "g.onnx")(given))
    for verdicts in answers:
        assert (verdicts[0].accepted, bool(verdicts[0].error)) == (False, True)
        assert [verdict.accepted for verdict in verdicts[1:]] == wanted
        assert not any(verdict.error for verdict in verdicts[1:])
    if METHODS[method].exportable:
        scorer = Scorer(Settings(str(tmp_path / "g.onnx")), str(tmp_path / "lock"))
        body = json.dumps({"images": [base64.b64encode(encoded(image)).decode() for image in given]})
        rows = scorer.score("application/json", bytearray(body.encode()), 0)["rows"]
        scorer.lock.close()
        assert (rows[0]["accepted"], "no score" in rows[0]["error"]) == (None, True)
        assert [row["accepted"] for row in rows[1:]] == wanted
        assert scorer.describe()["method"] == method  # its name, no Python expression


def encoded(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(image[..., 0]).save(file, "PNG")
    return file.getvalue()
