"""Sums and rows of features as plain data and named arrays, for files; what is read is checked as it is made."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.features.moments import Moments
from oodshape.features.statistics import FeatureStats
from oodshape.features.sums import LeftOut, Summed, Sums, without
from oodshape.networks.head import Head

Arrays = dict[str, NDArray[Any]]
Said = dict[str, Any] | None


def pack_rows(rows: Features | None, name: str, arrays: Arrays) -> None:
    """Put rows of features into `arrays`."""
    if rows is None:
        return
    arrays[f"{name}.values"] = np.concatenate([raw.float().numpy() for _, raw in rows.chunks()])
    arrays[f"{name}.predictions"] = rows.predictions.cpu().numpy()
    arrays[f"{name}.identities"] = rows.identities
    if rows.labels is not None:
        arrays[f"{name}.labels"] = rows.labels.numpy()


def unpack_rows(name: str, arrays: Arrays, head: Head) -> Features | None:
    """The rows that `pack_rows` put there."""
    if f"{name}.values" not in arrays:
        return None
    values, predictions, identities = (arrays[f"{name}.{what}"] for what in ("values", "predictions", "identities"))
    rows = Features.from_arrays(values, head, arrays.get(f"{name}.labels"), predictions, identities)
    rows.check_finite()
    return rows


def pack_sums(sums: Sums | None, name: str, arrays: Arrays) -> Said:
    """The numbers of sums; their arrays go into `arrays`."""
    if sums is None:
        return None
    said: dict[str, Any] = {"near": pack_sums(sums.near, f"{name}.near", arrays)}
    for field in fields(sums.stats):
        value = getattr(sums.stats, field.name)
        if isinstance(value, np.ndarray):
            arrays[f"{name}.stats.{field.name}"] = value
        else:
            said[field.name] = value
    arrays.update({f"{name}.moments.{part}": value for part, value in sums.held.parts.items()})
    return said


def unpack_sums(said: Said, name: str, arrays: Arrays, head: Head, left_out: LeftOut | None) -> Sums | None:
    """The sums that `pack_sums` put there."""
    if said is None:
        return None
    near = None
    if said["near"] is not None:
        if left_out is None:
            raise InputError("sums without some classes, where none can be left out")
        near = unpack_sums(said["near"], f"{name}.near", arrays, without(head, left_out), None)
    numbers: dict[str, Any] = {key: value for key, value in said.items() if key != "near"}
    stats = FeatureStats(**numbers | _below(f"{name}.stats.", arrays))
    return Sums(head, stats, Moments(stats.head, stats.n, _below(f"{name}.moments.", arrays)), near)


def pack_summed(summed: Summed | None, arrays: Arrays) -> Said:
    """The numbers of summed images; their arrays go into `arrays`."""
    if summed is None:
        return None
    pack_rows(summed.selection, "selection", arrays)
    groups = {name: pack_sums(getattr(summed, name), name, arrays) for name in ("fitting", "kept")}
    return {"share": summed.share, "labelled": summed.labelled, "right": summed.right, **groups}


def unpack_summed(said: Said, arrays: Arrays, head: Head, left_out: LeftOut | None) -> Summed | None:
    """What `pack_summed` put there."""
    if said is None:
        return None
    fitting, kept = (unpack_sums(said[name], name, arrays, head, left_out) for name in ("fitting", "kept"))
    selection = unpack_rows("selection", arrays, head)
    return Summed(said["share"], fitting, kept, selection, said["labelled"], said["right"])


def _below(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
