"""What a guard is, for people and for programs."""

from __future__ import annotations

from typing import Any

from oodshape.core.text import format_count
from oodshape.guard.export.guarded_file import EXIF
from oodshape.guard.fitted import Fitted
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.methods.fusion import Fusion
from oodshape.metrics.conformal import POOL


def chosen_lines(guard: Fitted) -> list[str]:
    """What was selected and why, in a few lines; none for a method that does not select."""
    fusion = guard.detector.scorer
    if not isinstance(fusion, Fusion):
        return []
    names = ", ".join(component.name for component in fusion.components)
    if not fusion.ranking:
        why = "; ".join(fusion.notes) or "it had no proxy set to select by"
        return [f"{guard.about.method} uses {names}", f"why: {why}"]
    values = dict(fusion.ranking)
    best, least = (100 * values[component.name] for component in (fusion.components[0], fusion.components[-1]))
    fused = ", fused by their p-values" if len(fusion.components) > 1 else ""
    return [
        f"{guard.about.method} selected {names}{fused}",
        f"selected {len(fusion.components)} of {len(values)} candidates by proxy AUROC ({least:.1f} to {best:.1f} %); "
        f"proxies: {', '.join(fusion.proxies)}",
        *(f"note: {note}" for note in fusion.notes),
    ]


def _by_proxy(fusion: Fusion) -> dict[str, dict[str, float]]:
    """For each proxy set, the AUROC of every candidate."""
    names = [name for name, _ in fusion.ranking]
    columns = zip(*fusion.values, strict=True)
    return {proxy: dict(zip(names, column, strict=True)) for proxy, column in zip(fusion.proxies, columns, strict=True)}


def facts(guard: Fitted) -> dict[str, Any]:
    """All that a guard says about itself, as JSON can hold it."""
    detector, about = guard.detector, guard.about
    fusion = detector.scorer
    return {
        "method": about.method or repr(detector.method),
        "recipe": repr(detector.method),
        "components": [component.name for component in fusion.components] if isinstance(fusion, Fusion) else None,
        "ranking": dict(fusion.ranking) if isinstance(fusion, Fusion) else None,
        "proxies": _by_proxy(fusion) if isinstance(fusion, Fusion) else None,
        "threshold": detector.threshold,
        "thresholds_per_class": None if detector.groups is None else detector.thresholds.tolist(),
        "classes_with_own_threshold": None if detector.groups is None else len(detector.class_scores) - 1,
        "alpha": detector.alpha,
        "calibration_images": 0 if detector.calibration is None else len(detector.calibration),
        "held_out": about.held_out,
        "guarantee": guard.guarantee,
        "sanity": None if about.sanity is None else about.sanity.accepted(detector),
        "training_images": detector.n_train,
        "preprocessing": None if about.preprocessing is None else dict(about.preprocessing._items()),
        "exif": EXIF[about.upright],
        "model": about.model,
        "weights": about.weights,
        "head": {"layer": about.head, "fingerprint": detector.fingerprint},
        "network": about.network,
        "classes": detector.classes,
        "class_names": list(about.classes),
        "version": about.version,
    }


def lines(guard: Fitted) -> list[tuple[str, str]]:
    """(what, value) for people."""
    fact = facts(guard)
    detector, about = guard.detector, guard.about
    rows = [("method", fact["method"])]
    rows += [("", line) for line in chosen_lines(guard)]
    assert detector.scorer is not None
    rows += [("threshold", f"{detector.scorer.said(detector.threshold)}: images with a lower score are rejected")]
    if detector.groups is not None:
        rows += [("", f"{per_class_line(guard)}")]
    rows += [
        ("guarantee", guard.guarantee),
        *([("sanity", guard.sanity)] if guard.sanity else []),
        ("calibrated on", f"{format_count(fact['calibration_images'], 'image')}, alpha = {detector.alpha:g}"),
        ("fitted on", f"{detector.n_train:,} images"),
        ("preprocessing", preprocessing_line(about.preprocessing)),
        ("", f"EXIF orientation {fact['exif']}"),
        ("model", about.model + (f", weights {about.weights}" if about.weights else "")),
        ("head", f"{about.head or 'unknown'} (fingerprint {detector.fingerprint}; whole network {about.network})"),
        ("classes", _classes(detector.classes, about.classes)),
        ("made by", f"oodshape {about.version}"),
    ]
    return rows


def per_class_line(guard: Fitted) -> str:
    """How many classes have a threshold of their own."""
    own, classes = len(guard.detector.class_scores) - 1, guard.detector.classes or 0
    pool = format_count(len(guard.detector.class_scores[POOL]), "image")
    return (
        f"{own} of {classes} classes have a threshold of their own; the other {classes - own} have too few calibration "
        f"images and share one from a pool of {pool}"
    )


def preprocessing_line(way: Preprocessing | None) -> str:
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


def _classes(count: int | None, names: tuple[str, ...]) -> str:
    if not names:
        return f"{count} without names"
    return f"{count}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
