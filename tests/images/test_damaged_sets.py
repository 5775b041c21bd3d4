"""A published file that is cut or changed anywhere gives one clear error."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dataset_files import binary, channel_major, idx, pixels, python2, svhn_file, three_digits, write
from oodshape import InputError
from oodshape.images.small_sets import cifar, svhn


def damage(name: str, content: bytes, read: Callable[[Path], object]) -> Callable[[int], object]:
    """What reading gives after the first `cut` bytes."""

    def attempt(cut: int) -> object:
        with TemporaryDirectory() as folder:
            write(Path(folder) / name, content[:cut])
            return read(Path(folder))

    return attempt


def cuttable() -> dict[str, tuple[bytes, Callable[[int], object]]]:
    images = pixels(3)
    with TemporaryDirectory() as folder:
        mats = [svhn_file(Path(folder) / "x.mat", images, [1, 2, 3], compressed=c) for c in (False, True)]
    digits = np.zeros((3, 28, 28), np.uint8)
    batch = python2(channel_major(images), labels=[1, 2, 3])
    today = pickle.dumps({"data": channel_major(images), "labels": [1, 2, 3]}, 4)
    fine = python2(channel_major(images), fine_labels=[1, 2, 3])

    files: dict[str, tuple[str, bytes, Callable[[Path], object]]] = {
        "svhn": ("test_32x32.mat", mats[0], svhn),
        "svhn compressed": ("test_32x32.mat", mats[1], svhn),
        "mnist": ("t10k-images-idx3-ubyte", idx(digits), three_digits),
        "mnist gz": ("t10k-images-idx3-ubyte.gz", gzip.compress(idx(digits)), three_digits),
        "cifar10 py": ("test_batch", batch, lambda f: cifar(f, 10, train=False)),
        "cifar10 py3": ("test_batch", today, lambda f: cifar(f, 10, train=False)),
        "cifar100 py": ("test", fine, lambda f: cifar(f, 100, train=False)),
    }
    return {key: (content, damage(name, content, read)) for key, (name, content, read) in files.items()}


CUTTABLE = cuttable()


@pytest.mark.parametrize("key", CUTTABLE)
@settings(max_examples=80)
@given(share=st.floats(0, 1), from_end=st.booleans(), few=st.integers(0, 400))
@example(share=0, from_end=False, few=0)
@example(share=0, from_end=True, few=1)
def test_a_cut_file_gives_one_clear_error(key: str, share: float, from_end: bool, few: int) -> None:
    content, attempt = CUTTABLE[key]
    attempt(len(content))  # whole, it can be read
    for cut in {int(share * len(content)), len(content) - few if from_end else few}:
        if cut < len(content):
            with pytest.raises(InputError, match=r"damaged|truncated|cannot be read|no IDX file"):
                attempt(cut)


@settings(max_examples=80)
@given(kind=st.sampled_from([10, 100]), records=st.integers(0, 3), extra=st.integers(0, 3072))
def test_a_cut_cifar_binary_keeps_whole_records_only(kind: int, records: int, extra: int) -> None:
    images = pixels(4)
    heads = [[1, 2, 3, 4]] * (1 if kind == 10 else 2)
    name, size = ("test_batch.bin", 3073) if kind == 10 else ("test.bin", 3074)
    attempt = damage(name, binary(images, *heads), lambda folder: cifar(folder, kind, train=False))
    if extra == 0 and records > 0:
        data = attempt(records * size)
        assert np.array_equal(data.images, images[:records])
    else:
        with pytest.raises(InputError, match=f"records of {size} bytes"):
            attempt(records * size + extra)


@settings(max_examples=200)
@given(key=st.sampled_from(sorted(CUTTABLE)), at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_changed_byte_gives_a_set_or_one_clear_error(key: str, at: float, byte: int) -> None:
    content, _ = CUTTABLE[key]
    where = int(at * min(len(content), 400))
    changed = content[:where] + bytes([byte]) + content[where + 1 :]
    name, read = {
        "svhn": ("test_32x32.mat", svhn),
        "cifar10": ("test_batch", lambda f: cifar(f, 10, train=False)),
        "cifar100": ("test", lambda f: cifar(f, 100, train=False)),
        "mnist": ("t10k-images-idx3-ubyte", three_digits),
    }[key.split()[0]]
    with suppress(InputError):
        damage(name, changed, read)(len(changed))
