"""The paper's methods: those that it compares, and its own. Some have other settings for each ID set."""

from __future__ import annotations

from typing import NamedTuple

from oodshape.methods.base import Score
from oodshape.methods.detector import Method
from oodshape.methods.heads import Dice, FrozenClass
from oodshape.methods.perturb.odin import Odin
from oodshape.methods.scores.logits import Energy, LogSoftmax, MaxLogit, MaxSoftmax
from oodshape.methods.shapes.ash import AshB, AshP, AshRand, AshS
from oodshape.methods.shapes.clipping import BFAct, Product, ReAct, VraP
from oodshape.methods.shapes.optfs import OptFS


class Row(NamedTuple):
    """A recipe in words that need no paper. The lists, the page and the method's own page in the docs show them."""

    method: Method
    what: str = ""  # it does
    needs: str = ""  # in images and time, to a user
    fails: str = ""  # when
    paper: str = ""  # the reference, in Markdown


# said of more than one method
NOTHING = "nothing: learns no data"
IMAGES = "a few hundred training images"
PER_CLASS = "several training images of every class"
BANK = "a bank of training images, kept in the file"
SIGNED = "on features that may be negative (transformers, MLPs, swish)"
CONFIDENT = "where the network is confident on unknowns"
FAR = "where shaping does not suit the network: compare on your own images"
HENDRYCKS = (
    "Hendrycks et al., *Scaling Out-of-Distribution Detection for Real-World Settings*, ICML 2022, arXiv:1911.11132."
)
OWN = "Our own: the paper's problem with another bound."


SOFTMAX = LogSoftmax()  # where the paper's figures are not at stake
ASH = (
    "Djurisic et al., *Extremely Simple Activation Shaping for Out-of-Distribution Detection*, ICLR 2023, "
    "arXiv:2209.09858."
)
OPTFS = (
    "Zhao et al., *Towards Optimal Feature-Shaping Methods for Out-of-Distribution Detection*, ICLR 2024, "
    "arXiv:2402.00865"
)


def paper_rows(
    *,
    softmax: Score = SOFTMAX,
    odin: Odin = Odin(),
    dice: float = 0.7,
    ash_p: float = 0.6,
    ash_b: float = 0.65,
    ash_s: float = 0.9,
    vra: VraP = VraP(low=0.6, high=0.95),
    optfs: OptFS = OptFS(k=100),
) -> dict[str, Row]:
    """The rows, with the general settings where no others are given."""
    react = ReAct(q=0.9)
    return {
        "msp": Row(
            Method(score=softmax),
            "the largest softmax probability; the baseline",
            NOTHING,
            CONFIDENT,
            "Hendrycks and Gimpel, *A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural"
            " Networks*, ICLR 2017, arXiv:1610.02136.",
        ),
        "mls": Row(
            Method(score=MaxLogit()),
            "the largest logit",
            NOTHING,
            "where logits have no common scale",
            HENDRYCKS,
        ),
        "energy": Row(
            Method(score=Energy()),
            "the log of the summed exponentials of the logits",
            NOTHING,
            "on some transformers, below the softmax",
            "Liu et al., *Energy-based Out-of-distribution Detection*, NeurIPS 2020, arXiv:2010.03759.",
        ),
        "odin": Row(
            Method(perturb=odin, score=MaxSoftmax(temperature=1000.0)),
            "the largest probability at temperature 1000, optionally after a small step in the image",
            "gradients, for the step",
            "with many classes, and where a second pass costs too much",
            "Liang et al., *Enhancing the Reliability of Out-of-distribution Image Detection in Neural Networks*, "
            "ICLR 2018, arXiv:1706.02690.",
        ),
        "dice": Row(
            Method(head=Dice(p=dice)),
            "energy with only the head weights that matter on training data",
            IMAGES,
            "on transformers and MLPs",
            "Sun and Li, *DICE: Leveraging Sparsification for Out-of-Distribution Detection*, ECCV 2022, "
            "arXiv:2111.09805.",
        ),
        "react": Row(
            Method(shape=react),
            "energy after cutting large features",
            IMAGES,
            "where unknowns do not raise single features",
            "Sun et al., *ReAct: Out-of-distribution Detection With Rectified Activations*, NeurIPS 2021, "
            "arXiv:2111.12797.",
        ),
        "bfact": Row(
            Method(shape=BFAct(q=0.95, order=2)),
            "energy after bending large features down smoothly",
            IMAGES,
            "where unknowns do not raise single features",
            "Kong and Li, *BFAct: Out-of-Distribution Detection with Butterworth Filter Rectified Activations*, "
            "2023, https://doi.org/10.1007/978-981-99-0617-8_9.",
        ),
        "ash-p": Row(
            Method(shape=AshP(p=ash_p)),
            "energy after pruning the small features of each image",
            "ReLU features",
            SIGNED,
            ASH,
        ),
        "ash-b": Row(
            Method(shape=AshB(p=ash_b)),
            "the same, the kept features made equal",
            "ReLU features",
            SIGNED,
            ASH,
        ),
        "ash-s": Row(
            Method(shape=AshS(p=ash_s)),
            "the same, the kept features scaled up",
            "ReLU features",
            SIGNED,
            ASH,
        ),
        "ash-rand": Row(
            Method(shape=AshRand(p=0.75)),
            "the same, the kept features replaced by noise; a curiosity",
            "ReLU features",
            SIGNED,
            ASH,
        ),
        "vra-p": Row(
            Method(shape=vra),
            "energy after removing small and cutting large features",
            "ReLU features",
            SIGNED,
            "Xu et al., *VRA: Variational Rectified Activation for Out-of-Distribution Detection*, 2023, "
            "https://proceedings.neurips.cc/paper_files/paper/2023/hash/5c20c00504e0c049ec2370d0cceaf3c4-Abstract-Conference.html.",
        ),
        "optfs-v": Row(
            Method(shape=optfs, head=FrozenClass(), score=MaxLogit()),
            "the max logit of optimally shaped features; looks at the predicted row of the head only",
            IMAGES,
            FAR,
            f"{OPTFS}.",
        ),
        "optfs-e": Row(
            Method(shape=optfs, score=Energy()),
            "energy of optimally shaped features",
            IMAGES,
            FAR,
            f"{OPTFS}.",
        ),
        "optfs-msp": Row(
            Method(shape=optfs, score=softmax),
            "the largest probability of optimally shaped features",
            IMAGES,
            FAR,
            f"{OPTFS}.",
        ),
        "optfs-mls": Row(
            Method(shape=optfs, score=MaxLogit()),
            "the largest logit of optimally shaped features",
            IMAGES,
            FAR,
            f"{OPTFS}.",
        ),
        "optfs-e+dice": Row(
            Method(shape=optfs, head=Dice(p=dice)),
            "optimal shaping on the features, DICE on the head",
            IMAGES,
            "on transformers and MLPs",
            f"{OPTFS}; Sun and Li, *DICE*, ECCV 2022, arXiv:2111.09805.",
        ),
        "optfs-e+react": Row(
            Method(shape=Product((react, optfs))),
            "optimal shaping times ReAct's cut",
            IMAGES,
            FAR,
            f"{OPTFS}; Sun et al., *ReAct*, NeurIPS 2021, arXiv:2111.12797.",
        ),
    }
