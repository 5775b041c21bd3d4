"""The evidence for the defaults of `auto`: settings chosen on all families of networks but one, tried on that one.

    python scripts/auto_evidence.py                                     # the three networks of the package
    python scripts/auto_evidence.py --features FOLDER --proxy FOLDER    # and others, in the layout of `oodshape study`
    python scripts/auto_evidence.py --features FOLDER --fresh FRESH     # FRESH: networks that decide nothing

A setting is a set of candidates, how many are fused, and how much the classes left out weigh beside scrambled images.
Methods are fitted on three quarters of the training images, as `auto` does. Regret is the mean AUROC over OOD sets of
the best method in hindsight less that of `auto`, in points; below 0, `auto` is ahead. Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import numpy as np
from auto_cases import BEFORE, DEFAULT, FUSES, PAPER, SETS, SINGLE, SLACK, WEIGHTS, Case, Setting, is_far, is_near, mean
from numpy.typing import NDArray

from oodshape.benchmark.plan import Options
from oodshape.benchmark.spec import Benchmark
from oodshape.studies.network import folders_in, from_benchmark, from_folder


def settings() -> list[Setting]:
    """All that are compared; where panels take turns, there is no weight."""
    return [s for s in product(SETS, FUSES, WEIGHTS) if not s[1][-1].isdigit() or "+" not in s[1] or s[2] == WEIGHTS[0]]


def interval(values: Iterable[float]) -> str:
    """The mean over networks and its 95 % interval, by resampling networks."""
    array = np.array([value for value in values if value == value])
    if len(array) == 0:
        return "-"
    drawn = np.random.default_rng(0).choice(array, (2000, len(array))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{array.mean():.2f} ({low:.2f} to {high:.2f})"


def said(setting: Setting) -> str:
    """A setting in words."""
    return f"{setting[0]}, {setting[1]}, {setting[2]:.2f}"


class Study:
    """All settings on all networks."""

    def __init__(self, cases: list[Case]) -> None:
        """Fuse them all."""
        self.cases = cases
        self.aurocs = {s: [case.aurocs(case.fused(s)) for case in cases] for s in settings()}
        self.paper = [case.best(PAPER) for case in cases]
        self.all = [case.best(SINGLE) for case in cases]

    def means(self, setting: Setting, which: Callable[[str], bool] = lambda name: True) -> NDArray[np.float64]:
        """The mean AUROC of every network."""
        return np.array([mean(values, which) for values in self.aurocs[setting]])

    def regret(self, setting: Setting) -> NDArray[np.float64]:
        """Against the best of the paper, per network."""
        return np.array([top for _, top in self.paper]) - self.means(setting)

    def choose(self, rows: NDArray[np.bool_]) -> Setting:
        """The largest mean gain among settings whose worst regret is hardly larger; of equal ones, more fused."""
        limit = self.regret(BEFORE)[rows].max() + SLACK
        safe = [s for s in settings() if self.regret(s)[rows].max() <= limit]
        return max(safe, key=lambda s: (round(float(self.means(s)[rows].mean()), 3), s[1]))


def print_settings(study: Study) -> None:
    """Every setting, over all networks."""
    print("\n| candidates | fused | weight of classes left out | AUROC | gain | near | far | worst regret |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for s in settings():
        gain = (study.means(s) - study.means(BEFORE)).mean()
        near, far = (np.nanmean(study.means(s, which)) for which in (is_near, is_far))
        mark = "**" if s == DEFAULT else ""
        row = f"{study.means(s).mean():.2f} | {gain:+.2f} | {near:.2f} | {far:.2f} | {study.regret(s).max():.2f} |"
        print(f"| {mark}{s[0]}{mark} | {s[1]} | {s[2]:.2f} | {row}")


def print_families(study: Study) -> None:
    """A family is left out, a setting is chosen on the others and tried on it."""
    print("\n| family left out | networks | chosen on the others | its gain | the default's gain | worst regret |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    families = np.array([case.family for case in study.cases])
    for family in dict.fromkeys(families.tolist()):
        out = families == family
        if out.all():
            continue
        chosen = study.choose(~out)
        gains = [(study.means(s) - study.means(BEFORE))[out].mean() for s in (chosen, DEFAULT)]
        worst = study.regret(chosen)[out].max()
        print(f"| {family} | {out.sum()} | {said(chosen)} | {gains[0]:+.2f} | {gains[1]:+.2f} | {worst:.2f} |")
    print(f"\nChosen on all: {said(study.choose(np.ones(len(families), bool)))}.")


def print_networks(study: Study) -> None:
    """`auto` beside the best in hindsight and fixed methods."""
    fixed = max(SINGLE, key=lambda name: np.mean([mean(c.aurocs(c.scores[name])) for c in study.cases]))
    columns = ["msp", "energy", "optfs", *([] if fixed in ("msp", "energy", "optfs") else [fixed])]
    head = ["network", "auto", "FPR95", "auto before", "best of the paper", "best of all", *columns]
    print(f"\nThe best fixed method over all networks is {fixed}; * known memorised.\n")
    print(f"| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 1)}")
    for place, case in enumerate(study.cases):
        cells = [
            case.name + (" *" if case.memorised else ""),
            f"{study.means(DEFAULT)[place]:.2f}",
            f"{case.fpr95(case.fused(DEFAULT)):.2f}",
        ]
        cells.append(f"{study.means(BEFORE)[place]:.2f}")
        cells += [f"{name} {value:.2f}" for name, value in (study.paper[place], study.all[place])]
        cells += [f"{mean(case.aurocs(case.scores[name])):.2f}" for name in columns]
        print(f"| {' | '.join(cells)} |")
    print("\n| over networks | all sets | near | far |\n| --- | --- | --- | --- |")
    rows = {"auto": study.aurocs[DEFAULT], "auto before": study.aurocs[BEFORE]}
    rows |= {name: [case.aurocs(case.scores[name]) for case in study.cases] for name in columns}
    for name, values in rows.items():
        parts = [interval(mean(v, which) for v in values) for which in (lambda n: True, is_near, is_far)]
        print(f"| {name} | {' | '.join(parts)} |")


def print_sets(study: Study) -> None:
    """Every OOD set by itself."""
    print("\n| network | OOD set | | auto | before | msp | energy | best of all |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for place, case in enumerate(study.cases):
        singles = {name: case.aurocs(case.scores[name]) for name in SINGLE}
        for name in case.ood:
            best = max(SINGLE, key=lambda method: singles[method][name])
            values = [study.aurocs[s][place][name] for s in (DEFAULT, BEFORE)]
            values += [singles["msp"][name], singles["energy"][name]]
            shown = " | ".join(f"{value:.2f}" for value in values)
            kind = "near" if is_near(name) else "far"
            print(f"| {case.name} | {name} | {kind} | {shown} | {best} {singles[best][name]:.2f} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="*", default=[], help="folders of feature files")
    parser.add_argument("--fresh", type=Path, nargs="*", default=[], help="the same, for networks that decide nothing")
    parser.add_argument("--proxy", type=Path, help="a folder with NETWORK/scrambled.npz")
    given = parser.parse_args()
    networks = list(from_benchmark(Benchmark.load("digits"), Options(progress=False)))
    networks += [from_folder(folder, given.proxy) for folder in folders_in(given.features)]
    study = Study([Case.of(network) for network in networks])
    print(f"Settings, on {len(networks)} networks; gain is against the default before, {said(BEFORE)}.")
    print_settings(study)
    print_families(study)
    print_networks(study)
    print_sets(study)
    if given.fresh:
        fresh = Study([Case.of(from_folder(folder, given.proxy)) for folder in folders_in(given.fresh)])
        print("\nNetworks that decided nothing.")
        print_networks(fresh)
        print_sets(fresh)


if __name__ == "__main__":
    main()
