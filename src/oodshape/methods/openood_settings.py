"""Methods as OpenOOD v1.5 runs them: its settings, and what each is fitted on.

Read from the source of OpenOOD (github.com/Jingkang50/OpenOOD at 3c35632, configs/postprocessors) into the records.
Methods that it does not have keep their general settings and are fitted on the training images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oodshape.methods.detector import Method
from oodshape.methods.records import RECORDS, Record
from oodshape.methods.registry import make_method


@dataclass(frozen=True)
class OpenOODSetting:
    """A method as OpenOOD runs it, and the set it is fitted on (train or val)."""

    method: Method
    fit: str = "train"


def openood_settings(std: tuple[float, ...] = (1.0,)) -> dict[str, OpenOODSetting]:
    """The settings by our ids; `std` is that of the preprocessing, which scales the step of a perturbation.

    >>> openood_settings()["ash-b"].method.shape, openood_settings()["react"].fit
    (AshB(p=0.9), 'val')
    """
    return {name: _setting(record, std) for name, record in RECORDS.items() if record.openood}


def _setting(record: Record, std: tuple[float, ...]) -> OpenOODSetting:
    method = make_method(record, record.openood.get("settings", {}))
    return OpenOODSetting(replace(method, perturb=method.perturb.with_std(std)), record.openood.get("fit", "train"))
