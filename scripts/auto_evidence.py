"""The evidence for the defaults of `auto`: settings chosen on all networks but one, tried on that one.

    python scripts/auto_evidence.py                                   # the three networks of the package
    python scripts/auto_evidence.py --features FOLDER --panel FOLDER  # and others, in the layout of `oodshape study`

A setting is a set of candidates, how many are fused, and the measure that ranks them. Regret is the mean AUROC over
OOD sets of the network's best paper method in hindsight less that of `auto`, in points; below 0, `auto` is ahead. The
methods are fitted on three quarters of the training images, as `auto` does. Prints Markdown.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oodshape import METHODS, auroc, fpr_at_tpr
from oodshape.benchmark.prepared import Options
from oodshape.benchmark.spec import Benchmark
from oodshape.methods.auto import CANDIDATES, Auto, Member, split
from oodshape.methods.detector import fit_all
from oodshape.methods.table import NEWER
from oodshape.studies.network import Network, folders_in, from_benchmark, from_folder

SINGLE = [name for name, method in METHODS.items() if not method.wants_panel]
PAPER = [name for name in SINGLE if name not in NEWER]
SETS = {"paper": PAPER, "one per idea": list(CANDIDATES), "all": SINGLE}
FUSES = (1, 3, 5, 7, 9)
MEASURES = {"AUROC": auroc, "FPR95": lambda inside, outside: -fpr_at_tpr(inside, outside)}
DEFAULT = ("one per idea", Auto().fuse, "AUROC")
Setting = tuple[str, int, str]
Scores = NDArray[np.float32]


@dataclass
class Case:
    """A network: the scores of every method on its selection part, panel, ID and OOD test sets."""

    name: str
    scores: dict[str, dict[str, Scores]]
    members: dict[str, Member]
    ood: list[str]

    @classmethod
    def of(cls, network: Network) -> Case:
        """Every method of the table with its general settings, fitted and applied."""
        fitting, selection = split(network.train, Auto().share)
        sets = {"selection": selection, "panel": network.chosen_by()[0], "ID": network.inside, **network.ood}
        scores, members = {}, {}
        for name, detector in fit_all({name: METHODS[name] for name in SINGLE}, fitting).items():
            given = {key: detector.score(features) for key, features in sets.items()}
            members[name] = Member.of_detector(name, detector, given["selection"])
            scores[name] = {key: values.numpy() for key, values in given.items()}
        return cls(network.name, scores, members, list(network.ood))

    def auroc(self, scores: dict[str, Scores]) -> float:
        """The mean over OOD sets, in percent."""
        return 100 * float(np.mean([auroc(scores["ID"], scores[name]) for name in self.ood]))

    def best(self) -> tuple[str, float]:
        """The best paper method in hindsight."""
        values = {name: self.auroc(self.scores[name]) for name in PAPER}
        name = max(values, key=lambda method: values[method])
        return name, values[name]

    def fused(self, setting: Setting) -> float:
        """The mean AUROC of `auto` with a setting."""
        import torch

        candidates, fuse, measure = setting
        worth = {
            name: MEASURES[measure](self.scores[name]["selection"], self.scores[name]["panel"])
            for name in SETS[candidates]
        }
        chosen = sorted(worth, key=lambda name: -worth[name])[:fuse]
        if fuse == 1:
            return self.auroc(self.scores[chosen[0]])
        total = {
            key: np.sum(
                [self.members[name].log_p(torch.from_numpy(self.scores[name][key])).numpy() for name in chosen], axis=0
            )
            for key in ("ID", *self.ood)
        }
        return self.auroc(total)


def main() -> None:
    """Print the table of settings and the table of networks left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="*", default=[], help="folders of feature files")
    parser.add_argument("--panel", type=Path, help="a folder with NETWORK/scrambled.npz")
    arguments = parser.parse_args()
    networks = list(from_benchmark(Benchmark.load("digits"), Options(progress=False), surrogates=400))
    networks += [from_folder(folder, arguments.panel) for folder in folders_in(arguments.features)]
    cases = [Case.of(network) for network in networks]
    best = [case.best() for case in cases]
    settings: list[Setting] = list(product(SETS, FUSES, MEASURES))
    regrets = {
        setting: np.array([top - case.fused(setting) for case, (_, top) in zip(cases, best, strict=True)])
        for setting in settings
    }
    print(f"Regret over {len(cases)} networks, in points of AUROC.\n")
    print("| candidates | fused | ranked by | worst | mean |\n| --- | ---: | --- | ---: | ---: |")
    for setting in settings:
        mark = "**" if setting == DEFAULT else ""
        values = regrets[setting]
        print(f"| {mark}{setting[0]}{mark} | {setting[1]} | {setting[2]} | {values.max():.2f} | {values.mean():.2f} |")
    print("\nLeave one network out: the setting with the smallest worst regret on the others, on the one left out.\n")
    print("| network | best of the paper | AUROC | chosen on the others | regret | regret of the default |")
    print("| --- | --- | ---: | --- | ---: | ---: |")
    for place, (case, (name, top)) in enumerate(zip(cases, best, strict=True)):
        others = np.arange(len(cases)) != place
        chosen = min(settings, key=lambda setting: (regrets[setting][others].max(), regrets[setting][others].mean()))
        said = f"{chosen[0]}, {chosen[1]}, {chosen[2]}"
        row = f"{regrets[chosen][place]:.2f} | {regrets[DEFAULT][place]:.2f}"
        print(f"| {case.name} | {name} | {top:.2f} | {said} | {row} |")


if __name__ == "__main__":
    main()
