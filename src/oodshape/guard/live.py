"""Live: may this image be trusted? A guard attached to its network, for one call per image or batch."""

from __future__ import annotations

import copy
import math
import operator
import os
import threading
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oodshape.core.errors import HeadError, InputError, NotTaken
from oodshape.guard.fitted import Fitted
from oodshape.guard.scoring.score_images import join_decisions
from oodshape.guard.verdict import NO_SCORE, Verdict
from oodshape.images.decode.preprocessing import check_shape, group_rows_by_size, stack_images
from oodshape.images.sources.memory import SequenceImages, is_image, iterate_prepared
from oodshape.images.sources.open_images import Given, stream_images
from oodshape.methods.detector import Decision
from oodshape.methods.guarded_net import GuardedNet
from oodshape.networks.classifier import Classifier, stamp_tensors
from oodshape.networks.device import find_device, without_autocast
from oodshape.networks.linear_maps import name_shape_errors


class Live:
    """Images of any kind -> verdicts, in one forward pass; make it with `guard.attach(net)`.

    Everything that can be checked once is checked by `attach`. The network is neither changed nor locked: it runs in a
    copy of its modules that shares its weights, so several threads may call it at the same time. A method that cannot
    be traced (ODIN, random noise) goes through a `Classifier` instead, which serves one caller at a time. Weights that
    torch has changed since raise an error; an edit through `.data` is not noticed.

    >>> from oodshape import Guard
    >>> from oodshape.images.datasets.digits import load_digits_sets
    >>> sets = load_digits_sets()
    >>> net = "zoo:digits-convnet"
    >>> live = Guard.fit(net, images=sets["train"], calibrate=sets["test"], method="energy", progress=False).attach(net)
    >>> live(sets["test"][0]).class_index
    0

    Args:
        guard: The guard.
        classifier: The guard's network.
    """

    def __init__(self, guard: Fitted, classifier: Classifier) -> None:
        """Use `guard.attach(net)`, which checks that the network is the guard's."""
        self.guard, self._classifier = guard, classifier
        self._limits = guard.detector.limits.tolist()  # one, or one per class
        self._guarded: GuardedNet | None = None
        self._ready = not guard.detector.method.exportable  # whether it is known how the network is read
        self._making = threading.Lock()
        self._tensors = [*classifier.net.parameters(), *classifier.net.buffers()]
        self._stamp = stamp_tensors(self._tensors)
        tables = ((each._parameters, each._buffers, each._modules) for each in classifier.net.modules())
        self._tables: list[dict[str, Any]] = list(chain.from_iterable(tables))
        self._parts = self._list_parts()  # kept: a new object could have the place of one that is gone
        self._like = next((each for each in self._tensors if each.is_floating_point()), torch.empty(0))
        size = None if guard.about.preprocessing is None else guard.about.preprocessing.size
        if size is not None:  # what the first call would check otherwise
            shape = (2, guard.preprocessing.channels, *size)
            self.tensors(torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32))

    def __call__(self, images: Given, *, prepared: bool = False) -> Verdict | list[Verdict]:
        """Return the verdict on one image, or a list of verdicts on several images.

        One image is a path, a PIL image, bytes, an array [H, W] or [H, W, C], or a tensor [C, H, W]. The decision may
        differ between batch sizes only if the score lies within rounding error of the threshold.

        Args:
            images: One image, or images of any kind that `Guard.fit` takes.
            prepared: The images are tensors [N, ...], or batches of them, that the network takes as they are.

        Returns:
            The verdict or verdicts. An image without a finite score has a verdict with `error`, and is not accepted.

        Raises:
            InputError: If an image cannot be read.
        """
        if prepared:
            return [verdict for batch, _ in iterate_prepared(images) for verdict in self._verdicts(batch)]
        listing = stream_images(images)
        pairs = list(listing.pairs())
        pixels = [self._pixels(listing, pair) for pair in pairs]
        found: dict[int, Verdict] = {}
        for rows in group_rows_by_size(pixels):
            batch = self.guard.preprocessing.normalize(stack_images([pixels[row] for row in rows]))
            found |= dict(zip(rows, self._verdicts(batch), strict=True))
        return found[0] if _is_one(images, pairs) else [found[row] for row in range(len(pixels))]

    @without_autocast()
    def tensors(self, batch: Tensor) -> Decision:
        """Decide on tensors that the network takes as they are.

        Args:
            batch: [N, ...] prepared images.

        Returns:
            Classes, scores, p-values and accepted, each [N]. An image without a finite score has NaN as its score and
            p-value, and is not accepted.

        Raises:
            InputError: If the weights of the network have changed, or the batch has another shape.
        """
        if not isinstance(batch, Tensor) or batch.ndim < 2 or len(batch) == 0 or batch.is_meta:
            what = f"{list(batch.shape)} on {batch.device}" if isinstance(batch, Tensor) else type(batch).__name__
            raise InputError(f"live.tensors takes a batch [N, ...] as the network does, got {what}")
        check_shape(batch.shape[1:], self.guard.about.input_shape)
        now = self._list_parts()
        replaced = len(now) != len(self._parts) or not all(map(operator.is_, now, self._parts))
        if replaced or stamp_tensors(self._tensors) != self._stamp:
            raise InputError(
                "the network's weights were changed or moved since the guard was attached: attach it again, and fit a "
                "new guard where they are other weights now"
            )
        if not self._ready:
            self._prepare(batch)
        guarded = self._guarded
        if guarded is None:
            return self._classified(batch)
        with torch.inference_mode():
            ready = batch.to(self._like.device, self._like.dtype if batch.is_floating_point() else None)
            with name_shape_errors(ready):
                if self._classifier.precision == "float32":
                    logits, scores, accepted = guarded(ready)
                else:  # the network alone runs in it, as in a Classifier
                    with self._classifier.casting():
                        features = guarded.features(ready)
                    logits, scores, accepted = guarded.score_features(features.float())
            classes = logits.argmax(dim=1)
            p_values = self.guard.detector.p_values(scores, classes)
            return Decision(classes, scores, torch.where(scores.cpu().isfinite(), p_values, torch.nan), accepted)

    def _list_parts(self) -> list[Any]:
        """The network's parameters, buffers and modules as they are now."""
        return list(chain.from_iterable(table.values() for table in self._tables))

    def _classified(self, batch: Tensor) -> Decision:
        """The same by the classifier: each image alone where one of them has no finite score."""
        try:
            return self.guard.detector.decide(self._classifier, batch)
        except (HeadError, NotTaken):
            raise
        except InputError:
            if len(batch) > 1:
                return join_decisions([self._classified(batch[row : row + 1]) for row in range(len(batch))])
            none = torch.full((1,), torch.nan, dtype=torch.float32)
            return Decision(torch.zeros(1, dtype=torch.int64), none, none.double(), torch.zeros(1, dtype=torch.bool))

    def to(self, device: torch.device | str) -> Live:
        """Return a copy on another device, with its own weights; the network given stays where it is.

        Args:
            device: The device, such as cuda:0.

        Returns:
            The copy.
        """
        place, given = find_device(str(device)), self._classifier
        net = copy.deepcopy(given.net).to(place)
        head = self.guard.about.head or given.head_name
        return Live(self.guard, Classifier(net, head, precision=given.precision))

    def __repr__(self) -> str:
        name = self.guard.about.method or repr(self.guard.detector.method)
        return f"Live({type(self._classifier.net).__name__}, {name})"

    def _prepare(self, batch: Tensor) -> None:
        """Make the copy of the network that calls go through, unless only a classifier can read it."""
        with self._making:
            if self._ready:
                return
            try:
                self._guarded = self.guard.detector.wrap(self._classifier, self.guard.about.head or None, batch)
            except InputError:  # its modules cannot be copied, or it is the batch, and then the classifier says so
                finite = self._classified(batch).scores.isfinite().cpu()
                if not finite.any():
                    return
                if not finite.all():  # the others show how the network is read
                    with suppress(InputError):
                        rest = batch[finite.to(batch.device)]
                        self._guarded = self.guard.detector.wrap(self._classifier, self.guard.about.head or None, rest)
            self._ready = True

    def _verdicts(self, batch: Tensor) -> list[Verdict]:
        classes, scores, p_values, accepted = (values.tolist() for values in self.tensors(batch))
        limits, name = self._limits, self.guard.label
        return [
            Verdict(name(each), each, score, p_value, yes, limits[each if len(limits) > 1 else 0])
            if math.isfinite(score)
            else NO_SCORE
            for each, score, p_value, yes in zip(classes, scores, p_values, accepted, strict=True)
        ]

    def _pixels(self, listing: Any, pair: tuple[str, int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        try:
            image = listing.read(pair, upright=self.guard.about.upright)
            return self.guard.preprocessing.pixels(image)
        except InputError as error:
            where = f"{pair[0]}: " if isinstance(listing, SequenceImages) else ""
            raise InputError(f"{where}{error}") from None


def _is_one(images: Any, pairs: list[tuple[str, int]]) -> bool:
    """Whether the input is a single image."""
    if isinstance(images, (str, os.PathLike)):
        return [path for path, _ in pairs] == [os.fspath(images)]
    return is_image(images) and getattr(images, "ndim", 3) <= 3
