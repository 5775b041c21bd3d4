"""Guard: a detector with all that it takes to use it on image files: preprocessing, classes, promise, one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import oodshape
from oodshape.core import files
from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.core.values import load_values
from oodshape.guard.check import Check, check_guard
from oodshape.guard.explain import Explanation, explain_images
from oodshape.guard.export.onnx import ExportReport, export_guard
from oodshape.guard.fit.collect import PartFiles, part_files, parts_for, recipe_of
from oodshape.guard.fit.extractor import Extractor
from oodshape.guard.fit.fit import class_names, fit_detector, own_model
from oodshape.guard.fit.samples import Samples, check_kept
from oodshape.guard.fit.sanity import check_sanity
from oodshape.guard.fit.split import split_collected, split_images, split_tensors
from oodshape.guard.fitted import About, Fitted
from oodshape.guard.live import Live
from oodshape.guard.scoring.score import Feed, score_images
from oodshape.guard.verdict import Scored
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.listing import Given, image_set, one_by_one
from oodshape.images.sources.memory import check_prepared
from oodshape.methods.detector import Method
from oodshape.metrics.conformal import check_enough
from oodshape.networks.device import Precision
from oodshape.networks.loading import Model, open_model
from oodshape.networks.loading import prepared as native_preprocessing


@dataclass(frozen=True, eq=False, repr=False)
class Guard(Fitted):
    """A fitted and calibrated detector with the preprocessing, the classes and the promise that belong to it.

    guard = Guard.fit("zoo:digits-vit", images="train/", calibrate="val/")
    guard.save("guard.safetensors")
    for row in Guard.load("guard.safetensors").score("inbox/", model="zoo:digits-vit"):
        print(row.path, row.label, row.accepted)
    """

    @classmethod
    def fit(
        cls,
        model: Model,
        *,
        images: Given | None = None,
        parts: PartFiles | None = None,
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
        prepared: bool = False,
        cache: str | Path | None = None,
        progress: bool | None = None,
        head: str | None = None,
        device: str | None = None,
        precision: Precision | None = None,
        trust_code: bool = False,
        batch_size: int = 64,
        workers: int | None = None,
        keep_samples: int = 0,
    ) -> Guard:
        """The guard of a network, from images like those it was trained on and some that it was not trained on.

        At most a share `alpha` of images like the `calibrate` ones is rejected; without these the threshold comes
        from a part of the training images that is kept from fitting, and nothing is promised. Images are a folder, a
        list or a glob, pictures, arrays or tensors in memory, or a data set; with `prepared`, a DataLoader or any
        batches of tensors that the network takes as they are. In place of images, `parts` are files that `oodshape
        collect` wrote, a glob or a list of them. `model` is a spec (`opening.FORMS`), a torch network or
        a Classifier; `preprocessing` stands in for the model's own; `exportable` keeps to methods that can go into an
        ONNX graph. Images that cannot be read are left out, with a warning. `head` names the layer that gives the
        logits where it is not found; `device` (auto, cpu, cuda, cuda:N, mps, xpu) moves the network there; `precision`
        runs it under autocast; `workers` threads decode images. `keep_samples` of the fitting images are kept in the
        guard as thumbnails, to be shown beside an image that is explained: whoever has the guard can see them. A .pt2
        archive can run code when it is loaded: it needs `trust_code`.
        """
        source = open_model(
            model, weights=weights, head=head, device=device, precision=precision, trust_code=trust_code
        )
        recipe = recipe_of(method, exportable)
        if (images is None) == (parts is None):
            raise InputError("give images to fit on, or parts that were collected of them: one of the two")
        if keep_samples:
            check_kept(keep_samples, prepared or parts is not None)
        folder, samples, layer = None if cache is None else Path(cache), None, ""
        if prepared:
            found = split_tensors(
                source.classifier, images, calibrate, alpha, limit, recipe.wants_proxy, folder, progress
            )
        else:
            collected = None if parts is None else parts_for(source, part_files(parts), recipe, preprocessing)
            if collected is None:
                preprocessing = preprocessing or native_preprocessing(source.native)
            else:
                preprocessing, upright = collected.made.preprocessing, collected.made.upright
                layer = collected.made.head
            extractor = Extractor(source.classifier, preprocessing, upright, folder, progress, batch_size, workers)
            if collected is None:
                found = split_images(extractor, images, calibrate, recipe, alpha, limit)
            else:
                found = split_collected(extractor, collected, calibrate, alpha)
            samples = Samples.of(extractor, images, keep_samples) if keep_samples else None
        held_out = calibrate is not None
        detector, baseline = fit_detector(found, method, recipe, alpha, per_class=per_class, held_out=held_out)
        about = About(
            preprocessing=preprocessing,
            network=source.classifier.fingerprint,
            held_out=held_out,
            names=names or class_names(source, found.classes, found.train),
            method=method if isinstance(method, str) else "",
            model=source.spec,
            weights=source.weights,
            head=source.classifier.head_name or layer,  # known once the network has run
            native=source.native,
            upright=upright,
            baseline=baseline,
            version=oodshape.__version__,
            precision=source.classifier.precision,
            samples=samples,
            sanity=check_sanity(source.classifier, detector, found.sanity, found.train, found.held_out),
        )
        return cls(detector, about)

    def calibrate(
        self,
        images: Given | None = None,
        model: Model | None = None,
        *,
        alpha: float | None = None,
        per_class: bool | None = None,
        weights: str | Path | None = None,
        num_classes: int | None = None,
        cache: str | Path | None = None,
        progress: bool | None = None,
        head: str | None = None,
        device: str | None = None,
        precision: Precision | None = None,
        trust_code: bool = False,
        batch_size: int = 64,
        workers: int | None = None,
    ) -> Guard:
        """The same guard with a new threshold, without a new fit; what is not given stays as it was.

        The `images` must be like those to come, and the network must not have been trained on them: the guard cannot
        see that, and without it the promise is void. Without images, those of the calibration before serve another
        `alpha`, and no model is needed. A guard of a `zoo:` network knows its model.
        """
        detector, about = self.detector, self.about
        if images is None:
            if model is not None or per_class is not None:
                raise InputError("a model and thresholds per class need images: give calibrate images=... (--images)")
            if alpha is None:
                raise InputError(
                    "nothing would change: give images that the network was not trained on, another alpha, or both"
                )
            moved = None if about.baseline is None else replace(about.baseline, alpha=alpha)
            return type(self)(replace(detector, alpha=alpha), replace(about, baseline=moved))
        if model is None:
            model, own = own_model(self)
            weights = own if weights is None else weights
        source = self.opened(
            model,
            weights=weights,
            num_classes=num_classes,
            head=head,
            device=device,
            precision=precision,
            trust_code=trust_code,
        )
        alpha = detector.held_out()[1] if alpha is None else alpha
        held = image_set(images, upright=about.upright)
        check_enough(len(held), alpha)
        folder = None if cache is None else Path(cache)
        extractor = Extractor(source.classifier, self.preparation, about.upright, folder, progress, batch_size, workers)
        features = extractor.extracted(held)
        grouped = detector.groups is not None if per_class is None else per_class
        baseline = None if about.baseline is None else about.baseline.calibrate(features, alpha)
        return type(self)(
            detector.calibrate(features, alpha, per_class=grouped), replace(about, baseline=baseline, held_out=True)
        )

    def score(
        self,
        images: Given,
        model: Model,
        *,
        weights: str | Path | None = None,
        prepared: bool = False,
        batch_size: int = 32,
        progress: bool | None = None,
        head: str | None = None,
        device: str | None = None,
        precision: Precision | None = None,
        trust_code: bool = False,
        workers: int | None = None,
    ) -> Iterator[Scored]:
        """A row for each image in the order given: path, label, score, p_value, accepted, error; read as it goes.

        The decision on an image may differ between batch sizes only where its score lies within rounding error of the
        threshold.
        """
        # what cannot be images is refused here, not at the first row
        if prepared:
            check_prepared(images)
        else:
            images = one_by_one(images)
            _ = self.preparation
        source = self.opened(
            model, weights=weights, head=head, device=device, precision=precision, trust_code=trust_code
        )
        return score_images(self, source, images, Feed(batch_size, workers, progress, prepared))

    def explain(
        self,
        images: Given,
        model: Model,
        *,
        weights: str | Path | None = None,
        prepared: bool = False,
        batch_size: int = 32,
        progress: bool | None = None,
        head: str | None = None,
        device: str | None = None,
        precision: Precision | None = None,
        trust_code: bool = False,
        workers: int | None = None,
    ) -> list[Explanation]:
        """Why each image is accepted or not.

        Guesses, score and p-value, what each component says, which features speak
        for the class and against it, and the nearest of the samples that the guard keeps (`keep_samples`).
        """
        source = self.opened(
            model, weights=weights, head=head, device=device, precision=precision, trust_code=trust_code
        )
        return list(explain_images(self, source, images, Feed(batch_size, workers, progress, prepared)))

    def attach(
        self,
        model: Model,
        *,
        weights: str | Path | None = None,
        head: str | None = None,
        device: str | None = None,
        precision: Precision | None = None,
        trust_code: bool = False,
    ) -> Live:
        """The guard on its network, for one call per image or batch: `live(image).accepted`; see `Live`.

        Fingerprint and head are checked now, and not again.
        """
        source = self.opened(
            model, weights=weights, head=head, device=device, precision=precision, trust_code=trust_code
        )
        return Live(self, source.classifier)

    def check(
        self,
        id: Given,
        ood: Mapping[str, Given] | Given,
        model: Model,
        *,
        weights: str | Path | None = None,
        prepared: bool = False,
        progress: bool | None = None,
        head: str | None = None,
        device: str | None = None,
        precision: Precision | None = None,
        trust_code: bool = False,
        batch_size: int = 32,
        workers: int | None = None,
    ) -> Check:
        """How well the guard tells a user's own ID images from OOD ones, beside a threshold on the softmax."""
        source = self.opened(
            model, weights=weights, head=head, device=device, precision=precision, trust_code=trust_code
        )
        return check_guard(self, source, id, ood, Feed(batch_size, workers, progress, prepared))

    def export(
        self,
        path: str | Path,
        model: Model,
        *,
        weights: str | Path | None = None,
        num_classes: int | None = None,
        images: Given | None = None,
        head: str | None = None,
        trust_code: bool = False,
    ) -> ExportReport:
        """Write network and guard as one ONNX file, images -> logits, score, accepted; how it compares with torch.

        The comparison takes the first of the `images`, or made-up ones; a difference is an error, and no file.
        """
        source = self.opened(model, weights=weights, num_classes=num_classes, head=head, trust_code=trust_code)
        return export_guard(self, source, path, images)

    def save(self, path: str | Path) -> None:
        """Write the guard to one safetensors file; `Detector.load` reads its detector."""
        self.detector.save(path, guard=self.about)

    @classmethod
    def load(cls, path: str | Path) -> Guard:
        """The guard that `save` wrote."""
        detector, about = load_values(path, "detector", "value", "guard")
        if about is None:
            raise InputError(
                f"{path} holds a detector without preprocessing and network, as Detector.save writes it; "
                "make a guard of the model: oodshape fit, or Guard.fit"
            )
        with reading(path, files.WAY_OUT["detector"]):
            return cls(detector, about)
