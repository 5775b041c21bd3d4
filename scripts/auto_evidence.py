"""Compare `auto` with rivals on feature files of networks; print the tables of docs/auto-evidence.md.

    python scripts/auto_evidence.py --features FOLDERS...                     # networks of auto_networks.py, and others
    python scripts/auto_evidence.py --features FOLDERS... --scrambled FOLDER  # FOLDER/NETWORK/scrambled.npz
    python scripts/auto_evidence.py --digits                                  # and the three networks of the package

A network without `calibration` images gives a part of its ID test images, which are then not tested. Noise and constant
images are not part of the means over all sets. AUROC and FPR95 in percent, ID positive; standard errors over networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oodshape import METHODS, auroc, fpr_at_tpr
from oodshape.benchmark.plan import Options
from oodshape.benchmark.spec import Benchmark
from oodshape.guard.fit.split import split_held_out
from oodshape.images import identity
from oodshape.methods.auto import CANDIDATES, CROSSED, MEMORISED, Auto, Tried, _guards, split, try_on_proxies
from oodshape.methods.fusion import Component, Fusion
from oodshape.methods.records import RECORDS
from oodshape.metrics.conformal import threshold
from oodshape.studies.load_networks import Network, find_folders, load_benchmark, load_folder

ALPHA = 0.05
CALIBRATION = 500  # ID test images for calibration, at most a third
NOISE = 2_000  # noise images of the networks of the package
SINGLE = [name for name, method in METHODS.items() if not method.wants_proxy and not method.perturbs]
PAPER = [name for name in SINGLE if RECORDS[name].block != "later"]
FIVE = ("fdbd", "gen", "react", "mds++", "nci")
KINDS = {
    "near": ("leftout", "digits89", "letters", "places", "places32", "tinyimagenet"),
    "noise": ("noise", "gaussian", "uniform"),
    "constant": ("constant",),
}  # the other sets are far


def kind_of(name: str) -> str:
    """near, far, noise or constant."""
    return next((kind for kind, names in KINDS.items() if name in names), "far")


@dataclass(frozen=True)
class Case:
    """A network: all methods, tried on the proxy sets as `auto` does now and as it did before, and their scores."""

    name: str
    now: Tried
    before: Tried
    scores: dict[str, dict[str, dict[str, Tensor]]]  # now or before -> set -> method -> scores
    ood: list[str]
    guards: dict[str, dict[str, Tensor]]  # name of a guard -> set -> log p-values

    @classmethod
    def of(cls, network: Network) -> Case:
        """Fit and apply every method."""
        inside, held = network.id_test, network.held_out
        if held is None:
            count = min(CALIBRATION, len(inside) // 3)
            chosen = np.isin(np.arange(len(inside)), identity.smallest(inside.identities, count, 0, "calibration"))
            held, inside = inside[np.flatnonzero(chosen)], inside[np.flatnonzero(~chosen)]
        selecting, deciding = split_held_out(network.train, held, ALPHA)
        noise = {name: features[:128] for name, features in network.surrogates.items()}
        ood = network.ood | ({} if "noise" in network.ood else noise)
        by_training = split(network.train, Auto().share)
        memorised = (network.train.accuracy or 0.0) >= MEMORISED
        parts = {"now": by_training if selecting is None else (network.train, selecting), "before": by_training}
        if memorised and selecting is not None:
            parts["before"] = parts["now"]
        methods = {name: METHODS[name].unlabelled() for name in SINGLE}
        tried, scores = {}, {}
        for when, (fitting, selection) in parts.items():
            if when == "before" and parts["before"] == parts["now"]:
                tried[when], scores[when] = tried["now"], scores["now"]
                continue
            tried[when] = try_on_proxies(methods, fitting, selection, network.proxy)
            scores[when] = {
                name: {method: detector.score(features) for method, detector in tried[when].detectors.items()}
                for name, features in {"ID": inside, "calibration": deciding, **ood}.items()
            }
        case = cls(network.name, tried["now"], tried["before"], scores, list(ood), {})
        guards = _guards(case.fusion(now(case)), tried["now"], parts["now"][1], network.proxy[1:])
        for guard in guards:
            detector = replace(tried["now"].detectors["mds++"], scorer=guard)
            case.guards[guard.name] = {
                name: guard.log_p(detector.score(features))
                for name, features in {"ID": inside, "calibration": deciding, **ood}.items()
            }
        return case

    def single(self, method: str) -> dict[str, Tensor]:
        """The scores of one method on every set."""
        return {name: each[method] for name, each in self.scores["now"].items()}

    def fusion(self, names: Sequence[str], when: str = "now") -> Fusion:
        """Some methods, fused."""
        tried = self.now if when == "now" else self.before
        parts = tuple(Component.of_detector(name, tried.detectors[name], tried.inside[name]) for name in names)
        return Fusion.of_components(parts, [tried.inside[name] for name in names])

    def fused(self, names: Sequence[str], *, veto: bool, when: str = "now", guards: bool = False) -> dict[str, Tensor]:
        """The fused scores of some methods on every set."""
        fusion, found = self.fusion(names, when), {}
        for name, each in self.scores[when].items():
            logs = torch.stack([part.log_p(each[part.name]) for part in fusion.components])
            found[name] = fusion.fuse(logs) if veto else logs.sum(dim=0)
            for guard in self.guards.values() if guards else ():
                found[name] = torch.minimum(found[name], guard[name])
        return found


def ranked(tried: Tried, names: Sequence[str], *, crossed: bool = True) -> list[str]:
    """Candidates, best first: by the proxy sets that are not saturated, or by two of them with equal weights."""
    aurocs = {name: tried.aurocs[name] for name in names if name in tried.aurocs}
    if crossed:
        return [name for name, _ in replace(tried, aurocs=aurocs).ranking]
    used = [place for place, proxy in enumerate(tried.proxies) if proxy != CROSSED]
    return sorted(aurocs, key=lambda name: -float(np.mean([aurocs[name][place] for place in used])))


def with_always(names: list[str], count: int, always: Sequence[str]) -> list[str]:
    """The first `count`, and those that are always fused."""
    return [name for place, name in enumerate(names) if place < count or name in always]


def now(case: Case, names: Sequence[str] = CANDIDATES) -> list[str]:
    """What `auto` fuses."""
    return with_always(ranked(case.now, names), Auto().fuse, Auto().always)


def before(case: Case) -> list[str]:
    """What `auto` fused before crossed features."""
    return with_always(ranked(case.before, CANDIDATES, crossed=False), 7, ("gen",))


def every(case: Case) -> list[str]:
    """All candidates that do not refuse the features."""
    return [name for name in CANDIDATES if name in case.now.aurocs]


Recipe = Callable[[Case], dict[str, Tensor]]
RECIPES: dict[str, Recipe] = {
    "auto": lambda case: case.fused(now(case), veto=True, guards=True),
    "auto without guards": lambda case: case.fused(now(case), veto=True),
    "auto without veto": lambda case: case.fused(now(case), veto=False),
    "auto + cop": lambda case: case.fused(now(case, [*CANDIDATES, "cop"]), veto=True, guards=True),
    "before": lambda case: case.fused(before(case), veto=False, when="before"),
    "before + veto": lambda case: case.fused(before(case), veto=True, when="before"),
    "everything": lambda case: case.fused(every(case), veto=False),
    "fixed five": lambda case: case.fused(FIVE, veto=False),
    "msp": lambda case: case.single("msp"),
    "energy": lambda case: case.single("energy"),
}


def aurocs(case: Case, scores: dict[str, Tensor]) -> dict[str, float]:
    """The AUROC on every OOD set, in percent."""
    return {name: 100 * auroc(scores["ID"], scores[name]) for name in case.ood}


def mean(values: dict[str, float], *kinds: str) -> float:
    """The mean over the OOD sets of some kinds; NaN without any."""
    kept = [value for name, value in values.items() if kind_of(name) in kinds]
    return float(np.mean(kept)) if kept else float("nan")


def accepted(case: Case, scores: dict[str, Tensor], kind: str) -> float:
    """The acceptance rate of the sets of a kind, in percent."""
    limit = threshold(np.sort(scores["calibration"].numpy()), ALPHA)
    rates = [100 * float((scores[name] >= limit).double().mean()) for name in case.ood if kind_of(name) == kind]
    return float(np.mean(rates)) if rates else float("nan")


def with_error(values: Sequence[float]) -> str:
    """Mean and standard error over networks."""
    array = np.array([value for value in values if value == value])
    if not len(array):
        return "-"
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else float("nan")
    return f"{array.mean():.2f} ({error:.2f})"


def regrets(case: Case, scores: dict[str, Tensor], names: Sequence[str]) -> float:
    """The mean AUROC of the best of some methods in hindsight, less that of the scores."""
    best = max(mean(aurocs(case, case.single(name)), "near", "far") for name in names if name in case.now.detectors)
    return best - mean(aurocs(case, scores), "near", "far")


def print_recipes(cases: list[Case]) -> None:
    """A row per recipe, over all networks."""
    head = ["recipe", "all", "FPR95", "near", "far", "noise", "constant", "noise accepted", "constant accepted"]
    head += ["worst regret: paper / all", "sets 2 below MSP", "gain over before"]
    print(f"\n| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 1)}")
    found = {name: [recipe(case) for case in cases] for name, recipe in RECIPES.items()}
    values = {name: [aurocs(c, s) for c, s in zip(cases, each, strict=True)] for name, each in found.items()}
    for name, each in found.items():
        cells = [with_error([mean(row, "near", "far") for row in values[name]])]
        fpr = [
            {ood: 100 * fpr_at_tpr(s["ID"], s[ood]) for ood in case.ood} for case, s in zip(cases, each, strict=True)
        ]
        cells.append(with_error([mean(row, "near", "far") for row in fpr]))
        cells += [
            with_error([mean(row, kind) for row in values[name]]) for kind in ("near", "far", "noise", "constant")
        ]
        for kind in ("noise", "constant"):
            rates = [accepted(case, s, kind) for case, s in zip(cases, each, strict=True)]
            cells.append(f"{np.nanmean(rates):.1f}, at most {np.nanmax(rates):.1f}")
        worst = [max(regrets(c, s, names) for c, s in zip(cases, each, strict=True)) for names in (PAPER, SINGLE)]
        pairs = [
            (row[ood], plain[ood])
            for row, plain in zip(values[name], values["msp"], strict=True)
            for ood in row
            if kind_of(ood) in ("near", "far")
        ]
        cells += [f"{worst[0]:.2f} / {worst[1]:.2f}", f"{sum(a < b - 2 for a, b in pairs)} of {len(pairs)}"]
        gains = [
            mean(row, "near", "far") - mean(old, "near", "far")
            for row, old in zip(values[name], values["before"], strict=True)
        ]
        print(f"| {name} | {' | '.join(cells)} | {with_error(gains)} |")


def print_networks(cases: list[Case]) -> None:
    """A row per network."""
    names = ["auto", "before", "everything", "fixed five", "msp"]
    head = ["network", *names, "best of the paper", "best of all", "noise accepted", "constant accepted", "fused"]
    print(f"\n| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 2)} --- |")
    for case in cases:
        fused = {name: RECIPES[name](case) for name in names}
        cells = [f"{mean(aurocs(case, scores), 'near', 'far'):.2f}" for scores in fused.values()]
        for group in (PAPER, SINGLE):
            every = {n: mean(aurocs(case, case.single(n)), "near", "far") for n in group if n in case.now.detectors}
            best = max(every, key=lambda name: every[name])
            cells.append(f"{best} {every[best]:.2f}")
        cells += [f"{accepted(case, fused['auto'], kind):.1f}" for kind in ("noise", "constant")]
        print(f"| {case.name} | {' | '.join(cells)} | {', '.join([*now(case), *case.guards])} |")


def print_leave_one_out(cases: list[Case]) -> None:
    """Whether CoP helps as a candidate, whichever network is left out."""
    pairs = [[mean(aurocs(c, RECIPES[name](c)), "near", "far") for name in ("auto + cop", "auto")] for c in cases]
    gains = np.array([new - old for new, old in pairs])
    without = [float(np.delete(gains, place).mean()) for place in range(len(gains))] if len(gains) > 1 else [gains[0]]
    print(f"\nCoP as a candidate: gain {with_error(list(gains))}; with one network left out {min(without):+.3f} to "
          f"{max(without):+.3f}.")  # fmt: skip


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="*", default=[], help="folders of feature files")
    parser.add_argument("--scrambled", type=Path, help="a folder with NETWORK/scrambled.npz")
    parser.add_argument("--digits", action="store_true", help="the networks of the package too")
    given = parser.parse_args()
    digits = load_benchmark(Benchmark.load("digits"), Options(progress=False, limit=NOISE)) if given.digits else ()
    cases = [Case.of(network) for network in digits]
    cases += [Case.of(load_folder(folder, given.scrambled)) for folder in find_folders(given.features)]
    print(f"{len(cases)} networks.")
    print_recipes(cases)
    print_networks(cases)
    print_leave_one_out(cases)


if __name__ == "__main__":
    main()
