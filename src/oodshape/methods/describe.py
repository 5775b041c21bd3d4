"""What there is to say about each method: deviations from its authors' code, its paper's address, its recipe in words.

The methods' pages, `oodshape methods NAME` and the page on the paper are made from it. Differences are mean AUROC /
FPR95 over the OOD sets of three networks (DenseNet-101 on CIFAR-10, DeiT-tiny and EfficientNet-Lite0 on ImageNet).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from oodshape.core.values import Value
from oodshape.methods.detector import Method
from oodshape.methods.openood_settings import openood_settings
from oodshape.methods.registry import IMAGE_ROWS, ROWS, named

UNKNOWN = "not measured"


class Departure(NamedTuple):
    """One difference: of what, in which methods, in the authors' code and here, and what it changes."""

    what: str
    methods: tuple[str, ...]  # none: the protocol
    theirs: str
    here: str
    difference: str = UNKNOWN


SHAPED = ("optfs-v", "optfs-e", "optfs-msp", "optfs-mls", "optfs-e+dice", "optfs-e+react")

# first the paper's own code, which `authors-code` follows: methods and protocol
OWN_CODE = (
    Departure(
        "OptFS: the norm of theta",
        SHAPED,
        "1000",
        "√K, as the paper says",
        "OptFS (E): DeiT 78.8/72.3 here, 77.4/75.5 there; EfficientNet 94.1/25.6, 94.0/27.4; DenseNet 93.9/33.1, "
        "93.7/34.5; on one OOD set up to 2.8/6.0. OptFS (V) is the same",
    ),
    Departure(
        "VRA-P on CIFAR",
        ("vra-p",),
        "0.6 and 0.95 as feature values",
        "the 60 and 95 percentiles, as the paper says",
        "DenseNet 92.1/45.3 here, 94.2/31.9 there",
    ),
    Departure(
        '"Real", "Gaussian", "Uniform"',
        (),
        "scikit-learn's logistic regression",
        "the mean gap, Eq. 8",
        "Real: DeiT 71.2/85.8 here, 81.1/70.7 there; EfficientNet 93.6/28.8, 93.3/32.1; DenseNet 92.8/40.0, 94.1/33.6; "
        "the rest in `study objectives`",
    ),
    Departure('"Real" for CIFAR-100', (), "Places365", "CIFAR-10", "not measured: neither set is here in full"),
    Departure(
        "noise images",
        (),
        "truncated, `randint(0, 255)`",
        "rounded and clipped, 0 to 255",
        '400 images of each kind, DenseNet: at most 0.03/0.8 in "Gaussian" and "Uniform"',
    ),
    Departure(
        "tuning on surrogates",
        (),
        "up to 50,000 images, which it also fits on; for VRA-P a grid of values",
        "250 images held out, percentiles",
        "VRA-P: DenseNet 92.7/41.1 here, 93.8/35.3 there; DeiT 54.3/95.0, 26.3/99.2; ReAct: DeiT 78.8/64.6, 85.6/51.0; "
        "on these two networks the others choose the same",
    ),
)
# then the code of the methods' own authors
OTHERS = (
    Departure(
        "ASH",
        ("ash-p", "ash-b", "ash-s", "ash-rand"),
        "prunes the feature map before it is pooled",
        "prunes the pooled features, as the code of OptFS does",
    ),
    Departure(
        "BATS",
        ("bats",),
        "cuts feature maps at the limits that batch normalisation has stored",
        "cuts the pooled features at their own mean and standard deviation on the training images",
    ),
    Departure(
        "SHE",
        ("she",),
        "means of correctly classified images",
        "the same where labels are known and in the network's order, else of all predicted as the class",
        "DeiT 84.0/89.9 with labels, 85.1/82.3 without",
    ),
    Departure(
        "KNN and NNGuide: the bank",
        ("knn", "nnguide"),
        "the training images, or a share of them",
        "at most 5,000 of them, k = 10",
    ),
    Departure(
        "MDS++",
        ("mds++",),
        "class means by label, empirical covariance",
        "by label where known, OAS shrinkage",
        "DeiT 86.1/53.5 with labels, 84.1/65.0 without",
    ),
    Departure("MDS", ("mds",), "by label, empirical covariance", "by label where known, OAS shrinkage"),
    Departure(
        "RMDS++ and RMDS",
        ("rmds++", "rmds"),
        "by label, empirical covariances",
        "by label where known, one shrinkage for both by held-out likelihood",
        "RMDS++: EfficientNet 83.7/54.9, with two OAS shares 71.3/88.8",
    ),
    Departure(
        "ORA",
        ("ora",),
        "seen from the mean of the class means",
        "seen from the mean of all images",
        "not measured; equal for balanced classes",
    ),
    Departure(
        "NECO",
        ("neco",),
        "no logit on ResNets, a fixed number of dimensions",
        "times the max logit, 90 % of the variance; `Neco(logit=False)`",
    ),
    Departure(
        "CoP",
        ("cop",),
        "the residual alone, or with ReAct",
        "energy added after z-scoring both, 90 % of the variance",
    ),
    Departure(
        "temperature scaling",
        ("temperature",),
        "on validation images",
        "on training images unless some are held out",
    ),
    Departure(
        "AdaSCALE",
        ("adascale-a", "adascale-l"),
        "learns from 5,000 validation images, and chooses its shares on OOD validation images",
        "learns from at most 5,000 training images, and keeps the shares 0.60 and 0.85",
    ),
    Departure(
        "CADRef",
        ("cadref",),
        "errors over the energy and over its mean",
        "the same times the mean energy: the same order of images",
        "none",
    ),
)
DEPARTURES = (*OWN_CODE, *OTHERS)

