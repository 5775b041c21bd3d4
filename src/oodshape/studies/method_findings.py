"""The one sentence that a study shows, from its tidy rows: where methods are compared, tuned or chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oodshape.report.headline import OURS
from oodshape.studies.auto_choice import LATER, PAPER, regret
from oodshape.studies.comparison import generalisation
from oodshape.studies.sentences import FEW, changes, joined, led, means, signed, won

if TYPE_CHECKING:
    from pandas import DataFrame

NEAR = 0.005  # of AUROC: so near to the whole fitting set are enough images


def find_compatibility(frame: DataFrame, digits: int) -> str:
    """What OptFS adds to other scores and methods."""
    pairs = frame.assign(pair=frame["base"] + " on " + frame["network"])
    table = pairs.groupby(["pair", "shaped"], sort=False)["auroc"].mean().unstack("shaped")
    gaps = {str(pair): float(gap) for pair, gap in (table[True] - table[False]).items()}
    ends = [min(gaps, key=lambda name: gaps[name]), max(gaps, key=lambda name: gaps[name])]
    shown = " to ".join(f"{signed(gaps[name], digits)} ({name})" for name in ends)
    return f"With OptFS, scores and methods are {won(list(gaps.values()), digits, 'pairs')}: {shown} points of AUROC."


def find_generalisation(frame: DataFrame, digits: int) -> str:
    """Which methods lead on each kind of network, and where OptFS (E) stands."""
    table = generalisation(frame.rename(columns={"network": "model"})).set_index("method")
    parts = []
    for column, words in (("convnets", "on ConvNets"), ("others", "on transformers and MLPs")):
        known = {str(name): float(value) for name, value in table[column].dropna().items()}
        if known:
            place = 1 + sum(value > known[OURS] for value in known.values()) if OURS in known else 0
            ours = f" ({OURS}: place {place} of {len(known)})" if place else ""
            parts.append(f"{words} {led(known, digits)}{ours}")
    return f"The highest mean AUROC: {'; '.join(parts)}."


def find_tuning(frame: DataFrame, digits: int) -> str:
    """What tuning on noise is worth."""
    table = frame.groupby(["network", "method", "tuned"], sort=False)["auroc"].mean().unstack("tuned").reset_index()
    gaps = (table[True] - table[False]).dropna()
    ours = table[table["method"] == OURS].set_index("network")[False]
    rivals = table.dropna(subset=[True])
    above = int((rivals[True] > rivals["network"].map(ours)).sum())
    return (
        f"Settings tuned on noise are {won(gaps.tolist(), digits, 'pairs of rival and network')} "
        f"({signed(gaps.min(), digits)} to {signed(gaps.max(), digits)} points of AUROC); "
        f"{above} of {len(rivals)} tuned rivals are above {OURS}, which has nothing to tune."
    )


def find_samples(frame: DataFrame, digits: int) -> str:
    """How many images each method needs."""
    parts = []
    for method, part in frame.groupby("method", sort=False):
        needed = 0
        for _, one in part.groupby("network", sort=False):
            found = one.groupby("images")["auroc"].mean()
            far = found.index[(found - found.iloc[-1]).abs() > NEAR]
            later = [size for size in found.index if not len(far) or size > far[-1]]
            needed = max(needed, int(later[0]))
        parts.append(f"{method} {needed:,}")
    return (
        f"So many images bring the mean AUROC to within {100 * NEAR:g} points of what the whole fitting set gives, on "
        f"every network here: {joined(parts)}."
    )


def find_choice(frame: DataFrame, digits: int) -> str:
    """How far `auto` lies from the best method in hindsight."""
    table = regret(frame)
    table = table[table["ood"] == "mean"].set_index("network")
    gaps = {str(name): -float(value) for name, value in table["regret_auto_paper"].items()}
    single = frame[frame["group"].isin([PAPER, LATER])]
    first = {name: led(values, digits) for name, values in by_network(single).items()}
    many = len({words.split()[0] for words in first.values()})
    best = "; ".join(f"{words} on {name}" for name, words in list(first.items())[:FEW])
    return (
        f"Without any OOD image, auto lies {changes(gaps, digits)} of mean AUROC from the paper's best method in "
        f"hindsight; of all methods, {many} lead{'s' * (many == 1)} on {len(first)} "
        f"network{'s' * (len(first) > 1)} ({best}{'; ...' * (len(first) > FEW)})."
    )


def by_network(frame: DataFrame) -> dict[str, dict[str, float]]:
    """By network and method: the mean AUROC over OOD sets."""
    found: dict[str, dict[str, float]] = {}
    for method, row in means(frame, "method").items():
        for network, value in row.items():
            found.setdefault(network, {})[method] = value
    return found
