"""Features: one data set through one network, streamed in chunks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from operator import add
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.options import CacheOptions, ExtractKeywords, ImageOptions, RunOptions, make_options, takes_options
from oodshape.features.chunks import RowSubset, as_tensor, check_finite
from oodshape.features.extraction import Extraction
from oodshape.features.feature_stats import FeatureStats, RunningStats, interpolate
from oodshape.features.kernels import bracket, interval_sums
from oodshape.features.moments import SCATTERS, Moments, RunningMoments, pick_bank
from oodshape.features.sum_kernels import add_columns
from oodshape.features.tensor_batches import ExtractedTensors, extract_tensors
from oodshape.images import identity
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import find_identities
from oodshape.images.sources.open_images import Given, in_column, open_images
from oodshape.networks.classifier import Classifier
from oodshape.networks.head import Head

CHUNK_BYTES = 16 << 20
SAMPLED_ROWS = 256  # whose values say between which limits a quantile is searched
WITHOUT_CLASSES = frozenset(["bank", "scatter", "unit_scatter", "squares", "profile"])  # need no product with the head
ABOUT_MEANS = frozenset(["squares"])  # who asks for these takes them around the mean


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, "float16", "float32", "float64")


def _check_matrix(features: Any, width: int) -> Any:
    """[images, features] as they were given, a tensor or an array; what cannot be features for a head is refused."""
    values = features.detach() if isinstance(features, Tensor) else np.asanyarray(features)
    if values.ndim != 2:
        raise InputError(f"features must have shape [images, features], got {list(values.shape)}")
    if 0 in values.shape:
        raise InputError(f"features are empty: shape {list(values.shape)}")
    if values.shape[1] != width:
        raise InputError(f"features have {values.shape[1]} columns, but the head reads {width}: another network's?")
    if (values.dtype if isinstance(values, Tensor) else values.dtype.name) not in FLOATS:
        raise InputError(f"features must be float16, float32 or float64, got {values.dtype}")
    return values


def check_integers(values: Any, name: str, n: int, classes: int | None = None) -> Tensor | None:
    """[n] int64, or None where none are given; `classes` bounds them."""
    if values is None:
        return None
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InputError(f"{name} must be {n} integers, one per image, got {array.dtype}{list(array.shape)}")
    if classes is not None and (array.min() < 0 or array.max() >= classes):
        raise InputError(f"{name} must lie in 0..{classes - 1}, got {array.min()}..{array.max()} for {classes} classes")
    return torch.from_numpy(array.astype(np.int64))


def check_labels(labels: Any, classes: int, names: Sequence[str] = ()) -> None:
    """Refuse labels that the network has no class for; labels of folders that are not its classes (`names`) may be."""
    if labels is not None and len(names) in (0, classes) and int(labels.max()) >= classes:
        raise InputError(
            f"label {int(labels.max())} is not in 0..{classes - 1}: the network has {classes} classes; number them in "
            "its order, or give images without labels"
        )


TOLD = 200  # labelled images, from which on a network without training is told from a poor one


def warn_if_by_chance(accuracy: float | None, images: int, classes: int) -> bool:
    """Warn of labels that the network predicts no better than chance, and return whether it does."""
    margin = 3 * math.sqrt(1 / classes / images) if images >= TOLD else 0.0
    guessed = accuracy is not None and images >= FEWEST_LABELS and accuracy <= 1 / classes + margin
    if guessed:
        warnings.warn(
            f"the labels are predicted as by chance ({100 * (accuracy or 0):.1f} % of {images:,}): was the network "
            "ever trained, and are they in the order of its classes?",
            stacklevel=3,
        )
    return guessed


FEWEST_LABELS = 10  # of fewer, chance may predict none
AGREEING = 0.8  # the share of a label's images that one prediction has, to tell the order of classes
ORDERS = 20  # of the features, that the head is compared with
JUDGED_ROWS, PRODUCTS = 256, 100_000_000  # at most, of the rows that it is judged by and their products with the head
FEWEST_ROWS, NARROWEST = 100, 16  # images and features: of fewer, a poor network is not told from an untrained one


class Features:
    """The penultimate features of a data set, the head that reads them, and what it predicts.

    >>> features = Features.from_arrays([[1.0, 0.0], [0.0, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]))
    >>> len(features), features.width, features.predictions.tolist()
    (2, 2, [0, 1])
    """

    def __init__(
        self,
        values: Any,
        head: Head,
        labels: Tensor | None,
        predictions: Tensor | None,
        identities: identity.Keys | None = None,
    ) -> None:
        """Use `Features.from_arrays`, which checks its arguments.

        Args:
            values: [N, M] values.
            head: The head.
            labels: [N] class numbers or None.
            predictions: [N] predicted classes or None.
            identities: [N] keys of the images or None.
        """
        self._values = values
        self.head = head
        self.labels = labels
        self._predictions = predictions
        self._identities = identities  # None: row numbers
        self._stats: FeatureStats | None = None
        self._sums: NDArray[np.float64] | None = None
        self._moments: Moments | None = None
        self._quantiles: dict[float, float] = {}
        self._interval_sums: dict[tuple[float, float, int], NDArray[np.float64]] = {}

    @classmethod
    def from_arrays(
        cls,
        features: Any,
        head: Head | tuple[Any, Any],
        labels: Any = None,
        predictions: Any = None,
        identities: Any = None,
    ) -> Features:
        """Make features from arrays.

        Args:
            features: [N, M] numbers: numpy, torch or memory-mapped; float16, float32 or float64.
            head: The pair (weight [C, M], bias [C] or None).
            labels: [N] class numbers, -1 if unknown.
            predictions: [N] predicted classes; computed once when first needed if not given.
            identities: [N] paths or whole numbers that identify the images; random choices depend on them. By default
                the row numbers 0, 1, ...; if parts are added up, give each image its own number.

        Returns:
            The features.

        Raises:
            InputError: If shapes or types do not fit.
        """
        head = Head.of(head)
        values = _check_matrix(features, head.width)
        n = len(values)
        return cls(
            values,
            head,
            check_integers(labels, "labels", n),
            check_integers(predictions, "predictions", n, head.classes),
            None if identities is None else identity.check(identities, n),
        )

    @classmethod
    @takes_options(ImageOptions, CacheOptions, RunOptions)
    def extract(
        cls,
        classifier: Classifier,
        images: Given,
        preprocessing: Preprocessing | None = None,
        *,
        dtype: Literal["float32", "float16"] = "float32",
        **options: Unpack[ExtractKeywords],
    ) -> Features:
        """Extract the features of images: once through the network.

        With a `cache` folder they are written there in chunks and memory-mapped afterwards. A later call with the
        same weights, preprocessing and images runs two images only, to check that the network still gives these
        features; after a crash it resumes at the last whole chunk. Without a cache they stay in memory. Features of
        prepared tensors are kept by the content of each image.

        Args:
            classifier: The network with its head.
            images: Images of any kind (`images.sources.open_images.ACCEPTED`).
            preprocessing: Preprocessing of the images; not needed for prepared batches.
            dtype: Type in which features are stored.

        Returns:
            The features, with labels and identities of the images.

        Raises:
            InputError: If an image cannot be read, or the network does not accept the images.
        """
        reading, run = make_options(ImageOptions, options), make_options(RunOptions, options)
        cache = make_options(CacheOptions, options).cache
        if reading.prepared:
            seen = extract_tensors(classifier, images, dtype, cache=cache, progress=run.progress)
            return cls.from_tensors(seen, classifier.head)
        if preprocessing is None:
            raise InputError("give the preprocessing of the images (preprocessing=...), or prepared=True for tensors")
        images = open_images(in_column(images, reading.column))
        return cls.extracted(Extraction(classifier, images, preprocessing, dtype, run), cache)[0]

    @classmethod
    def from_tensors(cls, seen: ExtractedTensors, head: Head) -> Features:
        """Make features from images that were given as tensors.

        Args:
            seen: What `extract_tensors` returned.
            head: The head of the network.

        Returns:
            The features.
        """
        return cls.from_arrays(seen.features, head, seen.labels, seen.predictions, seen.identities)

    @classmethod
    def extracted(cls, extraction: Extraction, cache: Path | None) -> tuple[Features, NDArray[np.bool_]]:
        """Extract features, and report which images they hold.

        Args:
            extraction: The network, the images and the options.
            cache: Folder that keeps features between runs, or None.

        Returns:
            The features, and [N] whether each image is among them; with `skip`, only the readable images are.
        """
        values, predictions = extraction.arrays(cache)
        head, images = extraction.classifier.head, extraction.images
        if head.weight.device.type != "cpu":
            head = head.to("cpu")  # where the features are kept
        n, read = len(predictions), predictions >= 0
        # a set of a user's own may say anything of its images; the rest was made here
        labels, which = check_integers(images.labels, "labels", n), identity.check(find_identities(images), n)
        kept = cls(values, head, labels, torch.from_numpy(np.maximum(predictions, 0)), which)
        return kept if read.all() else kept[np.flatnonzero(read)], read

    def __len__(self) -> int:
        return int(self._values.shape[0])

    def __repr__(self) -> str:
        return f"Features({len(self)} x {self.width} {self._values.dtype}, head {self.head.fingerprint})"

    def __getitem__(self, rows: slice | Any) -> Features:
        """The features of some rows; nothing is copied: a slice is a view, a list of indices reads by chunk."""
        rows = rows if isinstance(rows, slice) else np.asarray(rows)
        chosen = torch.from_numpy(np.arange(len(self))[rows].copy())
        view = isinstance(rows, slice) and (rows.step or 1) > 0 and not isinstance(self._values, RowSubset)
        values = self._values[rows] if view else RowSubset(self._values, chosen)
        if len(chosen) == 0:
            raise InputError(f"no row of {len(self)} is chosen")
        labels = None if self.labels is None else self.labels[chosen]
        predictions = None if self._predictions is None else self._predictions[chosen]
        return Features(values, self.head, labels, predictions, self.identities[chosen.numpy()])

    @property
    def identities(self) -> identity.Keys:
        """[N] uint64: which image each row is of; row numbers where none were given."""
        return identity.from_numbers(len(self)) if self._identities is None else self._identities

    def with_labels(self, labels: Tensor) -> Features:
        """Replace the labels.

        Args:
            labels: [N] class numbers.

        Returns:
            The same features with these labels.
        """
        return Features(self._values, self.head, labels, self._predictions, self._identities)

    def with_head(self, head: Head) -> Features:
        """Replace the head, which predicts again; the labels are dropped.

        Args:
            head: A head of the same width.

        Returns:
            The same features behind the other head.

        Raises:
            InputError: If the width differs.
        """
        if head.width != self.width:
            raise InputError(f"features have {self.width} columns, but the head reads {head.width}")
        return Features(self._values, head, None, None, self._identities)

    @property
    def width(self) -> int:
        return int(self._values.shape[1])

    @property
    def half(self) -> bool:
        """Whether the values are float16, each of which has a bin of its own."""
        return bool(self._values.dtype in (np.float16, torch.float16))

    @property
    def direct(self) -> bool:
        """Whether the values can be read where they lie, in memory or in a file, without a copy."""
        if isinstance(self._values, RowSubset):
            return False
        kept = self._values.dtype in (np.float16, np.float32, torch.float16, torch.float32)
        if isinstance(self._values, Tensor):
            return kept and self._values.is_contiguous()
        return kept and bool(self._values.flags.c_contiguous) and bool(self._values.dtype.isnative)

    def chunks(self, *, whole: bool = False, parts: int = 1) -> Iterator[tuple[int, Tensor]]:
        """Iterate over consecutive runs of rows.

        Args:
            whole: Return a single run if that needs no memory, for loops that allocate nothing per row.
            parts: Divide the chunks by this number, for loops that need several times a row's memory.

        Returns:
            An iterator over (first row, [n, M] values as stored, float16 or float32).
        """
        rows = len(self) if whole and self.direct else max(1, CHUNK_BYTES // parts // (4 * self.width))
        for first in range(0, len(self), rows):
            yield first, as_tensor(self._values[first : first + rows])

    def check_finite(self) -> None:
        """Refuse NaN and infinite values.

        Raises:
            InputError: If there is such a value; the message names the first row.
        """
        for first, raw in self.chunks():
            check_finite(raw, first)

    def classified_chunks(self, *, whole: bool = False) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Iterate over runs of rows with their predicted classes; predictions are kept. Values are not checked for NaN.

        Args:
            whole: Return a single run if the predictions are known and it needs no memory.

        Returns:
            An iterator over (first row, values, predicted classes).
        """
        for first, raw, classes, _ in self.chunks_with_logits(whole=whole):
            yield first, raw, classes

    def chunks_with_logits(self, *, whole: bool = False) -> Iterator[tuple[int, Tensor, Tensor, Tensor | None]]:
        """Iterate as `classified_chunks`, with the logits if they had to be computed.

        Args:
            whole: Return a single run if the predictions are known and it needs no memory.

        Returns:
            An iterator over (first row, values, predicted classes, logits or None).
        """
        if self._predictions is not None:
            for first, raw in self.chunks(whole=whole):
                yield first, raw, self._predictions[first : first + len(raw)], None
            return
        # one tensor for all: small ones kept between large ones would scatter the heap
        predictions = torch.empty(len(self), dtype=torch.int64, device=self.head.weight.device)
        for first, raw in self.chunks():
            classes = predictions[first : first + len(raw)]
            logits = self.head.logits(raw.float())
            classes[:] = logits.argmax(dim=1)
            yield first, raw, classes, logits
        self._predictions = predictions

    @cached_property
    def predictions(self) -> Tensor:
        """[N] int64: the class that the head predicts (bias included)."""
        if self._predictions is None:
            for first, raw, _ in self.classified_chunks():
                check_finite(raw, first)
        assert self._predictions is not None
        return self._predictions

    @property
    def predictions_known(self) -> bool:
        """Whether the predictions were given or have been computed."""
        return self._predictions is not None

    @property
    def stats(self) -> FeatureStats:
        """The statistics of these features: one pass, the first time; kept afterwards."""
        if self._stats is None:
            self._stats = FeatureStats.of(self)
        return self._stats

    @property
    def sums(self) -> NDArray[Any]:
        """[M] float64: the sum of each feature, as `stats` has them, by a pass that makes no histogram; kept."""
        if self._stats is not None:
            return self._stats.sums
        if self._sums is None:
            sums = np.zeros(self.width)
            for _, raw in self.chunks(whole=not self.half):
                add_columns(raw.float().cpu(), sums)
            if not np.isfinite(sums).all():
                self.check_finite()
            self._sums = sums
        return self._sums

    def quantile(self, q: float) -> float:
        """Compute the exact q-quantile of all values (linear interpolation, numpy's default); the result is kept.

        A sample of rows gives bounds; one pass counts the values outside them and sorts those inside.

        Args:
            q: A fraction in [0, 1].

        Returns:
            The quantile.
        """
        if self.half and self._stats is not None:  # each value has a bin of its own
            return self._stats.quantile(q)
        if q not in self._quantiles:
            values, found = self._sorted_sample, None
            # the values of a row differ, so it counts as 16 images: wider limits cost time, a miss another pass
            reach = math.sqrt(q * (1 - q) / (16 * min(len(self), SAMPLED_ROWS)))
            while found is None:
                first, last = (math.floor((q + side * reach) * len(values)) for side in (-1, 1))
                low = -math.inf if first <= 0 else float(values[min(first, len(values) - 1)])
                high = math.inf if last >= len(values) - 1 else float(values[last])
                found = self._quantile_between(q, low, high)
                reach = 8 * reach + 1e-3
            self._quantiles[q] = found
        return self._quantiles[q]

    @cached_property
    def _sorted_sample(self) -> NDArray[np.float32]:
        """The values of some rows, ascending."""
        rows = self[np.linspace(0, len(self) - 1, min(len(self), SAMPLED_ROWS)).astype(np.int64)]
        return np.sort(np.concatenate([raw.float().cpu().numpy().ravel() for _, raw in rows.chunks()]))

    def _quantile_between(self, q: float, low: float, high: float) -> float | None:
        """The q-quantile if it lies between the limits."""
        counts, inside = np.zeros(3, np.int64), []
        for _, raw in self.chunks(whole=not self.half):
            some, values = bracket(raw.float().cpu(), low, high)
            counts += some
            inside.append(values)
        below, at_low, at_high = counts.tolist()
        at_high = at_high if low < high else 0  # those at low
        middle = np.sort(np.concatenate(inside))
        if not np.isfinite(middle[-1:]).all():
            self.check_finite()
        total = len(self) * self.width
        place = (total - 1) * q
        lower = min(int(place), max(total - 2, 0))
        ranked = []
        for rank in (lower, min(lower + 1, total - 1)):
            rank -= below + at_low
            if rank < -at_low or rank >= len(middle) + at_high:
                if high == np.inf and low == -np.inf:
                    self.check_finite()
                return None
            ranked.append(low if rank < 0 else high if rank >= len(middle) else float(middle[rank]))
        return interpolate(ranked[0], ranked[1], place - lower)

    def interval_sums(self, origin: float, scale: float, k: int) -> NDArray[np.float64]:
        """Sum the impact w_max z and z^2 over the values in each interval of a grid; the result is kept.

        Args:
            origin: Lower limit of the first interval.
            scale: Intervals per unit.
            k: Number of intervals.

        Returns:
            [K, 2] sums.
        """
        grid = origin, scale, k
        if grid not in self._interval_sums:
            weight, total = self.head.weight.cpu(), np.zeros((k + 2, 2))
            for _, raw, classes in self.classified_chunks():
                total += interval_sums(raw.float().cpu(), classes.cpu(), weight, (origin, scale), k + 2)
            if not np.isfinite(total).all():
                self.check_finite()
            self._interval_sums[grid] = total[1:-1]
        return self._interval_sums[grid]

    def moments(self, needs: frozenset[str], *, stats: bool = True) -> Moments:
        """Collect the sums that some methods need besides `stats`, in one pass; they are kept.

        Args:
            needs: Names of the statistics.
            stats: Collect `FeatureStats` in the same pass if they are not known.

        Returns:
            The sums.
        """
        known = frozenset() if self._moments is None else frozenset(self._moments.parts)
        if self._moments is None or needs - known:
            picked = pick_bank(self._values, self.identities) if "bank" in needs - known else {}
            if picked and needs - known == {"bank"}:
                self.check_finite()
            more = self._collected(needs - known - picked.keys(), stats=stats)
            more = more.holding({**more.parts, **picked})
            self._moments = more if self._moments is None else self._moments.combine(more)
        return self._moments

    def add_scatters(self, needs: frozenset[str], *parts: Features) -> None:
        """Collect scatters as the sum of those of parts, which split these rows and keep theirs.

        Args:
            needs: Names of the statistics; those that are not scatters are ignored.
            parts: Features that together have the same rows.
        """
        scatters, kept = needs & SCATTERS.keys(), []
        chosen: dict[str, bool | None] = {}  # whether products are float64: what the first part shows holds for all
        for part in parts if scatters else ():
            running = RunningMoments(part, scatters)
            for name, scatter in running.scatters.items():
                scatter.double = scatter.double or chosen.get(name)
            for first, raw in part.chunks():
                running.add(first, raw, torch.zeros(len(raw), dtype=torch.int64))
            chosen = {name: scatter.double for name, scatter in running.scatters.items()}
            kept.append(running.result())
            part._moments = kept[-1] if part._moments is None else part._moments.combine(kept[-1])
        if kept:
            total = reduce(add, (moments.only(scatters, self.head) for moments in kept))
            self._moments = total if self._moments is None else self._moments.combine(total)

    def _collected(self, needs: frozenset[str], *, stats: bool) -> Moments:
        """Moments of the features, and where they are not known on the way the statistics, or the sums alone."""
        if self._stats is not None or not needs:
            return Moments.of(self, needs)
        moments = RunningMoments(self, needs)
        statistics = RunningStats(self.head, len(self), half=self.half) if stats else None
        sums = np.zeros(self.width) if statistics is None and needs & ABOUT_MEANS else None
        headless = statistics is None and needs <= WITHOUT_CLASSES
        plain = ((first, raw, torch.zeros(len(raw), dtype=torch.int64), None) for first, raw in self.chunks())
        for first, raw, classes, logits in plain if headless else self.chunks_with_logits():
            moments.add(first, raw, classes, logits)
            if statistics is not None:
                statistics.add(raw, classes)
            if sums is not None:
                add_columns(raw.float().cpu(), sums)
        self._stats = None if statistics is None else statistics.result()
        self._sums = self._sums if sums is None else sums
        return moments.result()

    def forget(self, parts: frozenset[str]) -> None:
        """Drop some of the sums; they are collected again when needed.

        Args:
            parts: Names of the statistics.
        """
        if self._moments is not None and self._moments.parts.keys() & parts:
            self._moments = self._moments.without(parts)

    @cached_property
    def head_fits(self) -> bool:
        """Whether the head reads these features better than it would read them in any of 20 random orders.

        By chance a head drawn at random does so once in ten times or less. The mean largest logit is compared, and the
        variance of the logits, both less the mean logit of each image: one of them is larger for trained networks.
        """
        classes, width = self.head.weight.shape
        if classes < 3 or width < NARROWEST:  # too few to tell: a little training shows too little
            return True
        rows = max(2, min(JUDGED_ROWS, PRODUCTS // (classes * width)))
        z = torch.cat([raw.cpu().float() for _, raw in self[:: max(1, len(self) // rows)].chunks()])[:rows]
        weight, draw = self.head.weight.cpu(), torch.Generator().manual_seed(0)
        orders = [torch.arange(width), *(torch.randperm(width, generator=draw) for _ in range(ORDERS))]
        logits = torch.stack([z[:, order] for order in orders]) @ (weight - weight.mean(dim=0)).T
        own, *others = torch.stack([logits.amax(dim=2).mean(dim=1), logits.var(dim=1).sum(dim=1)], dim=1)
        return not bool((own <= torch.stack(others).amax(dim=0)).all())

    def warn_if_untrained(self) -> None:
        """Warn of a head that does not belong to these features, where no labels show that it does."""
        chance = 1 / self.head.classes
        known = self.accuracy is not None and self.accuracy > chance + 3 * math.sqrt(chance / len(self))
        if len(self) >= FEWEST_ROWS and not known and not self.head_fits:
            warnings.warn(
                "the head gives these features no larger logits than it gives them in random order: was the network "
                "ever trained, and were all its weights loaded? Its classes and logits mean nothing otherwise",
                stacklevel=3,
            )

    @property
    def accuracy(self) -> float | None:
        """The share of labelled images whose class is predicted, or None without labels."""
        if self.labels is None or not bool((self.labels >= 0).any()):
            return None
        known = self.labels >= 0
        return float((self.predictions.cpu()[known] == self.labels[known]).double().mean())

    def moved_class(self) -> tuple[int, int] | None:
        """Find a label whose images the network gives another class, if that class's own images get another one too.

        Returns:
            The label and the class that the network gives its images; None if the labels follow the network's order.
        """
        if self.labels is None:
            return None
        labels, predicted = self.labels.numpy(), self.predictions.cpu().numpy()
        most: dict[int, int] = {}
        for label in np.unique(labels[labels >= 0]).tolist():
            counts = np.bincount(predicted[labels == label])
            if counts.sum() >= FEWEST_LABELS and counts.max() >= AGREEING * counts.sum():
                most[label] = int(counts.argmax())
        return next(((label, to) for label, to in most.items() if to != label and most.get(to, to) != to), None)
