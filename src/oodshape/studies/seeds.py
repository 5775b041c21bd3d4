"""A study with several seeds: the means of its rows, and how much they spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oodshape.studies.network import Network

if TYPE_CHECKING:
    from pandas import DataFrame

Made = tuple[list["DataFrame"], "DataFrame"]  # the rows of each network, and of all


def over_seeds(
    compute: Callable[[Sequence[Network]], Made], networks: Sequence[Network], seeds: int
) -> tuple[list[DataFrame], DataFrame, list[str]]:
    """The rows of each network and of all, means over the seeds in the order of the first; and a note on the spread."""
    from pandas import concat

    if seeds == 1:
        return *compute(networks), []
    runs = [compute([replace(each, seed=each.seed + step) for each in networks])[0] for step in range(seeds)]
    parts, spread = [], 0.0
    for each in zip(*runs, strict=True):
        stacked = concat(each, keys=range(seeds)).groupby(level=1, sort=False)
        numbers = [name for name in each[0].columns if each[0][name].dtype.kind == "f"]
        parts.append(each[0].assign(**{name: stacked[name].mean() for name in numbers}))
        metrics = [name for name in numbers if name.startswith(("auroc", "fpr95"))]
        spread = max([spread, *(float(stacked[name].std().max()) for name in metrics)])
    said = f"the largest standard deviation over them is {100 * spread:.2f} points"
    return parts, concat(parts, ignore_index=True), [f"Means over {seeds} seeds, words of the first; {said}."]
