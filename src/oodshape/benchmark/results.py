"""Results: tidy rows with provenance and the curves that figures need, as one CSV and one JSON file."""

from __future__ import annotations

import json
import math
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pandas import DataFrame

import oodshape
from oodshape.benchmark.comparisons import Average, Ties
from oodshape.core.errors import InputError, check_fraction
from oodshape.core.files import CHECKSUM, checksum, reading, replacing, verify_checksum
from oodshape.core.values import Checked
from oodshape.methods.describe import format_short_recipe
from oodshape.methods.detector import Method
from oodshape.metrics.detection import Estimate
from oodshape.metrics.registry import METRICS, check_metrics, flatten_metrics, gather_metrics

FORMAT = 5
LISTS = ("rows", "curves", "averages_of", "ties", "failed")
SPREAD = "_spread"  # ends the columns of the standard deviations
CONVENTION = "higher score = ID"
Axis = Literal["model", "ood"]


@dataclass(frozen=True, kw_only=True)
class Row(Checked):
    """One method on one model and one OOD set; metrics have 95 % intervals."""

    benchmark: str
    model: str
    family: str  # ConvNet, transformer or MLP
    method: str
    ood: str
    group: str  # near or far
    metrics: dict[str, Estimate]  # by the names of `metrics.registry`
    n_train: int
    n_id: int
    n_ood: int
    id_accuracy: float | None  # None where the ID images have no labels
    limit: int = 0  # at most so many images of each set were used; 0 = all
    seeds: int = 1  # how many runs the metrics are means over, each with a seed of its own
    spreads: dict[str, float] = field(default_factory=dict)  # metric -> the standard deviation over these runs

    def __post_init__(self) -> None:
        """Refuse impossible metrics."""
        super().__post_init__()
        check_metrics(self.metrics)
        if self.id_accuracy is not None:
            check_fraction("id_accuracy", self.id_accuracy, zero=True, one=True)

    def value(self, metric: str) -> float:
        """The value of a metric; NaN where it was not measured."""
        return self.metrics[metric].value if metric in self.metrics else math.nan

    def flat(self) -> dict[str, Any]:
        """The row as the columns of a flat file."""
        spreads = {name + SPREAD: value for name, value in self.spreads.items()}
        parts = {"metrics": flatten_metrics(self.metrics), "spreads": spreads}
        named = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {key: value for name, item in named for key, value in parts.get(name, {name: item}).items()}

    @classmethod
    def of_flat(cls, columns: Mapping[str, Any]) -> Row:
        """The row of such columns."""
        metrics, rest = gather_metrics(columns)
        spreads = {name: rest.pop(name + SPREAD) for name in metrics if name + SPREAD in rest}
        return cls(metrics=metrics, spreads=spreads, **rest)


@dataclass(frozen=True, kw_only=True)
class ScoreCurve(Checked):
    """The ROC curve of one row in a few points."""

    model: str
    method: str
    ood: str
    fpr: tuple[float, ...]  # ascending from 0 to 1
    tpr: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Failed(Checked):
    """A method that could not be fitted on a network, or that could not score one of the sets."""

    model: str
    method: str
    why: str


