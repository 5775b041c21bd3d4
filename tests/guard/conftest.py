"""Folders of digits with a guard of them, and the same network with a detector of every method that can be exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor, nn

from folders_of_digits import write_digits
from oodshape import METHODS, Classifier, Detector, Features, Guard
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.methods.fit_all import fit_all
from oodshape.networks.zoo import MODELS, build

MODEL = "zoo:digits-convnet"
EXPORTABLE = [name for name, method in METHODS.items() if method.exportable]
DIGITS = MODELS["digits-convnet"].native


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="session")
def guard(digits: Path) -> Guard:
    return Guard.fit(MODEL, images=digits / "train", calibrate=digits / "val", method="optfs-e", progress=False)


@pytest.fixture(scope="session")
def net() -> nn.Module:
    return build("digits-convnet")


@pytest.fixture(scope="session")
def images() -> Tensor:
    sets = load_digits_sets()
    parts = [sets["test"][i] for i in range(40)] + [sets["photos"][i] for i in range(24)]
    return DIGITS.batch(parts)


@pytest.fixture(scope="session")
def train(net: nn.Module) -> Features:
    pictures = load_digits_sets()["train"]
    outputs = Classifier(net)(DIGITS.batch(pictures[i] for i in range(0, len(pictures), 2)))
    return Features.from_arrays(outputs.features.numpy(), outputs.head)


@pytest.fixture(scope="session")
def detectors(train: Features) -> dict[str, Detector]:
    fitted = fit_all({name: METHODS[name] for name in EXPORTABLE}, train, [train[:100]])
    return {name: detector.calibrate(train) for name, detector in fitted.items()}
