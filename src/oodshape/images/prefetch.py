"""Batches of pixels in order, decoded in this process or ahead of it by worker processes."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from oodshape.core.errors import InputError
from oodshape.images.image_set import ArraySet, ImageSet
from oodshape.images.preprocessing import Preprocessing, stacked

Batch = tuple[NDArray[np.uint8], list[int]]  # pixels [n, H, W, C], and the numbers of their rows


class Decoder:
    """Rows -> their pixels, or the error that a row gave: as a value it crosses processes unchanged.

    With `skip`, rows that cannot be read are left out.
    """

    def __init__(self, images: ImageSet, preprocessing: Preprocessing, *, skip: bool = False) -> None:
        """Decode rows of `images`."""
        self.images = images
        self.preprocessing = preprocessing
        self.skip = skip

    def __getitem__(self, rows: range) -> Batch | InputError:
        """The pixels of some rows."""
        pixels, read = [], []
        for row in rows:
            try:
                pixels.append(self.preprocessing.pixels(self.images[row]))
                read.append(row)
            except InputError as error:
                if not self.skip:
                    return error
        try:
            return stacked(pixels) if pixels else np.empty((0, 1, 1, self.preprocessing.channels), np.uint8), read
        except InputError as error:
            return error


def decoded(
    images: ImageSet,
    preprocessing: Preprocessing,
    batches: list[range],
    workers: int | None = None,
    private: int | None = None,
    *,
    skip: bool = False,
) -> Generator[Batch | InputError, None, None]:
    """The decoded batches in their order; with workers, some batches ahead of who reads them.

    `private` is an open file that workers must not inherit. Close the generator: that ends the workers.
    """
    workers = default_workers(images, len(batches)) if workers is None else min(workers, len(batches))
    if workers == 0:
        yield from map(Decoder(images, preprocessing, skip=skip).__getitem__, batches)
        return
    identity = None if private is None else os.fstat(private)
    with warnings.catch_warnings():
        # The workers only decode: they take no lock that a thread may hold.
        warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
        # More workers than cores were asked for by name.
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        loader: DataLoader[Any] = DataLoader(
            Decoder(images, preprocessing, skip=skip),  # type: ignore[arg-type]
            batch_size=None,
            sampler=batches,
            num_workers=workers,
            collate_fn=_unchanged,  # arrays go through a pipe: shared memory is scarce in containers
            worker_init_fn=partial(_begin, private, identity),
            generator=torch.Generator(),  # else the loader takes its seed from the user's random numbers
        )
        arrays = iter(loader)
    yield from arrays


def default_workers(images: ImageSet, batches: int) -> int:
    """One process per core, at most 4; 0 for arrays, a single batch, and in daemons, which may have no children."""
    inner: Any = images
    while hasattr(inner, "base"):  # a subset, or a set under another name
        inner = inner.base
    if isinstance(inner, ArraySet) or batches < 2 or multiprocessing.current_process().daemon:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, cores, batches)


def _unchanged(batch: Any) -> Any:
    return batch


def _begin(private: int | None, identity: os.stat_result | None, worker: int) -> None:
    """Close the inherited file: a lock on it ends with the main process, not with the last of its workers."""
    if private is None or identity is None:
        return
    try:
        if os.path.samestat(os.fstat(private), identity):
            os.close(private)
    except OSError:
        pass  # not inherited: the worker was spawned
