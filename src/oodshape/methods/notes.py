"""What each method of the table does, what it needs, and when it fails: sentences that need no paper."""

from __future__ import annotations

from typing import NamedTuple


class Note(NamedTuple):
    """A method in words."""

    what: str
    needs: str
    fails: str


_NOTHING = "nothing: learns no data"
_IMAGES = "a few hundred training images"
_PER_CLASS = "several training images of every class"
_BANK = "a bank of training images, kept in the file"
_SIGNED = "on features that may be negative (transformers, MLPs, swish)"
_CONFIDENT = "where the network is confident on unknowns"
_FAR = "where shaping does not suit the network: compare on your own images"

NOTES: dict[str, Note] = {
    "msp": Note("the largest softmax probability; the baseline", _NOTHING, _CONFIDENT),
    "mls": Note("the largest logit", _NOTHING, "where logits have no common scale"),
    "energy": Note(
        "the log of the summed exponentials of the logits", _NOTHING, "on some transformers, below the softmax"
    ),
    "odin": Note(
        "the largest probability at temperature 1000, optionally after a small step in the image",
        "gradients, for the step",
        "with many classes, and where a second pass costs too much",
    ),
    "dice": Note("energy with only the head weights that matter on training data", _IMAGES, "on transformers and MLPs"),
    "react": Note("energy after cutting large features", _IMAGES, "where unknowns do not raise single features"),
    "bfact": Note(
        "energy after bending large features down smoothly", _IMAGES, "where unknowns do not raise single features"
    ),
    "ash-p": Note("energy after pruning the small features of each image", "ReLU features", _SIGNED),
    "ash-b": Note("the same, the kept features made equal", "ReLU features", _SIGNED),
    "ash-s": Note("the same, the kept features scaled up", "ReLU features", _SIGNED),
    "ash-rand": Note("the same, the kept features replaced by noise; a curiosity", "ReLU features", _SIGNED),
    "vra-p": Note("energy after removing small and cutting large features", "ReLU features", _SIGNED),
    "optfs-v": Note(
        "the max logit of optimally shaped features; looks at the predicted row of the head only", _IMAGES, _FAR
    ),
    "optfs-e": Note("energy of optimally shaped features", _IMAGES, _FAR),
    "optfs-msp": Note("the largest probability of optimally shaped features", _IMAGES, _FAR),
    "optfs-mls": Note("the largest logit of optimally shaped features", _IMAGES, _FAR),
    "optfs-e+dice": Note("optimal shaping on the features, DICE on the head", _IMAGES, "on transformers and MLPs"),
    "optfs-e+react": Note("optimal shaping times ReAct's cut", _IMAGES, _FAR),
    "gen": Note("minus the generalised entropy of the top probabilities", _NOTHING, _CONFIDENT),
    "scale": Note("energy after scaling by how concentrated the features are", "ReLU features", _SIGNED),
    "lts": Note("energy after scaling the logits by the same idea", "ReLU features", _SIGNED),
    "ras": Note(
        "energy of the mean sorted profile in the image's own order of features", _IMAGES, "where sizes matter"
    ),
    "bats": Note("energy after clipping each feature to its usual range", _IMAGES, "on transformers"),
    "gradnorm": Note(
        "length of the features times how far the probabilities are from uniform", _NOTHING, "with many classes"
    ),
    "klm": Note(
        "divergence from the nearest class's mean probabilities", "training images of every class", "with few of them"
    ),
    "she": Note(
        "inner product with the predicted class's mean feature", "training images of every class", "with few of them"
    ),
    "fdbd": Note(
        "mean distance to the decision boundaries, over the distance to the mean feature",
        _IMAGES,
        "where unknowns lie near the mean",
    ),
    "nci": Note(
        "how far the features point along the predicted class's weights", _IMAGES, "before classes have collapsed"
    ),
    "vim": Note(
        "energy minus what lies outside the principal subspace", "more training images than features", "with fewer"
    ),
    "mds++": Note(
        "Mahalanobis distance of normalised features to the nearest class", _PER_CLASS, "with few images per class"
    ),
    "rmds++": Note(
        "the same relative to one Gaussian for all; for near OOD", _PER_CLASS, "with few images per class, on far OOD"
    ),
    "knn": Note(
        "distance of normalised features to the k-th nearest in a bank", _BANK, "with few images per class; large file"
    ),
    "caref": Note("relative distance to the predicted class's mean feature", _PER_CLASS, "with few images per class"),
    "cadref": Note("the same, errors along the weights divided by the energy", _PER_CLASS, "with few images per class"),
    "nnguide": Note(
        "energy times its nearest neighbours' similarity and energy", _BANK, "where energy fails; large file"
    ),
    "auto": Note(
        "the methods that best tell ID images from scrambled ones, fused; no OOD data, any architecture",
        "80 training images, and 500 scrambled ones through the network",
        "where unknowns are much like known images: check on your own",
    ),
}
