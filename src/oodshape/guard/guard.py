"""Guard: a detector with all that it takes to use it on image files: preprocessing, classes, promise, one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oodshape.core.errors import InputError
from oodshape.core.values import Value, load_value
from oodshape.images.listing import Given
from oodshape.images.preprocessing import Preprocessing
from oodshape.methods.detector import Detector
from oodshape.metrics.conformal import rejected_share
from oodshape.networks.opening import Model, Source, open_model

if TYPE_CHECKING:
    from oodshape.guard.check import Check
    from oodshape.guard.onnx import ExportReport
    from oodshape.guard.score import Scored
    from oodshape.methods.detector import Method

NO_GUARANTEE = "no guarantee: calibrated on training images"


@dataclass(frozen=True, eq=False, repr=False)
class About(Value):
    """What a guard knows beside its detector."""

    preprocessing: Preprocessing
    network: str  # fingerprint of all weights
    held_out: bool  # whether the network was not trained on the calibration images
    names: tuple[str, ...] = ()  # of the classes, where they are known
    method: str = ""  # its name in the table, where it has one
    model: str = ""  # as it was given: for messages only
    weights: str = ""
    head: str = ""  # the layer's name in the network
    native: Preprocessing | None = None  # what the model itself said when it was fitted
    upright: bool = False  # whether images are turned as their EXIF orientation says
    baseline: Detector | None = None  # a threshold on the softmax, fitted and calibrated on the same images
    version: str = ""  # of oodshape


@dataclass(frozen=True, eq=False, repr=False)
class Guard(Value):
    """A fitted and calibrated detector with the preprocessing, the classes and the promise that belong to it.

    guard = Guard.fit("zoo:digits-vit", images="train/", calibrate="val/")
    guard.save("guard.safetensors")
    for row in Guard.load("guard.safetensors").score("inbox/", model="zoo:digits-vit"):
        print(row.path, row.label, row.accepted)
    """

    detector: Detector
    about: About

    @classmethod
    def fit(
        cls,
        model: Model,
        *,
        images: Given,
        calibrate: Given | None = None,
        method: str | Method = "auto",
        alpha: float = 0.05,
        per_class: bool = False,
        preprocessing: Preprocessing | None = None,
        weights: str | Path | None = None,
        names: tuple[str, ...] = (),
        upright: bool = False,
        exportable: bool = False,
        limit: int | None = None,
        cache: str | Path | None = None,
        progress: bool | None = None,
    ) -> Guard:
        """The guard of a network, from images like those it was trained on and some that it was not trained on.

        At most a share `alpha` of images like the `calibrate` ones is rejected; without these the threshold comes
        from a part of the training images that is kept from fitting, and nothing is promised. `model` is a spec
        (`sources.FORMS`), a torch network or a Classifier; `preprocessing` stands in for the model's own;
        `exportable` keeps to methods that can go into an ONNX graph. Images that cannot be read are left out, with a
        warning.
        """
        from oodshape.guard.fit import fit_guard

        return fit_guard(
            open_model(model, weights=weights),
            images,
            calibrate,
            method=method,
            alpha=alpha,
            per_class=per_class,
            preprocessing=preprocessing,
            names=names,
            upright=upright,
            exportable=exportable,
            limit=limit,
            cache=None if cache is None else Path(cache),
            progress=progress,
        )

    def score(
        self,
        images: Given,
        model: Model,
        *,
        weights: str | Path | None = None,
        batch_size: int = 32,
        progress: bool | None = None,
    ) -> Iterator[Scored]:
        """A row for each image in the order given: path, label, score, p_value, accepted, error; read as it goes."""
        from oodshape.guard.score import score_images

        source = self.opened(model, weights=weights)
        return score_images(self, source, images, batch_size=batch_size, progress=progress)

    def check(
        self,
        id: Given,
        ood: Mapping[str, Given] | Given,
        model: Model,
        *,
        weights: str | Path | None = None,
        progress: bool | None = None,
    ) -> Check:
        """How well the guard tells a user's own ID images from OOD ones, beside a threshold on the softmax."""
        from oodshape.guard.check import check_guard

        return check_guard(self, self.opened(model, weights=weights), id, ood, progress=progress)

    def export(
        self,
        path: str | Path,
        model: Model,
        *,
        weights: str | Path | None = None,
        num_classes: int | None = None,
        images: Given | None = None,
    ) -> ExportReport:
        """Write network and guard as one ONNX file, images -> logits, score, accepted; how it compares with torch.

        The comparison takes the first of the `images`, or made-up ones; a difference is an error, and no file.
        """
        from oodshape.guard.export import export_guard

        return export_guard(self, self.opened(model, weights=weights, num_classes=num_classes), path, images)

    def opened(
        self,
        model: Model,
        *,
        weights: str | Path | None = None,
        num_classes: int | None = None,
        preprocessing: Preprocessing | None = None,
    ) -> Source:
        """The network of this guard, or an error that says how what was given differs from what it was fitted for."""
        about = self.about
        source = open_model(model, weights=weights, head=about.head or None, num_classes=num_classes)
        found = source.classifier.fingerprint
        if found != about.network:
            raise InputError(
                f"this guard was fitted for the network {_named(about.model, about.weights, about.network)}, but got "
                f"{_named(source.spec, source.weights, found)}; give the same network and weights, or fit a new guard"
            )
        for what, wanted, given in (
            ("preprocessing", about.preprocessing, preprocessing),
            ("preprocessing of its own", about.native, source.native),
        ):
            if wanted is not None and given is not None and wanted != given:
                raise InputError(
                    f"this guard was fitted with the {what} {wanted}, but got {given}; "
                    "prepare the images in the same way, or fit a new guard"
                )
        return source

    @property
    def promise(self) -> str:
        """What the threshold guarantees, in words."""
        if not self.about.held_out:
            return NO_GUARANTEE
        scores, alpha = self.detector.calibration, self.detector.alpha
        assert scores is not None
        assert alpha is not None
        low, high = rejected_share(len(scores), alpha)
        within = ", within each class that has a threshold of its own" if self.detector.groups is not None else ""
        return (
            f"of images like the {len(scores):,} held-out ones, at most {100 * alpha:g} % are rejected on average"
            f"{within} (split conformal); with these {len(scores):,}, between {100 * low:.1f} and {100 * high:.1f} %, "
            "99 times in 100"
        )

    def label(self, number: int) -> str | int:
        """A class by its name, or by its number where names are not known."""
        return self.about.names[number] if self.about.names else number

    def save(self, path: str | Path) -> None:
        """Write the guard to one safetensors file; `Detector.load` reads its detector."""
        self.detector.save(path, guard=self.about)

    @classmethod
    def load(cls, path: str | Path) -> Guard:
        """The guard that `save` wrote."""
        detector, about = Detector.load(path), load_value(path, "guard")
        if about is None:
            raise InputError(
                f"{path} holds a detector without preprocessing and network, as Detector.save writes it; "
                "make a guard of the model: oodshape fit, or Guard.fit"
            )
        return cls(detector, about)

    def __post_init__(self) -> None:
        """Refuse a detector that cannot decide, and names that do not fit."""
        _ = self.detector.threshold
        names, classes = self.about.names, self.detector.classes
        if names and len(names) != classes:
            raise InputError(f"the network has {classes} classes, but {len(names)} names were given")


def _named(spec: str, weights: str, fingerprint: str) -> str:
    loaded = f" with {Path(weights).name}" if weights else ""
    return f"{spec or 'given in Python'}{loaded} (fingerprint {fingerprint})"
