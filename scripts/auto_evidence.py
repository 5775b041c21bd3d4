"""Compare `auto` with rivals on feature files of networks; print the tables of docs/auto-evidence.md.

    python scripts/auto_evidence.py --features FOLDERS...                     # networks of auto_networks.py, and others
    python scripts/auto_evidence.py --features FOLDERS... --scrambled FOLDER  # FOLDER/NETWORK/scrambled.npz
    python scripts/auto_evidence.py --digits                                  # and the three networks of the package
    python scripts/auto_evidence.py --features FOLDERS... --store evaluation  # into docs/measured/auto.json

`python scripts/docs/fill.py` copies stored tables into the pages.

A network without `calibration` images gives a part of its ID test images, which are then not tested. Noise and constant
images are not part of the means over all sets. AUROC and FPR95 in percent, ID positive; standard errors over networks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oodshape import METHODS, Features, auroc, fpr_at_tpr
from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.spec import Benchmark
from oodshape.core.files import replacing
from oodshape.guard.fit.split import split_held_out
from oodshape.images import identity
from oodshape.methods.auto import (
    CANDIDATES,
    CROSSED,
    MEMORISED,
    Auto,
    Trials,
    contrast_images,
    fuse_tried,
    split_selection,
    try_on_proxies,
)
from oodshape.methods.records import RECORDS
from oodshape.methods.training_set import Training
from oodshape.metrics.conformal import threshold
from oodshape.studies.load_networks import StudyNetwork, find_folders, load_benchmark, load_folder

STORED = Path(__file__).parents[1] / "docs" / "measured" / "auto.json"
COMMAND = "python scripts/auto_evidence.py --features FOLDERS --store NAME"
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
    now: Trials
    before: Trials
    scores: dict[str, dict[str, dict[str, Tensor]]]  # now or before -> set -> method -> scores
    ood: list[str]
    sets: dict[str, Features]
    fitting: Features
    selection: Features
    synthetic: Sequence[Features]
    held_out: bool  # whether calibration images select

    @classmethod
    def of(cls, network: StudyNetwork) -> Case:
        """Fit and apply every method."""
        inside, held = network.id_test, network.held_out
        if held is None:
            count = min(CALIBRATION, len(inside) // 3)
            chosen = np.isin(np.arange(len(inside)), identity.smallest(inside.identities, count, 0, "calibration"))
            held, inside = inside[np.flatnonzero(chosen)], inside[np.flatnonzero(~chosen)]
        selecting, deciding = split_held_out(network.train, held, ALPHA)
        noise = {name: features[:128] for name, features in network.surrogates.items()}
        ood = network.ood | ({} if "noise" in network.ood else noise)
        by_training = split_selection(network.train, Auto().share)
        memorised = (network.train.accuracy or 0.0) >= MEMORISED
        parts = {"now": by_training if selecting is None else (network.train, selecting), "before": by_training}
        if memorised and selecting is not None:
            parts["before"] = parts["now"]
        methods = {name: METHODS[name].unlabelled() for name in SINGLE}
        sets, tried, scores = {"ID": inside, "calibration": deciding, **ood}, {}, {}
        for when, (fitting, selection) in parts.items():
            if when == "before" and parts["before"] == parts["now"]:
                tried[when], scores[when] = tried["now"], scores["now"]
                continue
            tried[when] = try_on_proxies(methods, fitting, selection, network.proxy)
            scores[when] = {
                name: {method: detector.score(features) for method, detector in tried[when].detectors.items()}
                for name, features in sets.items()
            }
        last = *parts["now"], network.proxy[1:], selecting is not None
        return cls(network.name, tried["now"], tried["before"], scores, list(ood), sets, *last)

    def contrasted(self) -> Features | None:
        """The images to contrast with noise."""
        given = Training.of(self.fitting, held_out=self.selection)
        return contrast_images(given, Auto().share) if self.held_out else None

    def single(self, method: str) -> dict[str, Tensor]:
        """The scores of one method on every set."""
        return {name: each[method] for name, each in self.scores["now"].items()}

    def fused(self, names: Sequence[str], how: str = "filters", when: str = "now") -> dict[str, Tensor]:
        """The fused scores of some methods on every set: with "filters", with the "veto" alone, or Fisher's "sum"."""
        tried = self.now if when == "now" else self.before
        plain = fuse_tried(tried, names, self.fitting, self.selection, ())
        synthetic = self.synthetic if how == "filters" else ()
        filters = fuse_tried(tried, names, self.fitting, self.selection, synthetic, self.contrasted)
        found = {}
        for name, each in self.scores[when].items():
            logs = torch.stack([part.log_p(each[part.name]) for part in plain.components])
            for one in filters.filters:
                scores = replace(tried.detectors["mds++"], scorer=one).score(self.sets[name])
                logs = torch.cat([logs, one.log_p(scores)[None]])
            found[name] = logs.sum(dim=0) if how == "sum" else filters.fuse(logs)
        return found

    @property
    def filters(self) -> list[str]:
        """The filters of `auto`."""
        found = fuse_tried(self.now, now(self), self.fitting, self.selection, self.synthetic, self.contrasted)
        return [one.name for one in found.filters]