# what the tests hold the figures or scores of a method to
OPTFS_CODE = "the code of OptFS's authors, with the paper's settings: AUROC within 0.05 points on three networks"
IN_CODE = ("msp", "mls", "energy", "odin", "dice", "react", "bfact", "ash-p", "ash-b", "ash-s", "vra-p", *SHAPED[:2])
PYTORCH_OOD = "pytorch-ood 0.4, on the same features"
IN_PYTORCH_OOD = ("she", "knn", "klm", "vim")
OPENOOD = "the formulas of OpenOOD v1.5, with `--settings openood`, on DenseNet-101"
STEPS = "the steps of OpenOOD's implementation, on a small network"
IN_STEPS = ("adascale-a", "adascale-l")
OWN = ("optfs-f", "optfs", "auto")  # there is no other code


def departures_of(method: str) -> tuple[Departure, ...]:
    """What is known to differ from the authors' code in a method."""
    return tuple(each for each in DEPARTURES if method in each.methods)


def compared_with(method: str) -> tuple[str, ...]:
    """The independent code that a method is held to by the tests; a formula computed by hand is not counted.

    >>> len(compared_with("klm")), compared_with("ras")
    (2, ())
    """
    setting = openood_settings().get(method)
    held = (
        (OPTFS_CODE, method in IN_CODE),
        (PYTORCH_OOD, method in IN_PYTORCH_OOD),
        (OPENOOD, setting is not None and bool(setting.theirs)),
        (STEPS, method in IN_STEPS),
    )
    return tuple(what for what, yes in held if yes)


def describe_departures(method: str) -> str:
    """How a method departs from its authors' code, in sentences."""
    said = [f"{each.what}: in the authors' code {each.theirs}; here {each.here}." for each in departures_of(method)]
    held = compared_with(method)
    if method in OWN:
        return "Our own: there is no other code."
    said = said or ["No departure is known."]
    if held:
        return " ".join([*said, f"Held by tests to {'; to '.join(held)}."])
    return " ".join([*said, "Not compared with code of others: held to the formula, computed by hand."])


def cited(reference: str) -> list[tuple[str, str]]:
    """The titles in a reference, which stand between asterisks, each with the address that follows it.

    >>> cited("Sun and Li, *DICE*, ECCV 2022, arXiv:2111.09805.")
    [('DICE', 'https://arxiv.org/abs/2111.09805')]
    """
    found = re.findall(r"\*([^*]+)\*[^*]*?(arXiv:|https://)([^\s;]+?)[.,]?(?:[\s;]|$)", reference)
    return [(title, f"{'https://arxiv.org/abs/' if kind == 'arXiv:' else kind}{rest}") for title, kind, rest in found]


def method_lines() -> list[tuple[str, ...]]:
    """(name, what it does, what it needs, when it fails, settings) of every method of the table."""
    return [(name, row.what, row.needs, row.fails, _settings(row.method)) for name, row in ROWS.items()]


def describe_method(name: str) -> list[tuple[str, str]]:
    """One method at length, in lines of (what is said, the text)."""
    rows = {**ROWS, **IMAGE_ROWS}
    named(name, {known: row.method for known, row in rows.items()})
    row = rows[name]
    return [
        ("method", name),
        ("does", row.what),
        ("needs", row.needs),
        ("fails", row.fails),
        ("recipe", short_recipe(row.method)),
        ("export", "ONNX and torch.export" if row.method.exportable else "cannot be exported"),
        ("beside its authors' code", describe_departures(name)),
        ("paper", row.paper.replace("*", "")),
    ]


def _settings(method: Value) -> str:
    """The pieces of a recipe that differ from the plain ones."""
    plain = type(method)()
    return ", ".join(repr(value) for name, value in method._items() if value != getattr(plain, name)) or "none"


def short_recipe(method: Method) -> str:
    """The recipe in code, without the slots that do nothing: no shaping, the network's own head, no step in the image.

    >>> short_recipe(ROWS["react"].method)
    'Method(shape=ReAct(q=0.9), score=Energy())'
    """
    plain = Method()
    said = {name: value for name, value in method._items() if name == "score" or value != getattr(plain, name)}
    return f"Method({', '.join(f'{name}={value!r}' for name, value in said.items())})"
