"""Methods as OpenOOD v1.5 runs them: its settings, what each is fitted on, and the grid that its search goes over.

Read from the source of OpenOOD (github.com/Jingkang50/OpenOOD at 3c35632, configs/postprocessors) into the records.
Methods that it does not have keep their general settings and are fitted on the training images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from oodshape.methods.detector import Method
from oodshape.methods.heads import Dice
from oodshape.methods.perturb.odin import Odin
from oodshape.methods.scores.class_means import KlMatching, She
from oodshape.methods.scores.decision_boundary import Fdbd, Gen, GradNorm, Nci
from oodshape.methods.scores.logits import Energy, MaxLogit, MaxSoftmax, TemperatureScaling
from oodshape.methods.scores.openood_variants import (
    EmpiricalMds,
    EmpiricalRmds,
    LengthFdbd,
    ShareKnn,
    ShareNnGuide,
    WholeVim,
)
from oodshape.methods.shapes.ash import AshB, Scale
from oodshape.methods.shapes.clipping import ReAct, VraP

HIGH = (0.85, 0.90, 0.95, 0.99)
SHARES = (0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95)


@dataclass(frozen=True)
class Setting:
    """A method as OpenOOD runs it, the set it is fitted on (train or val), and the methods that its search tries."""

    method: Method
    fit: str = "train"
    grid: tuple[Method, ...] = ()


def openood_settings(std: tuple[float, ...] = (1.0,)) -> dict[str, Setting]:
    """The settings by our ids; `std` is that of the preprocessing, which scales the step of a perturbation.

    >>> openood_settings()["ash-b"].method.shape, openood_settings()["react"].fit
    (AshB(p=0.9), 'val')
    """
    return {name: _setting(record, std) for name, record in RECORDS.items() if record.openood}


    return {
        "msp": Setting(Method(score=MaxSoftmax()), "msp", "MSP"),
        "mls": Setting(Method(score=MaxLogit()), "mls", "MLS"),
        "energy": Setting(Method(score=Energy()), "ebo", "EBO"),
        "temperature": Setting(Method(score=TemperatureScaling()), "temp_scaling", "TempScale", "val"),
        "gen": Setting(
            Method(score=Gen(gamma=0.1, top=100)),
            "gen",
            "GEN",
            grid=tuple(
                Method(score=Gen(gamma=gamma, top=top))
                for gamma, top in product((0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0), (10, 50, 100, 200, 500, 1000))
            ),
        ),
        "odin": Setting(
            odin(1000.0, 0.0014),
            "odin",
            "ODIN",
            grid=tuple(odin(*pair) for pair in product((1.0, 10.0, 100.0, 1000.0), (0.0014, 0.0028))),
        ),
        "react": Setting(
            Method(shape=ReAct(q=0.9)), "react", "ReAct", "val", tuple(Method(shape=ReAct(q=q)) for q in HIGH)
        ),
        "vra-p": Setting(
            Method(shape=VraP(low=0.10, high=0.90)),
            fit="val",
            grid=tuple(Method(shape=VraP(low=low, high=high)) for high, low in product(HIGH, (0.01, 0.05, 0.10, 0.15))),
            says="features below the low limit become 0, as in its paper; OpenOOD's vra lifts them to the limit",
        ),
        "ash-b": Setting(Method(shape=AshB(p=0.9)), "ash", "ASH", grid=tuple(Method(shape=AshB(p=p)) for p in SHARES)),
        "scale": Setting(
            Method(shape=Scale(p=0.85)), "scale", "SCALE", grid=tuple(Method(shape=Scale(p=p)) for p in SHARES)
        ),
        "dice": Setting(Method(head=Dice(p=0.9)), "dice", "DICE"),
        "knn": Setting(
            Method(score=ShareKnn(k=50)),
            "knn",
            "KNN",
            grid=tuple(Method(score=ShareKnn(k=k)) for k in (50, 100, 200, 500, 1000)),
        ),
        "vim": Setting(
            Method(score=WholeVim(dimensions=256)),
            "vim",
            "VIM",
            grid=tuple(Method(score=WholeVim(dimensions=dimensions)) for dimensions in (256, 1000)),
        ),
        "mds": Setting(Method(score=EmpiricalMds()), "mds", "MDS"),
        "rmds": Setting(Method(score=EmpiricalRmds()), "rmds", "RMDS"),
        "she": Setting(Method(score=She(classes="labels")), "she", "SHE"),
        "klm": Setting(Method(score=KlMatching()), "klm", "KLM", "val"),
        "gradnorm": Setting(Method(score=GradNorm()), "gradnorm", "GradNorm"),
        "nnguide": Setting(Method(score=ShareNnGuide(k=100, share=0.01)), "nnguide", "NNGuide"),
        "fdbd": Setting(Method(score=Fdbd()), "fdbd", "fDBD", grid=(Method(score=Fdbd()), Method(score=LengthFdbd()))),
        "nci": Setting(
            Method(score=Nci(alpha=0.0001)),
            "nci",
            "NCI",
            grid=tuple(Method(score=Nci(alpha=alpha)) for alpha in (0.0001, 0.001, 0.01, 0.1)),
        ),
    }