def ranked(tried: Trials, names: Sequence[str], *, crossed: bool = True) -> list[str]:
    """Candidates, best first: by the proxy sets that are not saturated, or by two of them with equal weights."""
    aurocs = {name: tried.aurocs[name] for name in names if name in tried.aurocs}
    if crossed:
        return [name for name, _ in replace(tried, aurocs=aurocs).ranking]
    used = [place for place, proxy in enumerate(tried.proxies) if proxy != CROSSED]
    return sorted(aurocs, key=lambda name: -float(np.mean([aurocs[name][place] for place in used])))


def with_always(names: list[str], count: int, always: Sequence[str]) -> list[str]:
    """The first `count`, and those that are always fused."""
    return [name for place, name in enumerate(names) if place < count or name in always]


def now(case: Case) -> list[str]:
    """What `auto` fuses."""
    recipe = Auto().adapt_to_signs(signed=Training.of(case.fitting).signed)
    return with_always(ranked(case.now, recipe.candidates or CANDIDATES), recipe.fuse, recipe.always)


def before(case: Case) -> list[str]:
    """What `auto` fused before crossed features."""
    return with_always(ranked(case.before, CANDIDATES, crossed=False), 7, ("gen",))


def every(case: Case) -> list[str]:
    """All candidates that do not refuse the features."""
    return [name for name in CANDIDATES if name in case.now.aurocs]


Recipe = Callable[[Case], dict[str, Tensor]]
RECIPES: dict[str, Recipe] = {
    "auto": lambda case: case.fused(now(case)),
    "auto without filters": lambda case: case.fused(now(case), "veto"),
    "before": lambda case: case.fused(before(case), "sum", "before"),
    "everything": lambda case: case.fused(every(case), "sum"),
    "fixed five": lambda case: case.fused(FIVE, "sum"),
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


def compare_recipes(cases: list[Case]) -> list[str]:
    """A table with a row per recipe, over all networks."""
    head = ["recipe", "AUROC", "FPR95", "near AUROC", "far AUROC", "noise", "constant"]
    head += ["noise accepted", "constant accepted", "worst regret: paper / all", "sets 2 below MSP", "gain over before"]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
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
        lines.append(f"| {name} | {' | '.join(cells)} | {with_error(gains)} |")
    return lines


def list_networks(cases: list[Case]) -> list[str]:
    """A table with a row per network."""
    names = ["auto", "before", "everything", "fixed five", "msp"]
    head = ["network", *names, "best of the paper", "best of all", "noise accepted", "constant accepted", "fused"]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 2)} --- |"]
    for case in cases:
        fused = {name: RECIPES[name](case) for name in names}
        cells = [f"{mean(aurocs(case, scores), 'near', 'far'):.2f}" for scores in fused.values()]
        for group in (PAPER, SINGLE):
            every = {n: mean(aurocs(case, case.single(n)), "near", "far") for n in group if n in case.now.detectors}
            best = max(every, key=lambda name: every[name])
            cells.append(f"{best} {every[best]:.2f}")
        cells += [f"{accepted(case, fused['auto'], kind):.1f}" for kind in ("noise", "constant")]
        lines.append(f"| {case.name} | {' | '.join(cells)} | {', '.join([*now(case), *case.filters])} |")
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="*", default=[], help="folders of feature files")
    parser.add_argument("--scrambled", type=Path, help="a folder with NETWORK/scrambled.npz")
    parser.add_argument("--digits", action="store_true", help="the networks of the package too")
    parser.add_argument("--store", help="the name under which docs/measured/auto.json keeps the tables")
    given = parser.parse_args()
    digits = load_benchmark(Benchmark.load("digits"), BenchOptions(progress=False, limit=NOISE)) if given.digits else ()
    cases = [Case.of(network) for network in digits]
    cases += [Case.of(load_folder(folder, given.scrambled)) for folder in find_folders(given.features)]
    tables = {"recipes": compare_recipes(cases), "networks": list_networks(cases)}
    print(f"{len(cases)} networks.", *("\n".join(lines) for lines in tables.values()), sep="\n\n")
    if given.store:
        stored = (
            json.loads(STORED.read_text(encoding="utf-8")) if STORED.is_file() else {"command": COMMAND, "tables": {}}
        )
        stored["tables"] |= {f"{given.store}-{name}": lines for name, lines in tables.items()}
        with replacing(STORED) as temporary:
            temporary.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
