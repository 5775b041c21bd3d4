"""Results: tidy rows with provenance and the curves that figures need, as one CSV and one JSON file."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import oodshape
from oodshape.benchmark.comparisons import Average, Ties
from oodshape.benchmark.curves import Curve, Theta
from oodshape.benchmark.hardest_images import Pick, Samples
from oodshape.core.errors import InputError, check_fraction
from oodshape.core.files import CHECKSUM, checksum, replacing, verify_checksum
from oodshape.core.reading import reading
from oodshape.core.values import check_fields
from oodshape.methods.describe import short_recipe
from oodshape.methods.detector import Method
from oodshape.metrics.detection import Positive

if TYPE_CHECKING:
    from pandas import DataFrame

    from oodshape.metrics.detection import Summary

FORMAT = 3
LISTS = ("rows", "curves", "shapes", "averages_of", "ties")
METRICS = ("fpr95", "auroc", "aupr_in", "aupr_out", "fpr95_ood")  # fpr95: ID is positive, fpr95_ood: OOD is
Axis = Literal["model", "ood"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method on one model and one OOD set; metrics are fractions with the limits of their 95 % intervals."""

    benchmark: str
    model: str
    family: str  # ConvNet, transformer or MLP
    method: str
    ood: str
    group: str  # near or far
    fpr95: float
    fpr95_low: float
    fpr95_high: float
    auroc: float
    auroc_low: float
    auroc_high: float
    aupr_in: float
    aupr_in_low: float
    aupr_in_high: float
    aupr_out: float
    aupr_out_low: float
    aupr_out_high: float
    fpr95_ood: float
    fpr95_ood_low: float
    fpr95_ood_high: float
    n_train: int
    n_id: int
    n_ood: int
    id_accuracy: float | None  # None where the ID images have no labels
    seconds: float  # to fit the method and score this set
    limit: int = 0  # at most so many images of each set were used; 0 = all
    seeds: int = 1  # how many runs the metrics are means over, each with a seed of its own
    fpr95_spread: float = 0.0  # the standard deviation over these runs
    auroc_spread: float = 0.0

    def __post_init__(self) -> None:
        """Make every number a plain one, and refuse metrics outside 0..1."""
        kinds = {"int": int, "float": float, "float | None": float}
        for field in fields(self):
            value, kind = getattr(self, field.name), kinds.get(str(field.type))
            if kind is not None and value is not None and not isinstance(value, (str, bool)):
                object.__setattr__(self, field.name, kind(value))
        check_fields(self)
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name.startswith((*METRICS, "id_accuracy")):
                check_fraction(field.name, value, zero=True, one=True)


def flat(summary: Summary) -> dict[str, Any]:
    """The metrics and their limits under the names of the columns, for `Row(**flat(summary), ...)`."""
    parts = {"": "value", "_low": "low", "_high": "high"}
    return {m + end: getattr(getattr(summary, m), part) for m in METRICS for end, part in parts.items()}


@dataclass(frozen=True)
class Results:
    """All rows of a benchmark run, where they come from, what was skipped and why, and curves to draw."""

    rows: tuple[Row, ...]
    provenance: dict[str, Any]
    skipped: tuple[tuple[str, str], ...] = ()  # (what, why)
    curves: tuple[Curve, ...] = ()
    shapes: tuple[Theta, ...] = ()
    samples: Samples = Samples()
    averages_of: tuple[Average, ...] = ()  # means over OOD sets, with intervals
    ties: tuple[Ties, ...] = ()  # who cannot be told from the best

    def __post_init__(self) -> None:
        """Refuse a second row for the same model, method and OOD set, and provenance that JSON cannot hold."""
        for name in LISTS:
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "skipped", tuple((str(what), str(why)) for what, why in self.skipped))
        check_fields(self)
        seen: set[tuple[str, str, str]] = set()
        for row in self.rows:
            key = (row.model, row.method, row.ood)
            if key in seen:
                raise InputError(f"two rows for model {row.model!r}, method {row.method!r}, OOD set {row.ood!r}")
            seen.add(key)
        try:
            plain = json.loads(json.dumps(self.provenance, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"the provenance must be JSON: {error}") from None
        if not isinstance(plain.get("methods", {}), dict):
            raise InputError(f"the methods of the provenance must be a table, got {plain['methods']!r:.60}")
        object.__setattr__(self, "provenance", plain)

    @property
    def frame(self) -> DataFrame:
        """A new DataFrame with one line per row, its columns the fields of Row."""
        from pandas import DataFrame

        return DataFrame([vars(row) for row in self.rows], columns=[field.name for field in fields(Row)])

    def names(self, column: Literal["model", "method", "ood", "benchmark"]) -> list[str]:
        """The different entries of a column in order of appearance, but methods in the order of the run."""
        found = dict.fromkeys(getattr(row, column) for row in self.rows)
        first = [name for name in self.provenance.get("methods", {}) if name in found] if column == "method" else []
        return list(dict.fromkeys([*first, *found]))

    def averages(self, by: Axis) -> DataFrame:
        """One line per method and model (mean over its OOD sets), or per method and OOD set (mean over models).

        The column `over` says over how many rows the means are.
        """
        if by not in get_args(Axis):
            raise InputError(f"by must be 'model' or 'ood', got {by!r}")
        groups = self.frame.groupby(["method", by], sort=False)
        means = groups[list(METRICS)].mean()
        return means.assign(over=groups.size()).reset_index()

    def save(self, folder: str | Path) -> None:
        """Write results.csv (the rows) and results.json (everything) into the folder, which is made if missing."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lists = {name: [vars(item) for item in getattr(self, name)] for name in LISTS}
        data = {"kind": "results", "format": FORMAT, "provenance": self.provenance, "skipped": self.skipped}
        samples = {"images": self.samples.images, "picks": [vars(pick) for pick in self.samples.picks]}
        said = {**data, **lists, "samples": samples}
        said[CHECKSUM] = checksum(said)
        text = json.dumps(said, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        with replacing(folder / "results.csv") as table, replacing(folder / "results.json") as everything:
            self.frame.to_csv(table, index=False, encoding="utf-8")
            everything.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Results:
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
                rows=tuple(Row(**row) for row in data["rows"]),
                provenance=data["provenance"],
                skipped=data["skipped"],
                curves=tuple(Curve(**_tuples(curve)) for curve in data["curves"]),
                shapes=tuple(Theta(**_tuples(shape)) for shape in data["shapes"]),
                samples=_samples(data["samples"]),
                averages_of=tuple(Average(**each) for each in data["averages_of"]),
                ties=tuple(Ties(**_tuples(each)) for each in data["ties"]),
            )


def _samples(data: dict[str, Any]) -> Samples:
    return Samples(tuple(data["images"]), tuple(Pick(**_tuples(pick)) for pick in data["picks"]))


def _tuples(item: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in item.items()}


def convention(positive: Positive = "id") -> str:
    """The direction of scores and of FPR95 in words."""
    says = {
        "id": "ID positive, share of OOD accepted when 95 % of ID is accepted",
        "ood": "OOD positive, share of ID rejected when 95 % of OOD is rejected",
    }
    return f"higher score = ID; FPR95: {says[positive]}"


def provenance(
    *,
    benchmark_hash: str,
    weights: Mapping[str, str],
    methods: Mapping[str, Method],
    settings: Mapping[str, Any],
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
        "methods": {name: short_recipe(method) for name, method in methods.items()},
        "settings": dict(settings),
        "positive": "id",
        "convention": convention(),
    }
