"""Lists for people: what each method does, in a sentence that needs no paper; which data are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodshape.datasets.catalog import CATALOG, Status, status
from oodshape.errors import InputError
from oodshape.methods import METHODS
from oodshape.values import Value

SENTENCES = {
    "msp": "the largest softmax probability; the baseline",
    "mls": "the largest logit",
    "energy": "the log of the summed exponentials of the logits",
    "odin": "the largest probability at temperature 1000, optionally after a small step in the image",
    "dice": "energy with only the head weights that matter on training data",
    "react": "energy after cutting large features",
    "bfact": "energy after bending large features down smoothly",
    "ash-p": "energy after pruning the small features of each image; for ReLU features",
    "ash-b": "the same, the kept features made equal; for ReLU features",
    "ash-s": "the same, the kept features scaled up; for ReLU features",
    "ash-rand": "the same, the kept features replaced by noise; a curiosity",
    "vra-p": "energy after removing small and cutting large features; for ReLU features",
    "optfs-v": "the max logit of optimally shaped features; needs only the predicted row of the head",
    "optfs-e": "energy of optimally shaped features; a good first choice",
    "optfs-msp": "the largest probability of optimally shaped features",
    "optfs-mls": "the largest logit of optimally shaped features",
    "optfs-e+dice": "optimal shaping on the features, DICE on the head",
    "optfs-e+react": "optimal shaping times ReAct's cut",
    "gen": "minus the generalised entropy of the top probabilities; learns nothing, good on every architecture",
    "scale": "energy after scaling by how concentrated the features are; for ReLU features",
    "lts": "energy after scaling the logits by the same idea; best on ReLU networks, poor on transformers",
    "ras": "energy of the mean sorted profile in the image's own order of features; poor where sizes matter",
    "bats": "energy after clipping each feature to its usual range; poor on transformers",
    "gradnorm": "length of the features times how far the probabilities are from uniform; weak with many classes",
    "klm": "divergence from the nearest class's mean probabilities; needs images of every class",
    "she": "inner product with the predicted class's mean feature; needs images of every class",
    "fdbd": "mean distance to the decision boundaries, over the distance to the mean feature",
    "nci": "how far the features point along the predicted class's weights; needs their mean only",
    "vim": "energy minus what lies outside the principal subspace; needs more images than features",
    "mds++": "Mahalanobis distance of normalised features to the nearest class; needs several images per class",
    "rmds++": "the same relative to one Gaussian for all; for near OOD, poor with few images per class",
    "knn": "distance of normalised features to the k-th nearest in a bank; the file holds the bank",
    "caref": "relative distance to the predicted class's mean feature; needs several images per class",
    "cadref": "the same, errors along the weights divided by the energy; needs several images per class",
    "nnguide": "energy times its nearest neighbours' similarity and energy; the file holds a bank",
    "auto": "the seven methods that best tell ID images from scrambled ones, fused; no OOD data, any architecture",
}


def method_lines() -> list[tuple[str, str, str]]:
    """(name, sentence, settings) of every method of the table."""
    return [(name, SENTENCES[name], _settings(method)) for name, method in METHODS.items()]


def _settings(method: Value) -> str:
    """The pieces of a recipe that differ from the plain ones."""
    plain = type(method)()
    return ", ".join(repr(value) for name, value in method._items() if value != getattr(plain, name)) or "none"


def data_facts(root: Path | None) -> list[dict[str, Any]]:
    """Every set of the catalog: its state below a data root, its images, where to get it and where to put it."""
    if root is not None and not root.is_dir():
        raise InputError(f"there is no folder {root}; --data names the folder that holds the data sets")
    if root is None:
        rows = [Status(name, role, entry, "missing") for name, sets in CATALOG.items() for role, entry in sets]
    else:
        rows = status(root)
    return [
        {
            "set": f"{row.benchmark}/{row.entry.name}",
            "role": row.role,
            "state": row.state,
            "reason": row.reason,
            "images": row.images,
            "expected": row.entry.images,
            "get": row.entry.get,
            "put": str(root / row.entry.put) if root else row.entry.put,
        }
        for row in rows
    ]


def data_lines(facts: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """(set, role, state, images found of those expected, where to get it, where to put it)."""

    def number(count: int | None) -> str:
        return "?" if count is None else f"{count:,}"

    return [
        (
            fact["set"],
            fact["role"],
            f"damaged: {fact['reason']}" if fact["reason"] else fact["state"],
            f"{number(fact['images'] or 0)} of {number(fact['expected'])}",
            fact["get"],
            fact["put"],
        )
        for fact in facts
    ]
