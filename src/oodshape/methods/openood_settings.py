"""Methods as OpenOOD v1.5 runs them: its settings, what each is fitted on, and the grid that its search goes over.

Read from the source of OpenOOD (github.com/Jingkang50/OpenOOD at 3c35632, configs/postprocessors) into the records.
Methods that it does not have keep their general settings and are fitted on the training images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from oodshape.methods.detector import Method
from oodshape.methods.records import RECORDS, Record, merge_recipe
from oodshape.methods.registry import make_method


@dataclass(frozen=True)
class OpenOODSetting:
    """A method as OpenOOD runs it, the set it is fitted on (train or val), and the methods that its search tries."""

    method: Method
    fit: str = "train"
    grid: tuple[Method, ...] = ()


def openood_settings(std: tuple[float, ...] = (1.0,)) -> dict[str, OpenOODSetting]:
    """The settings by our ids; `std` is that of the preprocessing, which scales the step of a perturbation.

    >>> openood_settings()["ash-b"].method.shape, openood_settings()["react"].fit
    (AshB(p=0.9), 'val')
    """
    return {name: _setting(record, std) for name, record in RECORDS.items() if record.openood}


def _setting(record: Record, std: tuple[float, ...]) -> OpenOODSetting:
    said = record.openood

    def made(changes: dict[str, Any]) -> Method:
        method = make_method(record, said.get("settings", {}), changes)
        return replace(method, perturb=method.perturb.with_std(std))

    grid = said.get("grid", {})
    tried = [made(_changes(dict(zip(grid, values, strict=True)))) for values in product(*grid.values()) if grid]
    return OpenOODSetting(made({}), said.get("fit", "train"), tuple(tried))


def _changes(values: dict[str, Any]) -> dict[str, Any]:
    """Changes of a recipe from values by path; a key may name several paths.

    >>> _changes({"shape.p": 0.9, "perturb.temperature score.temperature": 10.0})
    {'shape': {'p': 0.9}, 'perturb': {'temperature': 10.0}, 'score': {'temperature': 10.0}}
    """
    changes: Any = {}
    for paths, value in values.items():
        for path in paths.split():
            slot, _, key = path.partition(".")
            changes = merge_recipe(changes, {slot: {key: value}})
    return dict(changes)
