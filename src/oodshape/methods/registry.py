"""The table of methods: a name, a recipe, its sentences. Contract tests, benchmarks and docs go over every row.

A new method is a row of `NEWER_ROWS`. `auto.py`, which chooses among the others, adds its own row as the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oodshape.core.errors import InputError, no_such
from oodshape.methods.detector import Method
from oodshape.methods.heads import Lts
from oodshape.methods.paper_settings import (
    BANK,
    CONFIDENT,
    FAR,
    HENDRYCKS,
    IMAGES,
    NOTHING,
    OWN,
    PER_CLASS,
    SIGNED,
    Row,
    paper_rows,
)
from oodshape.methods.perturb.adascale import AdaScale
from oodshape.methods.perturb.odin import AUTHORS_STD, Odin
from oodshape.methods.scores.class_means import CadRef, CaRef, KlMatching, She
from oodshape.methods.scores.decision_boundary import Fdbd, Gen, GradNorm, Nci, Ora
from oodshape.methods.scores.logits import MaxSoftmax, TemperatureScaling
from oodshape.methods.scores.mahalanobis import Mds, MdsPlus, Rmds, RmdsPlus
from oodshape.methods.scores.nearest_neighbours import Knn, NnGuide
from oodshape.methods.scores.subspace import Cop, Neco, Vim
from oodshape.methods.shapes.ash import Scale
from oodshape.methods.shapes.bats_ras import Bats, Ras
from oodshape.methods.shapes.clipping import VraP
from oodshape.methods.shapes.optfs import BySign, OptFS

CADREF = (
    "Ling et al., *CADRef: Robust Out-of-Distribution Detection via Class-Aware Decoupled Relative Feature "
    "Leveraging*, "
    "CVPR 2025, arXiv:2503.00325."
)

ADASCALE = "Regmi, *AdaSCALE: Adaptive Scaling for OOD Detection*, arXiv 2503.08023, 2025."
IMAGES_AND_GRADIENTS = (
    "ReLU features, the images themselves, and gradients: three passes and one backward for each image"
)

# methods that cannot work on features alone: a benchmark runs them where they are named
IMAGE_ROWS: dict[str, Row] = {
    "adascale-a": Row(
        Method(perturb=AdaScale()),
        "energy after scaling the features, more where a step in the image moves the largest of them less",
        IMAGES_AND_GRADIENTS,
        SIGNED,
        ADASCALE,
    ),
    "adascale-l": Row(
        Method(perturb=AdaScale(on_logits=True)),
        "energy after scaling the logits by the same idea",
        IMAGES_AND_GRADIENTS,
        SIGNED,
        ADASCALE,
    ),
}
IMAGE_METHODS: dict[str, Method] = {name: row.method for name, row in IMAGE_ROWS.items()}

# what came after the paper, with general settings whatever the ID set
NEWER_ROWS: dict[str, Row] = {
    "optfs-f": Row(
        Method(shape=OptFS(k=100, bound="features")),
        "energy of features shaped as well as those of the same energy can be",
        IMAGES,
        "after a ReLU, now and then below optfs-e",
        OWN,
    ),
    "optfs": Row(
        Method(shape=BySign(signed=OptFS(k=100, bound="features"), plain=OptFS(k=100))),
        "optfs-f where features may be negative, optfs-e after a ReLU",
        IMAGES,
        FAR,
        OWN,
    ),
    "gen": Row(
        Method(score=Gen(gamma=0.1, top=100)),
        "minus the generalised entropy of the top probabilities",
        NOTHING,
        CONFIDENT,
        "Liu et al., *GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection*, CVPR 2023, "
        "https://openaccess.thecvf.com/content/CVPR2023/html/Liu_GEN_Pushing_the_Limits_of_Softmax-Based_Out-of-Distribution_Detection_CVPR_2023_paper.html.",
    ),
    "scale": Row(
        Method(shape=Scale(p=0.85)),
        "energy after scaling by how concentrated the features are",
        "ReLU features",
        SIGNED,
        "Xu et al., *Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement*, ICLR "
        "2024, arXiv:2310.00227.",
    ),
    "lts": Row(
        Method(head=Lts(share=0.05)),
        "energy after scaling the logits by the same idea",
        "ReLU features",
        SIGNED,
        "Djurisic, Liu and Nikolic, *Logit Scaling for Out-of-Distribution Detection*, arXiv:2409.01175, 2024.",
    ),
    "ras": Row(
        Method(shape=Ras()),
        "energy of the mean sorted profile in the image's own order of features",
        IMAGES,
        "where sizes matter",
        "Guglielmo and Masana, *Ranked Activation Shift for Post-Hoc Out-of-Distribution Detection*, "
        "arXiv:2604.08572, 2026.",
    ),
    "bats": Row(
        Method(shape=Bats(width=1.0)),
        "energy after clipping each feature to its usual range",
        IMAGES,
        "on transformers",
        "Zhu et al., *Boosting Out-of-distribution Detection with Typical Features*, NeurIPS 2022, arXiv:2210.04200.",
    ),
    "gradnorm": Row(
        Method(score=GradNorm()),
        "length of the features times how far the probabilities are from uniform",
        NOTHING,
        "with many classes",
        "Huang et al., *On the Importance of Gradients for Detecting Distributional Shifts in the Wild*, NeurIPS "
        "2021, arXiv:2110.00218.",
    ),
    "klm": Row(
        Method(score=KlMatching()),
        "divergence from the nearest class's mean probabilities",
        "training images of every class",
        "with few of them",
        HENDRYCKS,
    ),
    "she": Row(
        Method(score=She(classes="auto")),
        "inner product with the predicted class's mean feature",
        "training images of every class",
        "with few of them",
        "Zhang et al., *Out-of-Distribution Detection Based on In-Distribution Data Patterns Memorization with Modern"
        " Hopfield Energy*, ICLR 2023, https://openreview.net/forum?id=KkazG4lgKL.",
    ),
    "fdbd": Row(
        Method(score=Fdbd()),
        "mean distance to the decision boundaries, over the distance to the mean feature",
        IMAGES,
        "where unknowns lie near the mean",
        "Liu and Qin, *Fast Decision Boundary based Out-of-Distribution Detector*, ICML 2024, arXiv:2312.11536.",
    ),
    "nci": Row(
        Method(score=Nci()),
        "how far the features point along the predicted class's weights",
        IMAGES,
        "before classes have collapsed",
        "Liu and Qin, *Detecting Out-of-Distribution Through the Lens of Neural Collapse*, CVPR 2025, "
        "arXiv:2311.01479.",
    ),
    "vim": Row(
        Method(score=Vim()),
        "energy minus what lies outside the principal subspace",
        "more training images than features",
        "with fewer",
        "Wang et al., *ViM: Out-Of-Distribution with Virtual-logit Matching*, CVPR 2022, arXiv:2203.10807.",
    ),
    "mds++": Row(
        Method(score=MdsPlus(classes="auto")),
        "Mahalanobis distance of normalised features to the nearest class",
        PER_CLASS,
        "with few images per class",
        "Mueller and Hein, *Mahalanobis++: Improving OOD Detection via Feature Normalization*, ICML 2025, "
        "arXiv:2505.18032.",
    ),
    "rmds++": Row(
        Method(score=RmdsPlus(classes="auto", shrinkage="likelihood")),
        "the same relative to one Gaussian for all; for near OOD",
        PER_CLASS,
        "with few images per class, on far OOD",
        "Ren et al., *A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection*, 2021, "
        "arXiv:2106.09022; Mueller and Hein,"
        " *Mahalanobis++: Improving OOD Detection via Feature Normalization*, ICML 2025, arXiv:2505.18032.",
    ),
    "knn": Row(
        Method(score=Knn(k=10)),
        "distance of normalised features to the k-th nearest in a bank",
        BANK,
        "with few images per class; large file",
        "Sun et al., *Out-of-Distribution Detection with Deep Nearest Neighbors*, ICML 2022, arXiv:2204.06507.",
    ),
    "caref": Row(
        Method(score=CaRef()),
        "relative distance to the predicted class's mean feature",
        PER_CLASS,
        "with few images per class",
        CADREF,
    ),
    "cadref": Row(
        Method(score=CadRef()),
        "the same, errors along the weights divided by the energy",
        PER_CLASS,
        "with few images per class",
        CADREF,
    ),
    "nnguide": Row(
        Method(score=NnGuide(k=10)),
        "energy times its nearest neighbours' similarity and energy",
        BANK,
        "where energy fails; large file",
        "Park et al., *Nearest Neighbor Guidance for Out-of-Distribution Detection*, ICCV 2023, arXiv:2309.14888.",
    ),
    "temperature": Row(
        Method(score=TemperatureScaling()),
        "the largest probability at the temperature that suits the labels best",
        "training images with labels; without them it is the softmax",
        CONFIDENT,
        "Guo et al., *On Calibration of Modern Neural Networks*, ICML 2017, arXiv:1706.04599.",
    ),
    "mds": Row(
        Method(score=Mds(classes="auto")),
        "Mahalanobis distance of the features to the nearest class",
        PER_CLASS,
        "with few images per class, and where lengths differ much: prefer mds++",
        "Lee et al., *A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks*, "
        "NeurIPS 2018, arXiv:1807.03888.",
    ),
    "rmds": Row(
        Method(score=Rmds(classes="auto", shrinkage="likelihood")),
        "the same relative to one Gaussian for all",
        PER_CLASS,
        "with few images per class, on far OOD",
        "Ren et al., *A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection*, 2021, arXiv:2106.09022.",
    ),
    "neco": Row(
        Method(score=Neco()),
        "the max logit times the share of the features in their principal subspace",
        "more training images than features",
        "with fewer",
        "Ben Ammar et al., *NECO: NEural Collapse Based Out-of-distribution Detection*, ICLR 2024, arXiv:2310.06823.",
    ),
    "cop": Row(
        Method(score=Cop()),
        "energy minus what lies outside the principal subspace of normalised features",
        "more training images than features",
        "with fewer",
        "Fang et al., *Kernel PCA for Out-of-Distribution Detection*, NeurIPS 2024, arXiv:2402.02949.",
    ),
    "ora": Row(
        Method(score=Ora()),
        "the largest angle to a decision boundary, seen from the mean feature",
        IMAGES,
        "on some transformers",
        "Demirel, Fumero and Locatello, *Out-of-Distribution Detection with Relative Angles*, NeurIPS 2025, "
        "arXiv:2410.04525.",
    ),
}

ROWS: dict[str, Row] = {**paper_rows(), **NEWER_ROWS}
METHODS: dict[str, Method] = {name: row.method for name, row in ROWS.items()}
NEWER: dict[str, Method] = {name: row.method for name, row in NEWER_ROWS.items()}

# the paper's table of hyperparameters; ASH-Rand's is the authors' code's
_SOFTMAX = MaxSoftmax()  # with its ties, as in the authors' code
_ODIN = Odin(eps=0.004, std=AUTHORS_STD)
_PAPER: dict[str, dict[str, Any]] = {
    "imagenet": {
        "softmax": _SOFTMAX,
        "odin": Odin(eps=0.0, std=AUTHORS_STD),
        "vra": VraP(low=0.5, high=1.0, absolute=True),
    },
    "cifar10": {"softmax": _SOFTMAX, "odin": _ODIN, "dice": 0.9, "ash_p": 0.9, "ash_b": 0.95, "ash_s": 0.95},
    "cifar100": {"softmax": _SOFTMAX, "odin": _ODIN, "dice": 0.9, "ash_p": 0.8, "ash_b": 0.85, "ash_s": 0.9},
}
# where the authors' code does otherwise: theta's norm, and on CIFAR the paper's percentiles taken for values
_CODE: dict[str, Any] = {"optfs": OptFS(k=100, norm=1000.0)}
_LIMITS = {"vra": VraP(low=0.6, high=0.95, absolute=True)}


def paper_methods(id_set: str) -> dict[str, Method]:
    """The methods with the paper's hyperparameters for `imagenet`, `cifar10` or `cifar100`.

    The methods since the paper follow with their general settings.

    >>> paper_methods("cifar10")["ash-s"].shape
    AshS(p=0.95)
    """
    return _with_rows(paper_rows(**_settings(id_set)))


def authors_methods(id_set: str) -> dict[str, Method]:
    """The methods as the paper's published code runs them, where that differs from the paper.

    theta has the norm 1000, and VRA-P's limits on CIFAR are values, not percentiles.

    >>> authors_methods("cifar10")["vra-p"].shape
    VraP(low=0.6, high=0.95, absolute=True)
    """
    limits = {} if id_set == "imagenet" else _LIMITS
    return _with_rows(paper_rows(**{**_settings(id_set), **_CODE, **limits}))


def _settings(id_set: str) -> dict[str, Any]:
    if id_set not in _PAPER:
        raise InputError(f"the paper has no settings for {id_set!r}; choose one of {', '.join(_PAPER)}")
    return _PAPER[id_set]


def _with_rows(rows: dict[str, Row]) -> dict[str, Method]:
    return {name: row.method for name, row in {**ROWS, **rows}.items()}


def named(name: str, table: Mapping[str, Method] = METHODS) -> Method:
    """The method of that name, or an error that names the nearest.

    >>> named("react").shape
    ReAct(q=0.9)
    >>> named("raect", {"react": named("react")})
    Traceback (most recent call last):
    oodshape.core.errors.InputError: no method is called 'raect'; did you mean react?
    """
    if name not in table:
        raise no_such("method", name, table, "`oodshape methods` lists them" if table is METHODS else "")
    return table[name]
