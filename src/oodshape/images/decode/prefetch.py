"""Images decoded ahead of who uses them, in order: the one pipeline behind fitting, benchmarks and scoring.

Threads do it: Pillow lets go of Python's lock while it decodes and resizes, so they are no slower than processes,
start at once, copy nothing, and none outlives its process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.machine import count_cores
from oodshape.images.decode.limits import TURNS
from oodshape.images.decode.preprocessing import Preprocessing, stack_images
from oodshape.images.sources.image_set import Image, ImageSet, choose_reader

SAMPLED = 64  # images whose sizes are looked at: one batch cannot have two, so that few sets do
MOST = 4  # threads: more would only wait for the network
Pixels = NDArray[np.uint8]  # [H, W, C] of an image, [N, H, W, C] of a batch
Item = TypeVar("Item")
Batch = tuple[Sequence[Item], list[Pixels | InputError]]  # items, and for each its prepared image or its error


def prefetch(
    read: Callable[[Item], Image],
    preprocessing: Preprocessing,
    batches: Iterable[Sequence[Item]],
    workers: int | None = None,
) -> Generator[Batch[Item], None, None]:
    """Yield batches in order, with the prepared image of every item, or its error.

    `read` opens the image of an item. Batches are taken one by one, a few ahead of who reads them, so there may be
    any number. `workers` threads decode (None: one per core, at most 4; 0: nothing is done ahead). Close the
    generator to stop them.
    """

    def work(batch: Sequence[Item]) -> Batch[Item]:
        return batch, [prepare_item(read, preprocessing, item) for item in batch]

    workers = min(MOST, count_cores()) if workers is None else workers
    if workers == 0:
        yield from map(work, batches)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="decoding")
    waiting: deque[Future[Batch[Item]]] = deque()
    try:
        for batch in batches:
            waiting.append(pool.submit(work, batch))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def prefetch_rows(
    images: ImageSet,
    preprocessing: Preprocessing,
    every: range,
    size: int,
    workers: int | None = None,
    *,
    skip: bool = False,
) -> Generator[tuple[range, Pixels, list[int]], None, None]:
    """Decode rows of a set in batches: row numbers, pixels of the readable images, and which rows these are.

    An image that cannot be read is an error that names its batch; with `skip` it is left out.
    """
    batches = (every[start : start + size] for start in range(0, len(every), size))
    with closing(prefetch(choose_reader(images), preprocessing, batches, workers)) as decoding:
        for rows, pixels in decoding:
            assert isinstance(rows, range)
            errors = [each for each in pixels if isinstance(each, InputError)]
            try:
                if errors and not skip:
                    raise errors[0]
                read = [(row, each) for row, each in zip(rows, pixels, strict=True) if isinstance(each, np.ndarray)]
                array = stack_images([each for _, each in read]) if read else np.empty((0, 1, 1, 1), np.uint8)
            except InputError as error:
                raise InputError(f"{images.name}, images {rows.start} to {rows.stop - 1}: {error}") from None
            yield rows, array, [row for row, _ in read]


def prepare_item(read: Callable[[Item], Image], preprocessing: Preprocessing, item: Item) -> Pixels | InputError:
    """The prepared image of an item, or why there is none."""
    try:
        with TURNS.taking():
            return preprocessing.pixels(read(item))
    except InputError as error:
        error.__context__ = None  # its frames hold the bytes of the image, and a batch may have many errors
        return error.with_traceback(None)


def sample_sizes(images: ImageSet, preprocessing: Preprocessing) -> tuple[tuple[int, int], ...]:
    """The sizes (height, width) of prepared images, each once: of a sample, where the images keep their own size."""
    if preprocessing.size is not None:
        return (preprocessing.size,)
    rows = np.unique(np.linspace(0, len(images) - 1, SAMPLED).astype(int)).tolist()
    sample = (prepare_item(choose_reader(images), preprocessing, row) for row in rows)
    return tuple(dict.fromkeys(each.shape[:2] for each in sample if isinstance(each, np.ndarray)))
