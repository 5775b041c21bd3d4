"""The decoding pipeline: order, errors as values, a bounded read-ahead, and an end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import numpy as np
import pytest

from oodshape.core.errors import InputError
from oodshape.images.decode.prefetch import prefetch, prefetch_rows
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.image_set import ArraySet

WORKERS = (0, 1, 3)


def picture(number: int) -> np.ndarray:
    if number % 7 == 3:
        raise InputError(f"{number} is broken")
    return np.full((4, 4 + number % 2), number, np.uint8)


def slow(number: int) -> np.ndarray:
    """The later, the faster: whoever does not keep the order shows it."""
    time.sleep(max(0, 0.01 - 0.001 * number))
    return picture(number)


def decoding() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("decoding")]


@pytest.mark.parametrize("workers", [*WORKERS, None])
def test_batches_come_in_order_with_an_image_or_an_error_for_each_item(workers: int | None) -> None:
    batches = [[0, 1, 2, 3], [4], [], [5, 6, 7], [10, 11]]
    seen = list(prefetch(slow, DIGITS, batches, workers))
    assert [list(batch) for batch, _ in seen] == batches
    for batch, images in seen:
        for number, image in zip(batch, images, strict=True):
            if number % 7 == 3:
                assert str(image) == f"{number} is broken"
            else:
                assert image.shape == (4, 4 + number % 2, 1)  # sizes may differ
                assert (image == number).all()


@pytest.mark.parametrize("workers", WORKERS)
def test_an_endless_source_is_read_a_few_batches_ahead(workers: int) -> None:
    taken = []

    def endless() -> Iterator[list[int]]:
        for number in count():
            taken.append(number)
            yield [7 * number]

    with closing(prefetch(picture, DIGITS, endless(), workers)) as images:
        for number in range(20):
            batch, _ = next(images)
            assert list(batch) == [7 * number]
            assert len(taken) <= number + 1 + workers
    assert not decoding()


@pytest.mark.parametrize("workers", WORKERS)
def test_an_error_that_is_no_users_is_raised(workers: int) -> None:
    def wrong(number: int) -> np.ndarray:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(prefetch(wrong, DIGITS, [[1]], workers))
    assert not decoding()


class Broken(ArraySet):
    def __getitem__(self, index: int) -> np.ndarray:
        if index in (2, 4, 5):
            raise InputError(f"image {index} is broken")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", WORKERS)
def test_rows_name_the_batch_of_a_broken_image_or_leave_it_out(workers: int) -> None:
    images = Broken("some", np.arange(8, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2))
    rows = list(prefetch_rows(images, DIGITS, range(2, 8), 2, workers, skip=True))
    assert [(numbers.start, numbers.stop, read) for numbers, _, read in rows] == [
        (2, 4, [3]),
        (4, 6, []),
        (6, 8, [6, 7]),
    ]
    assert [pixels[:, 0, 0, 0].tolist() for _, pixels, _ in rows] == [[3], [], [6, 7]]
    with pytest.raises(InputError, match="some, images 4 to 5: image 4 is broken"):
        list(prefetch_rows(images, DIGITS, range(4, 8), 2, workers))
    assert not decoding()
