"""Describe a guard, as text and as JSON; a guard file is described without torch, and none of its code runs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core import files
from oodshape.core.errors import InputError
from oodshape.core.files import reading
from oodshape.core.text import format_count
from oodshape.core.values import Ascending, AtLeast, Json, Sizes, check_fields, decode_value, encode_value
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.metrics import conformal

Guarded = Any  # a guard, which this module cannot import, or the `GuardContents` of its file
EXIF = {True: "turned upright", False: "ignored"}  # what becomes of an image's EXIF orientation, as files say it
NO_GUARANTEE = "no guarantee: calibrated on training images"
NO_GUARD = (
    "it holds a detector without preprocessing and network, as Detector.save writes it; make a guard of the model: "
    "oodshape fit, or Guard.fit"
)


@dataclass(frozen=True)
class _Decides:
    """The fields of a detector that decisions come from."""

    calibration: Annotated[NDArray[np.float32], Sizes("N"), Ascending()]
    alpha: float
    groups: Annotated[NDArray[np.int32], Sizes("N"), AtLeast(0)] | None
    classes: Annotated[int, AtLeast(1)] | None
    n_train: Annotated[int, AtLeast(1)]


@dataclass(frozen=True)
class GuardContents:
    """The contents of a guard file: the detector and its description as JSON, and their arrays."""

    recipe: str
    detector: Json
    about: Json
    arrays: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, guard: Guarded) -> GuardContents:
        """Return what the file of a guard would contain."""
        if isinstance(guard, GuardContents):
            return guard
        arrays: dict[str, NDArray[Any]] = {}
        detector, about = encode_value(guard.detector, arrays, "detector"), encode_value(guard.about, arrays, "guard")
        return cls(repr(guard.detector.method), detector, about, arrays)

    @classmethod
    def read(cls, path: Path) -> GuardContents:
        """Read a guard file; its checksum and what the threshold comes from are verified."""
        header, arrays = files.load_file(path, "detector")
        with reading(path, files.WAY_OUT["detector"]):
            detector, about = (json.loads(header.get(name, "null")) for name in ("value", "guard"))
            found = cls(header["method"], detector, about, arrays)
            if found.about is None:
                raise InputError(NO_GUARD)
            if found.detector["calibration"] is None:
                raise InputError("this detector has no threshold yet: call calibrate(held_out_id_data) first")
            conformal.check_enough(len(found.scores), found.detector["alpha"])
            found._check(header["value"])
        return found

    def _check(self, text: str) -> None:
        """Refuse what `score` refuses, as far as that is known without torch."""
        values = {each.name: decode_value(self.detector[each.name], self.arrays) for each in fields(_Decides)}
        check_fields(_Decides(**values))
        classes, named = values["classes"], len(self.about["classes"])
        if (classes or 1) > conformal.MOST_CLASSES or (named and named != classes):
            raise InputError(f"it has {classes} classes and {named} names of classes")
        package = Path(conformal.__file__).parents[1]
        source = "".join(path.read_text(encoding="utf-8") for path in package.glob("methods/**/*.py"))
        for name in re.findall(r'"type"\s*:\s*"([^":]*)"', text):
            if f"\nclass {name}(" not in source:
                raise InputError(f"unknown type {name!r}; the file was written by a newer oodshape")

    @property
    def scores(self) -> NDArray[np.float32]:
        """The calibration scores, ascending."""
        found: NDArray[np.float32] = decode_value(self.detector["calibration"], self.arrays)
        return found

    @cached_property
    def groups(self) -> NDArray[np.int32] | None:
        """The predicted class of each calibration image, where thresholds are per class."""
        found: NDArray[np.int32] | None = decode_value(self.detector["groups"], self.arrays)
        return found

    @cached_property
    def class_scores(self) -> dict[int, NDArray[np.float32]]:
        """The calibration scores of each class with a threshold of its own, and those of the pool."""
        return conformal.group_by_class(self.scores, self.groups, self.detector["alpha"])

    @property
    def limits(self) -> NDArray[np.float32]:
        """[1], the threshold, or [C], one for each predicted class."""
        return conformal.class_limits(self.scores, self.detector["alpha"], self.groups, self.detector["classes"] or 0)

    @property
    def threshold_text(self) -> str:
        """The threshold, and the probability that it is the log of, where it is one."""
        limits = self.limits
        is_log = self.detector["scorer"]["type"] == "LogSoftmax" and len(limits) == 1
        return describe_limits(limits) + (f" (a probability of {math.exp(limits[0]):.6g})" if is_log else "")

    @property
    def guarantee(self) -> str:
        """What the threshold guarantees, in one line."""
        return describe_guarantee(
            self.about["held_out"], len(self.scores), self.detector["alpha"], per_class=self.groups is not None
        )

    @property
    def fusion(self) -> Mapping[str, Any] | None:
        """The component detectors that a selecting method chose."""
        scorer: Mapping[str, Any] = self.detector["scorer"]
        return scorer if scorer["type"] == "Fusion" else None

    @property
    def components(self) -> list[str]:
        """The names of the selected methods."""
        return [] if self.fusion is None else [component["name"] for component in self.fusion["components"]]

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How images are prepared, where that is known."""
        found: Preprocessing | None = decode_value(self.about["preprocessing"], self.arrays)
        return found

    @property
    def sanity(self) -> dict[str, float] | None:
        """The acceptance rates of noise and constant images, where they are known."""
        about = self.about["sanity"]
        if about is None:
            return None
        scores, classes = (decode_value(about[name], self.arrays) for name in ("scores", "classes"))
        return acceptance_rates(about["noise"], scores, classes, self.limits)


