"""The networks of `auto_evidence.py`: every method on each of them, and what a setting of `auto` would fuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape import METHODS, auroc, fpr_at_tpr
from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.images import identity
from oodshape.methods.auto import CANDIDATES, MEMORISED, Auto, split
from oodshape.methods.fit_all import fit_all
from oodshape.methods.fusion import Component
from oodshape.methods.held_out_classes import HeldOutClasses
from oodshape.methods.registry import NEWER
from oodshape.studies.network import Network

SINGLE = [name for name, method in METHODS.items() if not method.wants_proxy]
PAPER = [name for name in SINGLE if name not in NEWER]
NEAR = ("leftout", "digits01", "digits89", "letters", "places", "places32", "tinyimagenet")  # the other sets are far
# what belongs together when a family is left out
FAMILIES = {
    "transformers": ("vit", "deit"),
    "mixers": ("mixer",),
    "ConvNeXt": ("convnext",),
    "EfficientNet, swish": ("efficientnet", "swish"),
    "other ConvNets": ("",),
}
# settings written down before any network was looked at
BEFORE_NAMES = [{"optfs": "optfs-e"}.get(name, name) for name in CANDIDATES]
SETS = {
    "with optfs-e": BEFORE_NAMES,
    "with optfs": list(CANDIDATES),
    "without gradnorm": [name for name in CANDIDATES if name != "gradnorm"],
}
# a + b: a by the scrambled proxy, b more by the classes left out; + gen: GEN whatever its worth, thought of later,
# after DenseNet and DeiT-tiny had been looked at
FUSES = ("3", "5", "7", "2 + 1", "4 + 3", "7 + gen")
WEIGHTS = (0.0, 1 / 3, 1 / 2, 2 / 3)  # of the classes left out
BEFORE = ("with optfs-e", "7", 0.0)
DEFAULT = ("with optfs", " + ".join([str(Auto().fuse), *Auto().always]), Auto().near)
SLACK = 0.5  # points of worst regret that a gain in the mean may cost
Setting = tuple[str, str, float]
Scores = NDArray[np.float32]


@dataclass
class Tried:
    """What a choice looks at: the scores of every method on the selection part, the panels, ID and OOD test sets."""

    scores: dict[str, dict[str, Scores]]
    components: dict[str, Component]
    near: dict[str, float]  # A_near of every method; empty where no class could be left out

    @classmethod
    def of(cls, fitting: Features, selection: Features, sets: dict[str, Features]) -> Tried:
        """Every method of the table with its general settings, fitted and applied."""
        scores, components = {}, {}
        methods = {name: METHODS[name] for name in SINGLE}
        for name, detector in fit_all(methods, fitting).items():
            given = {key: detector.score(features) for key, features in {"selection": selection, **sets}.items()}
            components[name] = Component.of_detector(name, detector, given["selection"])
            scores[name] = {key: values.numpy() for key, values in given.items()}
        try:
            proxy = HeldOutClasses.of(fitting, selection)
            proxy.collect(methods)
            near = {name: proxy.auroc(method) for name, method in methods.items()}
        except InputError as error:
            print(f"no class was left out: {error}\n")
            near = {}
        return cls(scores, components, near)

    def chosen(self, setting: Setting) -> list[str]:
        """The methods that a setting fuses."""
        candidates, fuse, weight = setting
        far = {n: auroc(self.scores[n]["selection"], self.scores[n]["proxy"]) for n in SETS[candidates]}
        near = {name: self.near[name] for name in far} if self.near else far
        worth = {name: (1 - weight) * far[name] + weight * near[name] for name in far}
        number, _, beside = fuse.partition(" + ")
        if not beside.isdigit():
            best = ranked(worth)[: int(number)]
            return best + [name for name in beside.split() if name not in best]
        first, more = int(number), int(beside)
        taken = ranked(far)[:first]
        return taken + [name for name in ranked(near) if name not in taken][:more]


@dataclass
class Case:
    """A network, as `auto` chose before (by training images) and as it does now.

    Where the network knows its training images memorised, a quarter of the ID images at hand that it was not trained
    on (`calibration`, else ID test images, which are then not tested) serve to choose by.
    """

    name: str
    family: str
    before: Tried
    now: Tried
    memorised: bool
    ood: list[str]

    @classmethod
    def of(cls, network: Network) -> Case:
        """Fit and apply every method."""
        inside, held = network.inside, network.held_out
        memorised = (network.train.accuracy or 0.0) >= MEMORISED
        if memorised and held is None:
            chosen = identity.held_out(inside.identities, 0.25, purpose="choice of methods")
            held, inside = inside[np.flatnonzero(chosen)], inside[np.flatnonzero(~chosen)]
        sets = {"proxy": network.chosen_by()[0], "ID": inside, **network.ood}
        before = Tried.of(*split(network.train, Auto().share), sets)
        now = Tried.of(network.train, held, sets) if memorised and held is not None else before
        return cls(network.name, family_of(network.name), before, now, memorised, list(network.ood))

    @property
    def scores(self) -> dict[str, dict[str, Scores]]:
        """The scores of every method."""
        return self.now.scores

    def aurocs(self, scores: dict[str, Scores]) -> dict[str, float]:
        """The AUROC against every OOD set, in percent."""
        return {name: 100 * auroc(scores["ID"], scores[name]) for name in self.ood}

    def fpr95(self, scores: dict[str, Scores]) -> float:
        """The mean over OOD sets, in percent."""
        return 100 * float(np.mean([fpr_at_tpr(scores["ID"], scores[name]) for name in self.ood]))

    def best(self, names: Iterable[str]) -> tuple[str, float]:
        """The best of some methods in hindsight."""
        values = {name: mean(self.aurocs(self.scores[name])) for name in names}
        name = max(values, key=lambda method: values[method])
        return name, values[name]

    def fused(self, setting: Setting) -> dict[str, Scores]:
        """The scores of `auto` with a setting on ID and OOD images."""
        tried = self.before if setting == BEFORE else self.now
        components = [tried.components[name] for name in tried.chosen(setting)]
        return {
            key: np.sum([m.log_p(torch.from_numpy(tried.scores[m.name][key])).numpy() for m in components], axis=0)
            for key in ("ID", *self.ood)
        }


def family_of(name: str) -> str:
    """The family of a network, by its name."""
    return next(family for family, parts in FAMILIES.items() if any(part in name.lower() for part in parts))


def ranked(values: dict[str, float]) -> list[str]:
    """The names, best first."""
    return sorted(values, key=lambda name: -values[name])


def mean(values: dict[str, float], which: Callable[[str], bool] = lambda name: True) -> float:
    """The mean over some OOD sets; NaN where there is none."""
    kept = [value for name, value in values.items() if which(name)]
    return float(np.mean(kept)) if kept else float("nan")


def is_near(name: str) -> bool:
    """Whether an OOD set is near."""
    return name in NEAR


def is_far(name: str) -> bool:
    """Whether it is not."""
    return not is_near(name)
