"""The methods that pytorch-ood has too: our recipe, and its detector with the same settings."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oodshape import METHODS, Method
from oodshape.methods.scores.mahalanobis import Mds, Rmds
from oodshape.methods.shapes.ash import AshB, AshP, AshS

BANK = "ours looks at 5,000 training images, theirs at all"
SHRUNK = "ours shrinks the covariance, theirs takes it as it is"
OURS: dict[str, Method] = {
    **{name: METHODS[name] for name in ("msp", "mls", "energy", "gen", "dice", "react")},
    "ash-p": Method(shape=AshP(p=0.65)),
    "ash-b": Method(shape=AshB(p=0.65)),
    "ash-s": Method(shape=AshS(p=0.65)),
    **{name: METHODS[name] for name in ("scale", "lts", "gradnorm", "klm", "she", "fdbd", "nci", "vim")},
    "mds": Method(score=Mds()),
    "rmds": Method(score=Rmds()),
    **{name: METHODS[name] for name in ("knn", "nnguide")},
}
# rows that theirs scores at once, where 1,024 would need more memory than a machine has, or minutes
BATCH = {"dice": 64, "mds": 16, "rmds": 16, "gradnorm": 256, "knn": 256, "nnguide": 256}
NOTES = {"knn": BANK, "nnguide": BANK, "mds": SHRUNK, "rmds": SHRUNK}  # where the scores are not the same


class Rival(NamedTuple):
    """Their detector: fit(features, labels), where there is something to fit, and score(features), higher = ID."""

    fit: Callable[[Tensor, Tensor], object] | None
    score: Callable[[Tensor], Tensor]


def declare_operators() -> None:
    """Declare the operators that some torchvision builds lack: what only imports torchvision can then be imported."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            LIBRARIES.append(library)


LIBRARIES: list[torch.library.Library] = []


def theirs() -> Any:
    """The detectors of pytorch-ood, whose import needs torchvision."""
    declare_operators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pytorch_ood.detector as detectors
    return detectors


def rivals(ood: Any, head: nn.Linear) -> dict[str, Callable[[], Rival]]:
    """How each of their detectors is made for a head."""
    pooled, identity = (lambda maps: head(maps.flatten(1))), nn.Identity()

    def by_logits(detector: Any) -> Rival:
        return Rival(None, lambda z: -detector.predict_logits(head(z)))

    def by_maps(detector: Any) -> Rival:
        return Rival(None, lambda z: -detector.predict_feature_maps(z[:, :, None, None]))

    def by_features(detector: Any) -> Rival:
        return Rival(detector.fit_features, lambda z: -detector.predict_features(z))

    def react() -> Rival:
        detector = ood.ReAct(identity, head, percentile=0.9)
        return Rival(detector.fit_feature_maps, lambda z: -detector.predict_feature_maps(z))

    def matching() -> Rival:
        detector = ood.KLMatching(None)
        return Rival(lambda z, y: detector.fit_logits(head(z), y), lambda z: -detector.predict_logits(head(z)))

    def gradients() -> Rival:
        detector = ood.GradNorm(copy.deepcopy(head).requires_grad_(True), param_filter=lambda name: name == "weight")
        return Rival(None, lambda z: -detector.predict(z))

    def lts() -> Rival:
        detector = ood.LTS(None, head, p=0.05)
        return Rival(None, lambda z: -detector.predict_features(z))

    dimensions = 1000 if head.in_features >= 2048 else head.in_features // 2
    return {
        "msp": lambda: by_logits(ood.MaxSoftmax(None)),
        "mls": lambda: by_logits(ood.MaxLogit(None)),
        "energy": lambda: by_logits(ood.EnergyBased(None)),
        "gen": lambda: by_logits(ood.GEN(None, gamma=0.1, M=100)),
        "dice": lambda: by_features(ood.DICE(identity, head.weight, head.bias, p=0.7)),
        "react": react,
        **{
            name: lambda name=name: by_maps(ood.ASH(identity, pooled, variant=name, percentile=0.65))
            for name in ("ash-p", "ash-b", "ash-s")
        },
        "scale": lambda: by_maps(ood.SCALE(identity, pooled, percentile=0.85)),
        "lts": lts,
        "gradnorm": gradients,
        "klm": matching,
        "she": lambda: by_features(ood.SHE(None, head)),
        "fdbd": lambda: by_features(ood.fDBD(identity, head)),
        "nci": lambda: by_features(ood.NCI(identity, head, alpha=0.001)),
        "vim": lambda: by_features(ood.ViM(None, dimensions, head.weight, head.bias)),
        "mds": lambda: by_features(ood.Mahalanobis(None)),
        "rmds": lambda: by_features(ood.RMD(None)),
        "knn": lambda: by_features(ood.KNN(None, k=10)),
        "nnguide": lambda: by_features(ood.NNGuide(None, head, k=10)),
    }
