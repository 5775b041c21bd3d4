"""Guard: a fitted and calibrated detector with the preprocessing, the classes and the guarantee that belong to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import numpy as np

import oodshape
from oodshape.core import files
from oodshape.core.errors import InputError
from oodshape.core.files import reading
from oodshape.core.options import (
    CacheOptions,
    CalibrateKeywords,
    CallKeywords,
    CheckKeywords,
    FitKeywords,
    HeadOptions,
    ImageOptions,
    ModelKeywords,
    ModelOptions,
    RunOptions,
    SubsetOptions,
    make_options,
    takes_options,
)
from oodshape.core.text import facts_html
from oodshape.core.values import load_values
from oodshape.features.features import Features
from oodshape.features.tensor_batches import extract_tensors
from oodshape.guard.check import Check, check_guard
from oodshape.guard.describe import NO_GUARD, facts, lines
from oodshape.guard.explain import Explanation, explain_batches
from oodshape.guard.export.onnx import ExportReport, export_guard
from oodshape.guard.fit.collect import PartFiles, list_part_files, load_parts, resolve_recipe
from oodshape.guard.fit.extractor import Extractor
from oodshape.guard.fit.fit import find_class_names, fit_detector, name_model
from oodshape.guard.fit.prints import make_prints
from oodshape.guard.fit.sanity import check_sanity
from oodshape.guard.fit.split import TRAINED, refuse_copies, refuse_prints, split_collected, split_images, split_tensors
from oodshape.guard.fitted import About, Fitted, compute_probe
from oodshape.guard.live import Live
from oodshape.guard.scoring.score_images import score_given, score_images
from oodshape.guard.verdict import Scored
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.duplicates import find_copies_in_sketch, join_sketches, make_sketch
from oodshape.images.identity import Keys
from oodshape.images.sources.image_set import limit_images
from oodshape.images.sources.memory import check_prepared
from oodshape.images.sources.open_images import Given, in_column, open_images, stream_images
from oodshape.methods.detector import Method
from oodshape.metrics.conformal import check_enough
from oodshape.networks.hugging_face import PROMPT
from oodshape.networks.loading import Model, OpenNet, open_model
from oodshape.networks.loading import override as native_preprocessing

SELECTED = "images that fit used, to select methods or to set the threshold"


class Guard(Fitted):
    """A fitted and calibrated detector with the preprocessing, the classes and the guarantee that belong to it.

    Make one with `Guard.fit`, or read one with `Guard.load`.

    >>> from oodshape.images.datasets.digits import load_digits_sets
    >>> sets = load_digits_sets()
    >>> net = "zoo:digits-convnet"
    >>> guard = Guard.fit(net, images=sets["train"], calibrate=sets["test"], method="energy", progress=False)
    >>> rows = list(guard.score(sets["photos"], model=net, progress=False))
    >>> sum(not row.accepted for row in rows) > 0.5 * len(rows)
    True

    Attributes:
        detector: The fitted method with its threshold.
        about: What the guard knows about its network, images and options.
    """

    def __repr__(self) -> str:
        """The method, the network and the guarantee, in three lines."""
        fact = facts(self)
        chosen = f" ({', '.join(fact['components'])})" if fact["components"] else ""
        network = f"{self.about.model or 'given in Python'}, {self.detector.classes} classes"
        return f"Guard: {fact['method']}{chosen}\n  network: {network}\n  guarantee: {self.guarantee}"

    def _repr_html_(self) -> str:
        """What the guard contains, in a notebook."""
        return facts_html(lines(self))

    @classmethod
    @takes_options(ModelOptions, HeadOptions, ImageOptions, SubsetOptions, CacheOptions, RunOptions)
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
        classes: Sequence[str] = (),
        prompt: str = PROMPT,
        upright: bool = False,
        **options: Unpack[FitKeywords],
    ) -> Guard:
        """Fit a guard to a network, from in-distribution images, and calibrate its threshold.

        Images are a folder, a list or a glob, pictures, arrays or tensors in memory, or a data set; with `prepared`,
        a DataLoader or any batches of tensors that the network takes as they are. Images that cannot be read are left
        out, with a warning.

        Args:
            model: A spec such as `timm:NAME` or `package.module:function`, a torch network or a Classifier.
            images: In-distribution images to fit on, such as the training set.
            parts: In place of images: files that `oodshape collect` wrote, as a glob or a list.
            calibrate: The calibration set: in-distribution images that the network was not trained on. Without it
                the threshold comes from a part of the training images, and there is no guarantee.
            method: A name from `METHODS`, or a `Method`; `auto` selects and fuses several.
            alpha: Upper bound on the expected fraction of ID images that are rejected by mistake.
            per_class: Calibrate one threshold for each predicted class.
            preprocessing: Preprocessing in place of the model's own.
            classes: Names of the classes, in the network's order. A model that compares images with texts (CLIP,
                SigLIP) makes its head of them.
            prompt: The sentence around a name for such a model; {} stands for the name.
            upright: Rotate images as their EXIF orientation says.

        Returns:
            The fitted and calibrated guard.

        Raises:
            InputError: If the model, the images or an option cannot be used; the message says what to change.
        """
        opening, layer = make_options(ModelOptions, options), make_options(HeadOptions, options)
        reading, run = make_options(ImageOptions, options), make_options(RunOptions, options)
        limit, cache = make_options(SubsetOptions, options).limit, make_options(CacheOptions, options).cache
        names = (classes,) if isinstance(classes, str) else tuple(classes)
        source = open_model(model, classes=names, prompt=prompt, **vars(opening), **vars(layer))
        recipe = resolve_recipe(method)
        if (images is None) == (parts is None):
            raise InputError("give images to fit on, or parts that were collected of them: one of the two")
        images, calibrate = (in_column(each, reading.column) for each in (images, calibrate))
        head = ""
        if reading.prepared:
            found = split_tensors(
                source.classifier, images, calibrate, alpha, limit, recipe.wants_proxy, cache, run.progress
            )
        elif parts is None:
            preprocessing = preprocessing or native_preprocessing(source.native)
            extractor = Extractor(source.classifier, preprocessing, upright, run, cache)
            found = split_images(extractor, images, calibrate, recipe, alpha, limit)
        else:
            collected = load_parts(source, list_part_files(parts), recipe, preprocessing)
            preprocessing, upright, head = collected.made.preprocessing, collected.made.upright, collected.made.head
            extractor = Extractor(source.classifier, preprocessing, upright, run, cache)
            found = split_collected(extractor, collected, calibrate, alpha)
        held_out = calibrate is not None
        trained = make_prints(found.train) if held_out else make_prints(found.train, found.held_out)
        if held_out:
            refuse_prints(found.held_out, trained, TRAINED)
        detector, baseline = fit_detector(found, method, recipe, alpha, per_class=per_class, held_out=held_out)
        trained_on, calibrated_on = found.sketches()
        selects = len(detector.held_out()[0]) < len(found.held_out)
        about = About(
            preprocessing=preprocessing,
            network=source.classifier.fingerprint,
            held_out=held_out,
            classes=find_class_names(source, found.classes, found.train, names),
            method=method if isinstance(method, str) else "",
            model=source.spec,
            weights=source.weights,
            head=source.classifier.head_name or head,  # known once the network has run
            native=source.native,
            upright=upright,
            baseline=baseline,
            version=oodshape.__version__,
            precision=source.classifier.precision,
            text=None if source.text is None else source.text.cpu().numpy(),
            input_shape=found.shape,
            probe=compute_probe(source.classifier, found.shape),
            trained_on=trained_on,
            calibrated_on=calibrated_on,
            selection=calibrated_on if selects else None,
            prints=np.concatenate([trained, make_prints(found.held_out)]) if selects else trained,
            sanity=check_sanity(source.classifier, detector, found.sanity, found.train, found.held_out),
        )
        return cls(detector, about)

    @takes_options(ModelOptions, ImageOptions, CacheOptions, RunOptions)
    def calibrate(
        self,
        images: Given | None = None,
        model: Model | None = None,
        *,
        alpha: float | None = None,
        per_class: bool | None = None,
        **options: Unpack[CalibrateKeywords],
    ) -> Guard:
        """Calibrate a new threshold without fitting again; what is not given stays as it was.

        Images that fit used are refused, also in another lossless file format; recompressed ones are not recognised.

        Args:
            images: The new calibration set. It must be like the images to come, and the network must not have been
                trained on it: the guard cannot check this, and without it the guarantee is void. Without images, the
                previous calibration scores give the threshold of another `alpha`, and no model is needed.
            model: The guard's network; a guard of a `zoo:` network opens it by itself.
            alpha: Upper bound on the expected fraction of ID images that are rejected by mistake.
            per_class: Whether each predicted class has its own threshold.

        Returns:
            A guard with the same detector and the new threshold.

        Raises:
            InputError: If there is nothing to change, too few images, or another network.
        """
        detector, about = self.detector, self.about
        if images is None:
            if model is not None or per_class is not None:
                raise InputError("a model and thresholds per class need images: give calibrate images=... (--images)")
            if alpha is None:
                raise InputError("nothing would change: give images that the network was not trained on, or an alpha")
            moved = None if about.baseline is None else replace(about.baseline, alpha=alpha)
            return type(self)(replace(detector, alpha=alpha), replace(about, baseline=moved))
        opening = make_options(ModelOptions, options)
        if model is None:
            model, weights = name_model(self)
            opening = opening if opening.weights is not None else replace(opening, weights=weights)
        about = replace(about, precision=opening.precision or about.precision)
        source = replace(self, about=about).open_network(model, opening)
        alpha = detector.held_out()[1] if alpha is None else alpha
        features, sketch = self._read(source, images, alpha, options)
        refuse_prints(features, about.prints, SELECTED)
        check_enough(len(features), alpha)
        grouped = detector.groups is not None if per_class is None else per_class
        baseline = None if about.baseline is None else about.baseline.calibrate(features, alpha)
        about = replace(about, baseline=baseline, held_out=True, calibrated_on=sketch)
        return type(self)(detector.calibrate(features, alpha, per_class=grouped), about)

    def _read(self, source: OpenNet, images: Given, alpha: float, options: CalibrateKeywords) -> tuple[Features, Keys]:
        """The features and the sketch of a calibration set, of which `alpha` needs a minimum."""
        reading, run = make_options(ImageOptions, options), make_options(RunOptions, options)
        sketches = ((self.about.trained_on, TRAINED), (self.about.selection, SELECTED))
        used = [(sketch, what) for sketch, what in sketches if sketch is not None]
        if reading.prepared:
            seen = extract_tensors(source.classifier, images, shape=self.about.input_shape, progress=run.progress)
            for sketch, others in used:
                rows = np.flatnonzero(np.isin(seen.identities, sketch))
                refuse_copies([f"image {row}" for row in rows], len(seen.identities), others)
            return Features.from_tensors(seen, source.classifier.head), join_sketches([seen.identities])
        held = open_images(in_column(images, reading.column), upright=self.about.upright)
        check_enough(len(held), alpha)
        for sketch, others in used:
            refuse_copies(find_copies_in_sketch(held, sketch), len(held), others)
        cache = make_options(CacheOptions, options).cache
        extractor = Extractor(source.classifier, self.preprocessing, self.about.upright, run, cache)
        return extractor.calibration(held, self.about.input_shape), make_sketch(held)

    @takes_options(ModelOptions, ImageOptions, RunOptions)
    def score(self, images: Given, model: Model, **options: Unpack[CallKeywords]) -> Iterator[Scored]:
        """Score images, in the order given.

        A decision may depend on the batch size only where the score lies within rounding error of the threshold.

        Args:
            images: Images of any kind that `fit` takes.
            model: The guard's network.

        Returns:
            An iterator over rows with path, label, score, p_value, accepted and error; images are read as it goes.

        Raises:
            InputError: If the images or the network cannot be used. An image that cannot be read is a row with an
                error.
        """
        reading = make_options(ImageOptions, options)
        # what cannot be images is refused here, not at the first row
        if reading.prepared:
            check_prepared(images)
        else:
            images = stream_images(in_column(images, reading.column))
            _ = self.preprocessing
        source = self.open_network(model, make_options(ModelOptions, options))
        run = make_options(RunOptions, options)
        return score_images(self, source, images, run, prepared=reading.prepared)

    @takes_options(ModelOptions, ImageOptions, RunOptions)
    def explain(self, images: Given, model: Model, **options: Unpack[CallKeywords]) -> list[Explanation]:
        """Explain why each image is accepted or rejected.

        Args:
            images: Images of any kind that `fit` takes.
            model: The guard's network.

        Returns:
            One explanation per image: predictions, score and p-value, and those of each component detector.

        Raises:
            InputError: If the images or the network cannot be used.
        """
        reading = make_options(ImageOptions, options)
        source = self.open_network(model, make_options(ModelOptions, options))
        given = images if reading.prepared else in_column(images, reading.column)
        run = make_options(RunOptions, options)
        return list(explain_batches(self, score_given(self, source, given, run, prepared=reading.prepared)))

    @takes_options(ModelOptions)
    def attach(self, model: Model, **options: Unpack[ModelKeywords]) -> Live:
        """Attach the guard to its network, for one call per image or batch: `live(image).accepted`.

        The network's fingerprint and head are checked once, here. A decision may depend on the batch size only where
        the score lies within rounding error of the threshold.

        Args:
            model: The guard's network.

        Returns:
            A callable that takes images and returns verdicts; see `Live`.

        Raises:
            InputError: If it is another network.
        """
        return Live(self, self.open_network(model, make_options(ModelOptions, options)).classifier)

    @takes_options(ModelOptions, ImageOptions, SubsetOptions, RunOptions)
    def check(
        self, id: Given, ood: Mapping[str, Given] | Given, model: Model, **options: Unpack[CheckKeywords]
    ) -> Check:
        """Check the guard on in-distribution and OOD images of your own, next to the MSP baseline.

        Args:
            id: In-distribution images, which should be accepted.
            ood: OOD images, which should be rejected: one set, or several by name.
            model: The guard's network.

        Returns:
            How many images of each set are accepted, AUROC and FPR95.

        Raises:
            InputError: If no image of a set can be read, or it is another network.
        """
        reading, limit = make_options(ImageOptions, options), make_options(SubsetOptions, options).limit
        source = self.open_network(model, make_options(ModelOptions, options))

        def given(images: Given) -> Given:
            images = in_column(images, reading.column)
            if limit is None:
                return images
            if reading.prepared:
                raise InputError("limit chooses among images; of prepared tensors give fewer batches")
            return limit_images(open_images(images, upright=self.about.upright), limit)

        sets = {name: given(each) for name, each in ood.items()} if isinstance(ood, Mapping) else given(ood)
        return check_guard(self, source, given(id), sets, make_options(RunOptions, options), prepared=reading.prepared)

    @takes_options(ModelOptions)
    def export(
        self,
        path: str | Path,
        model: Model,
        *,
        images: Given | None = None,
        progress: bool | None = None,
        **options: Unpack[ModelKeywords],
    ) -> ExportReport:
        """Export network and guard as one ONNX file: images -> logits, score, accepted.

        The graph runs in onnxruntime and is compared with torch before the file is written.

        Args:
            path: The file to write.
            model: The guard's network.
            images: Images to compare on; None: made-up ones.
            progress: Whether to show the steps; None: where standard error is a terminal.

        Returns:
            How the graph compares with torch.

        Raises:
            InputError: If the method cannot be exported or the graph differs from torch; then no file is written.
        """
        precision = self.about.precision
        if precision != "float32":
            raise InputError(
                f"this guard was calibrated in {precision}, but an exported graph runs in float32 and would decide "
                "otherwise: calibrate it in float32 first (oodshape calibrate --images ... --precision float32)"
            )
        source = self.open_network(model, make_options(ModelOptions, options))
        types = {str(each.dtype) for each in source.classifier.net.parameters() if each.is_floating_point()}
        if others := sorted(types - {"torch.float32"}):
            raise InputError(
                f"this network has weights of type {', '.join(others)}, but an exported graph takes float32 images: "
                "fit a guard for net.float(), and export that"
            )
        return export_guard(self, source, path, images, progress)

    def save(self, path: str | Path) -> None:
        """Write the guard to one safetensors file; `Detector.load` reads its detector.

        Args:
            path: The file to write.
        """
        self.detector.save(path, guard=self.about)

    @classmethod
    def load(cls, path: str | Path, *, trust_code: bool = False) -> Guard:
        """Read a guard from a file that `save` wrote.

        Args:
            path: The file to read.
            trust_code: Import the modules of custom methods that the file names.

        Returns:
            The guard.

        Raises:
            InputError: If the file is damaged, not a guard, or names code that is not trusted.
        """
        detector, about = load_values(path, "detector", "value", "guard", trust_code=trust_code)
        if about is None:
            raise InputError(f"{path}: {NO_GUARD}")
        with reading(path, files.WAY_OUT["detector"]):
            return cls(detector, about)