def describe_limits(limits: NDArray[np.float32]) -> str:
    """The threshold [1], or the range of the thresholds [C] of predicted classes."""
    if len(limits) == 1:
        return f"{limits[0]:.6g}"
    return f"{limits.min():.6g} to {limits.max():.6g}, by predicted class"


def describe_guarantee(held_out: bool, n: int, alpha: float, *, per_class: bool) -> str:
    """Describe in one line what a threshold from n calibration scores guarantees."""
    if not held_out:
        return NO_GUARANTEE
    rate, made = f"expected false rejection rate <= {100 * alpha:g} %", f"n = {n:,} calibration images"
    if per_class:
        return f"{rate} within each class with its own threshold, and in all others together (split conformal, {made})"
    low, high = (100 * limit for limit in conformal.rejection_rate_limits(n, alpha))
    return f"{rate} (split conformal; 99 % range for {made}: {low:.1f}-{high:.1f} %)"


def acceptance_rates(
    noise: int, scores: NDArray[np.float32], classes: NDArray[np.int32], limits: NDArray[np.float32]
) -> dict[str, float]:
    """The fractions of noise images, which come first, and of constant images that the thresholds accept."""
    accepted = scores >= (limits if len(limits) == 1 else limits[classes])
    kinds = {"noise": accepted[:noise], "constant images": accepted[noise:]}
    return {name: float(each.mean()) for name, each in kinds.items() if len(each)}


def describe_sanity(rates: Mapping[str, float]) -> str:
    """Acceptance rates of noise and constant images in words."""
    return f"accepts {', '.join(f'{100 * rate:.0f} % of {name}' for name, rate in rates.items())}"


def describe_selection(guard: Guarded) -> list[str]:
    """Describe which detectors were selected and why; empty for a method that does not select."""
    found = GuardContents.of(guard)
    fusion, method, components = found.fusion, found.about["method"], found.components
    if fusion is None:
        return []
    names = ", ".join(components)
    if not fusion["ranking"]:
        why = "; ".join(fusion["notes"]) or "it had no proxy set to select by"
        return [f"{method} uses {names}", f"why: {why}"]
    ranking, count = fusion["ranking"], fusion["best"]
    best = ", ".join(f"{name} {100 * value:.1f} %" for name, value in ranking[:count])
    fused = ", fused by their p-values" if len(components) > 1 else ""
    return [
        f"{method} uses {names}{fused}",
        f"used: best {count} of {len(ranking)} candidates by proxy AUROC ({best}); "
        f"always added: {', '.join(components[count:]) or 'none'}; proxies: {', '.join(fusion['proxies'])}",
        *(f"note: {note}" for note in fusion["notes"]),
    ]


