"""The table of methods: a name, a recipe. Contract tests and benchmarks go over every row."""

from __future__ import annotations

from oodshape.core.errors import InputError
from oodshape.methods.auto import Auto
from oodshape.methods.detector import Method
from oodshape.methods.heads import Dice, FrozenClass
from oodshape.methods.odin import AUTHORS_STD, Odin
from oodshape.methods.scores.boundaries import Fdbd, Gen, GradNorm, Nci
from oodshape.methods.scores.class_means import CadRef, CaRef, KlMatching, She
from oodshape.methods.scores.logits import Energy, MaxLogit, MaxSoftmax
from oodshape.methods.scores.mahalanobis import MdsPlus, RmdsPlus
from oodshape.methods.scores.neighbours import Knn, NnGuide
from oodshape.methods.scores.vim import Vim
from oodshape.methods.shapes.ash import AshB, AshP, AshRand, AshS
from oodshape.methods.shapes.clipping import BFAct, Product, ReAct, VraP
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.per_feature import Bats, Ras
from oodshape.methods.shapes.scaling import Lts, Scale

# what came after the paper, with general settings whatever the ID set
NEWER: dict[str, Method] = {
    "gen": Method(score=Gen(gamma=0.1, top=100)),
    "scale": Method(shape=Scale(p=0.85)),
    "lts": Method(head=Lts(share=0.05)),
    "ras": Method(shape=Ras()),
    "bats": Method(shape=Bats(width=1.0)),
    "gradnorm": Method(score=GradNorm()),
    "klm": Method(score=KlMatching()),
    "she": Method(score=She()),
    "fdbd": Method(score=Fdbd()),
    "nci": Method(score=Nci()),
    "vim": Method(score=Vim()),
    "mds++": Method(score=MdsPlus()),
    "rmds++": Method(score=RmdsPlus()),
    "knn": Method(score=Knn(k=10)),
    "caref": Method(score=CaRef()),
    "cadref": Method(score=CadRef()),
    "nnguide": Method(score=NnGuide(k=10)),
}


def _table(
    *,
    odin: Odin = Odin(),
    dice: float = 0.7,
    ash_p: float = 0.6,
    ash_b: float = 0.65,
    ash_s: float = 0.9,
    vra: VraP = VraP(low=0.6, high=0.95),
) -> dict[str, Method]:
    react, optfs = ReAct(q=0.9), OptFS(k=100)
    return {
        "msp": Method(score=MaxSoftmax()),
        "mls": Method(score=MaxLogit()),
        "energy": Method(score=Energy()),
        "odin": Method(perturb=odin, score=MaxSoftmax(temperature=1000.0)),
        "dice": Method(head=Dice(p=dice)),
        "react": Method(shape=react),
        "bfact": Method(shape=BFAct(q=0.95, order=2)),
        "ash-p": Method(shape=AshP(p=ash_p)),
        "ash-b": Method(shape=AshB(p=ash_b)),
        "ash-s": Method(shape=AshS(p=ash_s)),
        "ash-rand": Method(shape=AshRand(p=0.75)),
        "vra-p": Method(shape=vra),
        "optfs-v": Method(shape=optfs, head=FrozenClass(), score=MaxLogit()),
        "optfs-e": Method(shape=optfs, score=Energy()),
        "optfs-msp": Method(shape=optfs, score=MaxSoftmax()),
        "optfs-mls": Method(shape=optfs, score=MaxLogit()),
        "optfs-e+dice": Method(shape=optfs, head=Dice(p=dice)),
        "optfs-e+react": Method(shape=Product((react, optfs))),
        **NEWER,
        "auto": Method(score=Auto()),
    }


METHODS: dict[str, Method] = _table()

# the paper's table of hyperparameters; ASH-Rand's is the authors' code's
_PAPER = {
    "imagenet": _table(odin=Odin(eps=0.0, std=AUTHORS_STD), vra=VraP(low=0.5, high=1.0, absolute=True)),
    "cifar10": _table(odin=Odin(eps=0.004, std=AUTHORS_STD), dice=0.9, ash_p=0.9, ash_b=0.95, ash_s=0.95),
    "cifar100": _table(odin=Odin(eps=0.004, std=AUTHORS_STD), dice=0.9, ash_p=0.8, ash_b=0.85, ash_s=0.9),
}


def paper_methods(id_set: str) -> dict[str, Method]:
    """The methods with the paper's hyperparameters for `imagenet`, `cifar10` or `cifar100`.

    The methods since the paper follow with their general settings.

    >>> paper_methods("cifar10")["ash-s"].shape
    AshS(p=0.95)
    """
    if id_set not in _PAPER:
        raise InputError(f"the paper has no settings for {id_set!r}; choose one of {', '.join(_PAPER)}")
    return dict(_PAPER[id_set])