@dataclass(frozen=True)
class RunResults(Checked):
    """All rows of a benchmark run, where they come from, what was skipped and why, and curves to draw."""

    rows: tuple[Row, ...]
    provenance: dict[str, Any]
    skipped: tuple[tuple[str, str], ...] = ()  # (what, why)
    curves: tuple[ScoreCurve, ...] = ()
    averages_of: tuple[Average, ...] = ()  # means over OOD sets, with intervals
    ties: tuple[Ties, ...] = ()  # who cannot be told from the best
    failed: tuple[Failed, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a second row for the same model, method and OOD set, and provenance that JSON cannot hold."""
        for name in LISTS:
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "skipped", tuple((str(what), str(why)) for what, why in self.skipped))
        super().__post_init__()
        count = Counter((row.model, row.method, row.ood) for row in self.rows)
        for key in (key for key, rows in count.items() if rows > 1):
            raise InputError("two rows for model {!r}, method {!r}, OOD set {!r}".format(*key))
        try:
            plain = json.loads(json.dumps(self.provenance, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"the provenance must be JSON: {error}") from None
        if not isinstance(plain.get("methods", {}), dict):
            raise InputError(f"the methods of the provenance must be a table, got {plain['methods']!r:.60}")
        object.__setattr__(self, "provenance", plain)

    @property
    def frame(self) -> DataFrame:
        """A new DataFrame with one line per row, flat: a metric has the columns NAME, NAME_low and NAME_high."""
        return DataFrame([row.flat() for row in self.rows])

    def names(self, column: Literal["model", "method", "ood", "benchmark"]) -> list[str]:
        """The different entries of a column in order of appearance, but methods in the order of the run."""
        found = dict.fromkeys(getattr(row, column) for row in self.rows)
        first = [name for name in self.provenance.get("methods", {}) if name in found] if column == "method" else []
        return list(dict.fromkeys([*first, *found]))

    def averages(self, by: Axis, group: str = "") -> DataFrame:
        """One line per method and model (mean over its OOD sets), or per method and OOD set (mean over models).

        Args:
            by: model or ood.
            group: near or far: only these OOD sets.

        Returns:
            A column per metric, and `over`: over how many rows the means are.
        """
        frame = self.frame
        groups = frame[frame["group"] == group if group else slice(None)].groupby(["method", by], sort=False)
        means = groups[[name for name in METRICS if name in frame]].mean()
        return means.assign(over=groups.size()).reset_index()

    def save(self, folder: str | Path) -> None:
        """Write results.csv (the rows) and results.json (everything) into the folder, which is made if missing."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lists = {name: [vars(item) for item in getattr(self, name)] for name in LISTS}
        lists |= {name: [item.flat() for item in getattr(self, name)] for name in ("rows", "averages_of")}
        data = {"kind": "results", "format": FORMAT, "provenance": self.provenance, "skipped": self.skipped}
        content = {**data, **lists}
        content[CHECKSUM] = checksum(content)
        text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        with replacing(folder / "results.csv") as table, replacing(folder / "results.json") as everything:
            self.frame.to_csv(table, index=False, encoding="utf-8")
            everything.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> RunResults:
        """The results in a results.json, or in a folder that holds one."""
        path = Path(path)
        path = path / "results.json" if path.is_dir() else path
        if not path.is_file():
            raise InputError(f"there is no file {path}")
        with reading(path, "give the results.json of a benchmark run"):
            data = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(data, dict) or data.get("kind") != "results":
                raise InputError(f"{path} holds no oodshape results; give the results.json of a benchmark run")
            if data["format"] != FORMAT:
                raise InputError(f"{path} has format {data['format']}, this oodshape reads {FORMAT}")
            verify_checksum(data)
            json.dumps(data, ensure_ascii=False).encode()  # half a character, which no page and no table can hold
            return cls(
                rows=tuple(map(Row.of_flat, data["rows"])),
                provenance=data["provenance"],
                skipped=data["skipped"],
                curves=tuple(ScoreCurve(**make_tuples(curve)) for curve in data["curves"]),
                averages_of=tuple(map(Average.of_flat, data["averages_of"])),
                ties=tuple(Ties(**make_tuples(each)) for each in data["ties"]),
                failed=tuple(Failed(**each) for each in data["failed"]),
            )


def make_tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    """The same table with tuples in place of the lists that JSON knows."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}


def collect_provenance(
    *, benchmark_hash: str, weights: Mapping[str, str], methods: Mapping[str, Method], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Where results come from: versions, platform, hashes per model, recipes, settings such as limit and seed."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "oodshape": oodshape.__version__,
        "torch": version("torch"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "benchmark": benchmark_hash,
        "weights": dict(weights),
        "methods": {name: format_short_recipe(method) for name, method in methods.items()},
        "settings": dict(settings),
        "convention": CONVENTION,
    }
