"""Which data sets of the catalog are there, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError
from oodshape.images.datasets.catalog import CATALOG, Status, chosen_benchmarks, status


def data_facts(root: Path | None, benchmark: str | None = None) -> list[dict[str, Any]]:
    """Every set of a benchmark, or of all: its state below a data root, its images, where to get and put it."""
    if root is not None and not root.is_dir():
        raise InputError(f"there is no folder {root}; --data names the folder that holds the data sets")
    if root is None:
        chosen = {name: CATALOG[name] for name in chosen_benchmarks(benchmark)}
        rows = [Status(name, role, entry, "missing") for name, sets in chosen.items() for role, entry in sets]
    else:
        rows = status(root, benchmark)
    return [
        {
            "set": f"{row.benchmark}/{row.entry.name}",
            "role": row.role,
            "state": row.state,
            "reason": row.reason,
            "images": row.images,
            "expected": row.entry.images,
            "get": row.entry.get,
            "put": str(root / row.entry.put) if root else row.entry.put,
        }
        for row in rows
    ]


def data_lines(facts: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """(set, role, state, images found of those expected, where to get it, where to put it)."""

    def number(count: int | None) -> str:
        return "?" if count is None else f"{count:,}"

    return [
        (
            fact["set"],
            fact["role"],
            f"{fact['state']}: {fact['reason']}" if fact["reason"] else fact["state"],
            f"{number(fact['images'] or 0)} of {number(fact['expected'])}",
            fact["get"],
            fact["put"],
        )
        for fact in facts
    ]
