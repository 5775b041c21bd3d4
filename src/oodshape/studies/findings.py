"""The one sentence that a study shows, from its tidy rows: for OptFS's own settings, its argument and its shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oodshape.studies.bounds import ROWS, SHOWN
from oodshape.studies.printing import cosine, likeness, number, percent, rounded
from oodshape.studies.sentences import changes, joined, leaders, less, means, signed, won

if TYPE_CHECKING:
    from pandas import DataFrame

FEWER, DEFAULT_TAIL, PAPER_TAIL = 10, 0.001, 0.01  # intervals; OptFS's own limits, and those that the paper likes best
TENTH = 0.9  # of the range of values, where its last tenth begins


def find_variants(frame: DataFrame, digits: int) -> str:
    """What knowing real OOD data is worth."""
    table = means(frame, "variant")
    gaps = less(table["real"], table["ours (V)"])
    return (
        f"Theta from real OOD data in place of ID data alone (V) changes the mean AUROC by {changes(gaps, digits)}: "
        f"{won(list(gaps.values()), digits)}."
    )


def find_objectives(frame: DataFrame, digits: int) -> str:
    """What a loss on single images makes of real OOD data."""
    table = means(frame[frame["source"] == "real"], "objective")
    gaps = {name: max(table[loss][name] for loss in table) - value for name, value in table["mean-gap"].items()}
    return (
        "From real OOD data, the best objective lies above the mean gap of the paper by "
        f"{changes(gaps, digits)} of mean AUROC."
    )


def find_validation(frame: DataFrame, digits: int) -> str:
    """What it costs to leave the OOD term out."""
    gaps = (frame["auroc_without"] - frame["auroc_with"]).tolist()
    place = gaps.index(min(gaps))
    worst = f"{frame['ood'].iloc[place]} on {frame['network'].iloc[place]}"
    return (
        f"Without the OOD term theta is {won(gaps, digits, 'OOD sets')}; the worst is "
        f"{signed(gaps[place], digits)} points of AUROC ({worst})."
    )


def find_dynamic(frame: DataFrame, digits: int) -> str:
    """How many classes change, and how far theta moves."""
    ratios = frame.groupby("network", sort=False)["without_bias"].first()
    cosines = [
        cosine(*(curve["theta"].to_numpy(float) for _, curve in part.groupby("curve", sort=False)))
        for _, part in frame.groupby("network", sort=False)
    ]
    return (
        f"Shaping changes the predicted class of {_range([percent(value, digits) for value in sorted(ratios)])} % of "
        f"images; with classes that may change, theta has a cosine of {min(cosines):.4f} or more with the fixed one."
    )


def find_intervals(frame: DataFrame, digits: int) -> str:
    """What the number of intervals changes."""
    table = means(frame[frame["method"] == "optfs-e"], "k")
    gaps, rest = less(table[SHOWN], table[0]), less(table[FEWER], table[SHOWN])
    most = max(rest, key=lambda name: abs(rest[name]))
    return (
        f"With {SHOWN} intervals optfs-e changes the mean AUROC of Energy by {changes(gaps, digits)}; with {FEWER} it "
        f"lies within {rounded(100 * abs(rest[most]), digits)} points of that."
    )


def find_bounds(frame: DataFrame, digits: int) -> str:
    """What the second bound changes."""
    table = means(frame[frame["k"] == SHOWN], "bound")
    gaps = less(table["features"], table["theta"])
    return (
        f"The bound on the features ({ROWS['features']}) changes the mean AUROC of the bound on theta "
        f"({ROWS['theta']}) by {changes(gaps, digits)}."
    )


def find_limits(frame: DataFrame, digits: int) -> str:
    """What the limits of the intervals change."""
    table = means(frame[frame["method"] == "optfs-e"], "tail")
    best = {name: max(row[name] for row in table.values()) for name in table[DEFAULT_TAIL]}
    lost = [max(less(best, table[tail]).values()) for tail in (DEFAULT_TAIL, PAPER_TAIL)]
    mine, theirs = (rounded(100 * value, digits) for value in lost)
    return (
        f"For optfs-e, limits at the percentiles {100 * DEFAULT_TAIL:g} and {100 - 100 * DEFAULT_TAIL:g} lose at most "
        f"{mine} points of mean AUROC to the best ones of each network; limits at 1 and 99 lose up to {theirs}."
    )


def find_shaping(frame: DataFrame, digits: int) -> str:
    """Whose shaping function resembles the optimal one."""
    found = likeness(frame)
    first = {network: leaders(curves, 1) for network, curves in found.items()}
    ours = sum("optfs-v" in names for names in first.values())
    parts = [f"{network} {joined(names)} {number(found[network][names[0]])}" for network, names in first.items()]
    return (
        f"OptFS from ID data alone comes nearest to the optimal function on {ours} of {len(first)} "
        f"network{'s' * (len(first) > 1)} (cosine: {'; '.join(parts)})."
    )


def find_weights(frame: DataFrame, digits: int) -> str:
    """Which weights meet the largest values of ID and of OOD images."""
    parts = []
    for network, part in frame.groupby("network", sort=False):
        low, high = part["left"].min(), part["right"].max()
        top = part[(part["left"] + part["right"]) / 2 >= low + TENTH * (high - low)].copy()
        top["sum"] = (top["mean"] * top["count"]).fillna(0)
        sums = top.groupby("set", sort=False)[["sum", "count"]].sum()
        mean = [f"{value:.3f}" for value in sums["sum"] / sums["count"].clip(lower=1)]
        parts.append(f"{network} {' against '.join(mean)}")
    return f"The largest tenth of feature values meets these weights on average, ID against OOD: {'; '.join(parts)}."


def find_intuition(frame: DataFrame, digits: int) -> str:
    """Where the mean impact of OOD data lies."""
    lengths = sorted((frame["x"] ** 2 + frame["y"] ** 2) ** 0.5)
    angles, turned = sorted(frame["degrees"]), sorted(frame["turned"])
    return (
        f"The mean impact b of OOD data has {_range([f'{value:.2f}' for value in lengths])} of the length of a, "
        f"{_range([f'{value:.0f}' for value in angles])} degrees from it; leaving it out turns theta by "
        f"{_range([f'{value:.0f}' for value in turned])} degrees."
    )


def _range(ascending: list[str]) -> str:
    low, high = ascending[0], ascending[-1]
    return low if low == high else f"{low} to {high}"