def _by_proxy(fusion: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """For each proxy set, the AUROC of every candidate."""
    names = [name for name, _ in fusion["ranking"]]
    columns = zip(*fusion["values"], strict=True)
    pairs = zip(fusion["proxies"], columns, strict=True)
    return {proxy: dict(zip(names, column, strict=True)) for proxy, column in pairs}


def facts(guard: Guarded) -> dict[str, Any]:
    """Return the description of a guard as JSON values."""
    found = GuardContents.of(guard)
    detector, about, fusion, per_class = found.detector, found.about, found.fusion, found.groups is not None
    return {
        "method": about["method"] or found.recipe,
        "recipe": found.recipe,
        "components": found.components if fusion is not None else None,
        "ranking": dict(fusion["ranking"]) if fusion is not None else None,
        "proxies": _by_proxy(fusion) if fusion is not None else None,
        "threshold": None if per_class else float(found.limits[0]),
        "thresholds_per_class": found.limits.tolist() if per_class else None,
        "classes_with_own_threshold": len(found.class_scores) - 1 if per_class else None,
        "alpha": detector["alpha"],
        "calibration_images": len(found.scores),
        "held_out": about["held_out"],
        "guarantee": found.guarantee,
        "sanity": found.sanity,
        "training_images": detector["n_train"],
        "preprocessing": None if found.preprocessing is None else dict(found.preprocessing._items()),
        "exif": EXIF[about["upright"]],
        "model": about["model"],
        "weights": about["weights"],
        "head": {"layer": about["head"], "fingerprint": detector["fingerprint"]},
        "network": about["network"],
        "precision": about["precision"],
        "classes": detector["classes"],
        "class_names": list(about["classes"]),
        "version": about["version"],
    }


def lines(guard: Guarded) -> list[tuple[str, str]]:
    """(what, value) for people."""
    found = GuardContents.of(guard)
    fact, detector, about = facts(found), found.detector, found.about
    rows = [("method", fact["method"]), *(("", line) for line in describe_selection(found))]
    rows += [("threshold", f"{found.threshold_text}: images with a lower score are rejected")]
    if found.groups is not None:
        rows += [("", f"{describe_classes(found)}")]
    rows += [
        ("guarantee", found.guarantee),
        *([("sanity", describe_sanity(found.sanity))] if found.sanity else []),
        ("calibrated on", f"{format_count(fact['calibration_images'], 'image')}, alpha = {detector['alpha']:g}"),
        ("fitted on", f"{detector['n_train']:,} images"),
        ("preprocessing", describe_preprocessing(found.preprocessing)),
        ("", f"EXIF orientation {fact['exif']}"),
        ("model", about["model"] + (f", weights {about['weights']}" if about["weights"] else "")),
        *([("precision", about["precision"])] if about["precision"] != "float32" else []),
        (
            "head",
            f"{about['head'] or 'unknown'} (fingerprint {detector['fingerprint']}; whole network {about['network']})",
        ),
        ("classes", _classes(detector["classes"], about["classes"])),
        ("made by", f"oodshape {about['version']}"),
    ]
    return rows


def describe_classes(guard: Guarded) -> str:
    """How many classes have a threshold of their own."""
    found = GuardContents.of(guard)
    own, classes = len(found.class_scores) - 1, found.detector["classes"] or 0
    if own == classes:
        return f"all {classes} classes have a threshold of their own"
    pool = format_count(len(found.class_scores[conformal.POOL]), "image")
    return (
        f"{own} of {classes} classes have a threshold of their own; the other {classes - own} have too few calibration "
        f"images and share one from a pool of {pool}"
    )


def describe_preprocessing(way: Preprocessing | None) -> str:
    """How an image is prepared, in words."""
    if way is None:
        return "not known: it was fitted on prepared tensors"
    steps = []
    if way.resize is not None:
        if isinstance(way.resize, tuple):
            what = f"stretched to exactly {way.resize[0]} x {way.resize[1]} (height x width)"
        else:
            what = f"shorter side to {way.resize}"
        steps.append(f"{what} ({way.interpolation})")
    if way.crop is not None:
        steps.append(f"centre {way.crop} x {way.crop}")
    return ", ".join([*steps, f"mean {_numbers(way.mean)}, std {_numbers(way.std)}"])


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4g}" for value in values)


def _classes(count: int | None, names: Sequence[str]) -> str:
    if not names:
        return f"{count} without names"
    return f"{count}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
