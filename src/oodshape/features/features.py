"""Features: one data set through one network, streamed in chunks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features import kernels
from oodshape.networks.head import Head

if TYPE_CHECKING:
    from oodshape.features.moments import Moments
    from oodshape.features.statistics import FeatureStats
    from oodshape.images.image_set import ImageSet
    from oodshape.images.preprocessing import Preprocessing
    from oodshape.networks.classifier import Classifier

CHUNK_BYTES = 16 << 20
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class Picked:
    """Some rows of an array, read when they are asked for."""

    base: Any  # [N, M] numpy, torch, memory-mapped, or picked itself
    rows: Tensor  # [n] int64

    @property
    def shape(self) -> tuple[int, int]:
        """(n, M)."""
        return len(self.rows), int(self.base.shape[1])

    @property
    def dtype(self) -> Any:
        """That of the array."""
        return self.base.dtype

    def __getitem__(self, rows: slice | Tensor) -> Any:
        """The values of some of the rows."""
        chosen = self.rows[rows]
        return self.base[chosen.numpy() if isinstance(self.base, np.ndarray) else chosen]


class Features:
    """The penultimate features of a data set, the head that reads them, and what it predicts.

    >>> features = Features.from_arrays([[1.0, 0.0], [0.0, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]))
    >>> len(features), features.width, features.predictions.tolist()
    (2, 2, [0, 1])
    """

    def __init__(self, values: Any, head: Head, labels: Tensor | None, predictions: Tensor | None) -> None:
        """Use `Features.from_arrays`, which checks what it is given."""
        self._values = values
        self.head = head
        self.labels = labels
        self._predictions = predictions
        self._stats: FeatureStats | None = None
        self._moments: Moments | None = None

    @classmethod
    def from_arrays(
        cls,
        features: Any,
        head: Head | tuple[Any, Any],
        labels: Any = None,
        predictions: Any = None,
    ) -> Features:
        """Features from [N, M] numbers (numpy, torch, memory-mapped; float16, 32 or 64).

        `head` is the pair (weight [C, M], bias [C]); labels are -1 where there is none; predictions are
        computed once, when first needed, unless they are given.
        """
        head = Head.of(head)
        values = features.detach() if isinstance(features, Tensor) else np.asanyarray(features)
        if values.ndim != 2:
            raise InputError(f"features must have shape [images, features], got {list(values.shape)}")
        if 0 in values.shape:
            raise InputError(f"features are empty: shape {list(values.shape)}")
        if values.shape[1] != head.width:
            raise InputError(
                f"features have {values.shape[1]} columns, but the head reads {head.width}; "
                "are they from another network?"
            )
        if (values.dtype if isinstance(values, Tensor) else _torch_dtype(values.dtype)) not in FLOATS:
            raise InputError(f"features must be float16, float32 or float64, got {values.dtype}")
        n = len(values)
        return cls(
            values,
            head,
            _integers(labels, "labels", n),
            _integers(predictions, "predictions", n, head.classes),
        )

    @classmethod
    def extract(
        cls,
        classifier: Classifier,
        images: ImageSet,
        preprocessing: Preprocessing,
        *,
        cache: str | Path | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        batch_size: int = 64,
        workers: int | None = None,
        progress: bool | None = None,
    ) -> Features:
        """The features of a data set: its images through the network, once.

        With a `cache` folder they are written there in chunks and memory-mapped afterwards; a later call with the
        same weights, preprocessing and images runs two images only, to see that the network still gives these
        features (else they are made anew), and one after a crash resumes at the last whole chunk.
        Without it they stay in memory. `workers` threads decode image files ahead (None: one per core, at most 4).
        On a terminal a bar shows the progress, unless progress=False.
        """
        from oodshape.features.extraction import Extraction

        extraction = Extraction(classifier, images, preprocessing, dtype, batch_size, workers, progress)
        return extraction.features(None if cache is None else Path(cache))

    def __len__(self) -> int:
        """The number of images."""
        return int(self._values.shape[0])

    def __repr__(self) -> str:
        """What it holds, in a line."""
        return f"Features({len(self)} x {self.width} {self._values.dtype}, head {self.head.fingerprint})"

    def __getitem__(self, rows: slice | Any) -> Features:
        """The features of some rows; nothing is copied: a slice is a view, a list of indices reads by chunk."""
        rows = rows if isinstance(rows, slice) else np.asarray(rows)
        chosen = torch.from_numpy(np.arange(len(self))[rows])
        view = isinstance(rows, slice) and (rows.step or 1) > 0 and not isinstance(self._values, Picked)
        values = self._values[rows] if view else Picked(self._values, chosen)
        if len(chosen) == 0:
            raise InputError(f"no row of {len(self)} is chosen")
        labels = None if self.labels is None else self.labels[chosen]
        return Features(values, self.head, labels, None if self._predictions is None else self._predictions[chosen])

    @property
    def width(self) -> int:
        """The number of features M."""
        return int(self._values.shape[1])

    @property
    def half(self) -> bool:
        """Whether the values are float16, each of which has a bin of its own."""
        return bool(self._values.dtype in (np.float16, torch.float16))

    @property
    def direct(self) -> bool:
        """Whether the values can be read where they lie, in memory or in a file, without a copy."""
        if isinstance(self._values, Picked):
            return False
        kept = self._values.dtype in (np.float16, np.float32, torch.float16, torch.float32)
        if isinstance(self._values, Tensor):
            return kept and self._values.is_contiguous()
        return kept and bool(self._values.flags.c_contiguous) and bool(self._values.dtype.isnative)

    def chunk_rows(self) -> int:
        """How many rows a chunk holds when it has to be copied."""
        return min(len(self), max(1, CHUNK_BYTES // (4 * self.width)))

    def chunks(self, *, whole: bool = False) -> Iterator[tuple[int, Tensor]]:
        """(first row, [n, M] values as stored, float16 or float32) for consecutive runs of rows.

        `whole` asks for a single run where that costs no memory, for loops that need no room of their own.
        """
        rows = len(self) if whole and self.direct else self.chunk_rows()
        for first in range(0, len(self), rows):
            yield first, _tensor(self._values[first : first + rows])

    def check_finite(self) -> None:
        """Refuse NaN and infinite values with the first row that holds one."""
        for first, raw in self.chunks():
            check_finite(raw, first)

    @cached_property
    def predictions(self) -> Tensor:
        """[N] int64: the class that the head predicts (bias included)."""
        if self._predictions is None:
            # one tensor for all: small ones kept between large ones would scatter the heap
            predictions = torch.empty(len(self), dtype=torch.int64, device=self.head.weight.device)
            for first, raw in self.chunks():
                check_finite(raw, first)
                predictions[first : first + len(raw)] = self.head.logits(raw.float()).argmax(dim=1)
            self._predictions = predictions
        return self._predictions

    @property
    def predictions_known(self) -> bool:
        """Whether the predictions were given or have been computed."""
        return self._predictions is not None

    @property
    def stats(self) -> FeatureStats:
        """The statistics of these features: one pass, the first time; kept afterwards."""
        from oodshape.features.statistics import FeatureStats

        if self._stats is None:
            self._stats = FeatureStats.of(self)
        return self._stats

    def moments(self, needs: frozenset[str]) -> Moments:
        """The sums that some methods need beside `stats`: one pass for those not yet known; kept afterwards."""
        from oodshape.features.moments import Moments

        known = frozenset() if self._moments is None else frozenset(self._moments.parts)
        if self._moments is None or needs - known:
            more = Moments.of(self, needs - known)
            self._moments = more if self._moments is None else self._moments.beside(more)
        return self._moments

    @property
    def accuracy(self) -> float | None:
        """The share of labelled images whose class is predicted, or None without labels."""
        if self.labels is None or not bool((self.labels >= 0).any()):
            return None
        known = self.labels >= 0
        return float((self.predictions.cpu()[known] == self.labels[known]).double().mean())


def check_finite(values: Tensor, first: int = 0) -> None:
    """Refuse NaN and infinite values, naming the row; `first` is the number of the first row."""
    bad = kernels.first_bad_row(values)
    if bad is not None:
        raise InputError(f"row {first + bad} of the features holds a NaN or infinite value")


def _torch_dtype(dtype: Any) -> Any:
    names = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}
    return names.get(np.dtype(dtype).name)


def _tensor(values: Any) -> Tensor:
    """The values as a contiguous tensor, float16 kept, anything else as float32; no copy where possible."""
    if not isinstance(values, Tensor):
        keep = values.dtype in (np.float16, np.float32) and values.dtype.isnative
        values = np.ascontiguousarray(values if keep else values.astype(np.float32))
        with warnings.catch_warnings():  # a read-only memory map is only ever read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            values = torch.from_numpy(values)
    tensor: Tensor = values if values.dtype == torch.float16 else values.to(torch.float32)
    return tensor.contiguous()


def _integers(values: Any, name: str, n: int, classes: int | None = None) -> Tensor | None:
    if values is None:
        return None
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InputError(f"{name} must be {n} integers, one per image, got {array.dtype}{list(array.shape)}")
    if classes is not None and (array.min() < 0 or array.max() >= classes):
        raise InputError(f"{name} must lie in 0..{classes - 1}, got {array.min()}..{array.max()} for {classes} classes")
    return torch.from_numpy(array.astype(np.int64))
