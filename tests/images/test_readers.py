"""The readers of published file formats: right on files in the official layout, clear on damaged ones."""

from __future__ import annotations

import gzip
import os
import pickle
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from oodshape import InputError
from oodshape.images.readers.cifar import cifar
from oodshape.images.readers.imagenet import imagenet_val
from oodshape.images.readers.mnist import mnist
from oodshape.images.readers.svhn import svhn

RNG = np.random.default_rng(0)


def pixels(n: int) -> np.ndarray:
    return RNG.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def channel_major(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2).reshape(len(images), 3072)


def binary(images: np.ndarray, *labels: list[int]) -> bytes:
    heads = np.array(labels, np.uint8).T
    return np.concatenate([heads, channel_major(images)], axis=1).tobytes()


def python2(data: np.ndarray, **fields: list[int]) -> bytes:
    """A batch as Python 2 and numpy wrote it: protocol 2, byte strings, numpy.core.multiarray."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"M" + value.to_bytes(2, "little")

    raw = data.tobytes()
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    array += b"(K\x01(" + number(len(data)) + number(3072) + b"t" + dtype + b"\x89"
    array += b"T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    items = text(b"data") + array
    for name, labels in fields.items():
        items += text(name.encode()) + b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + items + text(b"batch_label") + text(b"training batch 1 of 5") + b"u."


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# CIFAR


@pytest.mark.parametrize("inside", [False, True], ids=["above", "folder"])
@pytest.mark.parametrize("layout", ["bin", "py"])
def test_cifar10(tmp_path: Path, layout: str, inside: bool) -> None:
    images, labels = pixels(5), [3, 1, 4, 1, 9]
    folder = tmp_path / f"cifar-10-batches-{layout}"
    for name, part in {"data_batch_1": slice(0, 2), "data_batch_3": slice(2, 5), "test_batch": slice(1, 4)}.items():
        if layout == "bin":
            write(folder / f"{name}.bin", binary(images[part], labels[part]))
        else:
            write(folder / name, python2(channel_major(images[part]), labels=labels[part]))
    root = folder if inside else tmp_path
    train, test = cifar(root, 10, train=True), cifar(root, 10, train=False)
    assert np.array_equal(train.images, images)
    assert train.labels.tolist() == labels
    assert np.array_equal(test[0], images[1])
    assert test.labels.tolist() == labels[1:4]


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_cifar100_gives_the_fine_labels(tmp_path: Path, layout: str) -> None:
    images, coarse, fine = pixels(3), [0, 19, 7], [99, 0, 50]
    for name in ("train", "test"):
        if layout == "binary":
            write(tmp_path / "cifar-100-binary" / f"{name}.bin", binary(images, coarse, fine))
        else:
            content = python2(channel_major(images), coarse_labels=coarse, fine_labels=fine)
            write(tmp_path / "cifar-100-python" / name, content)
    data = cifar(tmp_path, 100, train=True)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == fine
    assert data.fingerprint == cifar(str(tmp_path), 100, train=False).fingerprint


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_cifar_pickles_of_today(tmp_path: Path, protocol: int, order: str) -> None:
    images = pixels(4)
    batch = {"data": np.array(channel_major(images), order=order), "labels": [0, 1, 2, 3]}
    write(tmp_path / "test_batch", pickle.dumps(batch, protocol))
    data = cifar(tmp_path, 10, train=False)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == [0, 1, 2, 3]


def test_the_old_pickles_of_these_tests_are_what_numpy_reads() -> None:
    images = pixels(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy.core
        batch = pickle.loads(python2(channel_major(images), labels=[3, 8]), encoding="bytes")
    assert np.array_equal(batch[b"data"], channel_major(images))
    assert batch[b"labels"] == [3, 8]


def test_a_forged_memo_index_takes_no_memory(tmp_path: Path) -> None:
    content = python2(channel_major(pixels(2)), labels=[3, 8])
    write(tmp_path / "test_batch", content.replace(b"](", b"]r\xff\xff\xff\x7f("))
    tracemalloc.start()
    try:
        assert cifar(tmp_path, 10, train=False).labels.tolist() == [3, 8]
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


class Runs:
    """What an attacker would put into a pickle."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "ran"
    for call in (
        Runs(os.system, f"touch {trace}"),
        Runs(eval, f"open({str(trace)!r}, 'w')"),
        Runs(os.mkdir, str(trace)),
    ):
        batch = {b"labels": [0], b"data": channel_major(pixels(1)), b"extra": call}
        path = write(tmp_path / "test_batch", pickle.dumps(batch, protocol))
        with pytest.raises(InputError, match=r"refused: this pickle asks for .*Nothing of it was run") as error:
            cifar(tmp_path, 10, train=False)
        assert str(path) in str(error.value)
        assert not trace.exists()
    pickle.loads(pickle.dumps(Runs(os.mkdir, str(trace)), protocol))  # the attack is a real one
    assert trace.exists()


def test_array_stand_ins_take_no_objects(tmp_path: Path) -> None:
    for data in (np.array([[None] * 3072]), np.zeros((1, 3072), np.float32)):
        write(tmp_path / "test_batch", pickle.dumps({"data": data, "labels": [0]}, 4))
        with pytest.raises(InputError, match="does not hold uint8"):
            cifar(tmp_path, 10, train=False)


def test_cifar_errors_name_the_file_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"looked for cifar-10-batches-bin/data_batch_1.bin .*cifar-10-binary.tar.gz"):
        cifar(tmp_path, 10, train=True)
    with pytest.raises(InputError, match="kind must be 10 or 100, got 20"):
        cifar(tmp_path, 20, train=True)  # type: ignore[arg-type]
    path = write(tmp_path / "test_batch.bin", b"\0" * 3074)
    with pytest.raises(InputError, match="truncated: 3074 bytes are no whole number of CIFAR-10 records of 3073 bytes"):
        cifar(tmp_path, 10, train=False)
    path.write_bytes(b"\x0a" + b"\0" * 3072)
    with pytest.raises(InputError, match=r"label 10 lies outside 0..9"):
        cifar(tmp_path, 10, train=False)
    path.unlink()
    write(tmp_path / "test_batch", python2(channel_major(pixels(2)), labels=[1]))
    with pytest.raises(InputError, match=r"1 labels need data \[1, 3072\], got \[2, 3072\]"):
        cifar(tmp_path, 10, train=False)
    write(tmp_path / "test_batch", python2(channel_major(pixels(2)), fine_labels=[1, 2]))
    with pytest.raises(InputError, match="no dict with `data` and `labels`"):
        cifar(tmp_path, 10, train=False)


def test_real_cifar10(shared: Path) -> None:
    train, test = (cifar(shared / "data" / "cifar10", 10, train=part) for part in (True, False))
    assert (train.images.shape, len(test)) == ((4000, 32, 32, 3), 5000)
    for data in (train, test):
        assert (np.bincount(data.labels, minlength=10) > 0.08 * len(data)).all()
        # neighbours in a photograph are alike: the pixels stand in the right order
        steps = np.abs(np.diff(data.images[:500].astype(int), axis=1)).mean()
        assert steps < 0.25 * np.abs(np.diff(RNG.permutation(data.images[:500].ravel()).astype(int))).mean()


# SVHN


def svhn_file(path: Path, images: np.ndarray, labels: list[int], *, compressed: bool = True) -> bytes:
    savemat(
        path, {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]}, do_compression=compressed
    )
    return path.read_bytes()


@pytest.mark.parametrize("compressed", [False, True])
def test_svhn(tmp_path: Path, compressed: bool) -> None:
    images = pixels(4)
    svhn_file(tmp_path / "test_32x32.mat", images, [1, 10, 9, 10], compressed=compressed)
    data = svhn(tmp_path, train=False)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == [1, 0, 9, 0]
    with pytest.raises(InputError, match=r"no SVHN at .*train_32x32.mat: download"):
        svhn(tmp_path, train=True)


def test_svhn_refuses_other_contents(tmp_path: Path) -> None:
    path = tmp_path / "test_32x32.mat"
    for content, message in (
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [2]]}, "X must be uint8"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1]]}, "X holds 2 images, y 1 labels"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [11]]}, "labels 1..10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "X and y cannot be read"),
    ):
        savemat(path, content)
        with pytest.raises(InputError, match=message):
            svhn(tmp_path, train=False)


# MNIST


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.mark.parametrize("folder", [".", "raw", "MNIST/raw"])
@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist(tmp_path: Path, folder: str, mark: str, suffix: str) -> None:
    images = RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)
    for part, some in (("train", images), ("t10k", images[:2])):
        for what, array in (("images", some), ("labels", np.array([7, 0, 9], np.uint8)[: len(some)])):
            content = gzip.compress(idx(array)) if suffix else idx(array)
            write(tmp_path / folder / f"{part}-{what}{mark}idx{array.ndim}-ubyte{suffix}", content)
    train, test = mnist(tmp_path, train=True), mnist(tmp_path, train=False)
    assert np.array_equal(train.images, images)
    assert train.labels.tolist() == [7, 0, 9]
    assert test.labels.tolist() == [7, 0]


def test_mnist_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"looked for t10k-images-idx3-ubyte, t10k-images-idx3-ubyte.gz"):
        mnist(tmp_path, train=False)
    images = write(tmp_path / "t10k-images-idx3-ubyte", idx(np.zeros((2, 28, 28), np.uint8)))
    labels = write(tmp_path / "t10k-labels-idx1-ubyte", idx(np.zeros(3, np.uint8)))
    with pytest.raises(InputError, match="holds 3 labels, its image file 2 images"):
        mnist(tmp_path, train=False)
    labels.write_bytes(images.read_bytes())
    with pytest.raises(InputError, match="it begins with 00000803, not 00000801"):
        mnist(tmp_path, train=False)
    images.write_bytes(images.read_bytes() + b"\0")
    with pytest.raises(InputError, match=r"is damaged: 1585 bytes, but needs 1584 bytes for \[2, 28, 28\]"):
        mnist(tmp_path, train=False)
    images.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12)  # sizes whose product overflows 64 bits
    with pytest.raises(InputError, match="is damaged: 16 bytes"):
        mnist(tmp_path, train=False)


# A file cut anywhere


def damage(name: str, content: bytes, read: Callable[[Path], object]) -> Callable[[int], object]:
    """What reading gives after the first `cut` bytes."""

    def attempt(cut: int) -> object:
        with TemporaryDirectory() as folder:
            write(Path(folder) / name, content[:cut])
            return read(Path(folder))

    return attempt


def three_digits(folder: Path) -> object:
    """MNIST with a whole label file beside the images."""
    write(folder / "t10k-labels-idx1-ubyte", idx(np.zeros(3, np.uint8)))
    return mnist(folder, train=False)


def cuttable() -> dict[str, tuple[bytes, Callable[[int], object]]]:
    images = pixels(3)
    with TemporaryDirectory() as folder:
        mats = [svhn_file(Path(folder) / "x.mat", images, [1, 2, 3], compressed=c) for c in (False, True)]
    digits = np.zeros((3, 28, 28), np.uint8)
    batch = python2(channel_major(images), labels=[1, 2, 3])
    today = pickle.dumps({"data": channel_major(images), "labels": [1, 2, 3]}, 4)
    fine = python2(channel_major(images), fine_labels=[1, 2, 3])

    files: dict[str, tuple[str, bytes, Callable[[Path], object]]] = {
        "svhn": ("test_32x32.mat", mats[0], lambda f: svhn(f, train=False)),
        "svhn compressed": ("test_32x32.mat", mats[1], lambda f: svhn(f, train=False)),
        "mnist": ("t10k-images-idx3-ubyte", idx(digits), three_digits),
        "mnist gz": ("t10k-images-idx3-ubyte.gz", gzip.compress(idx(digits)), three_digits),
        "cifar10 py": ("test_batch", batch, lambda f: cifar(f, 10, train=False)),
        "cifar10 py3": ("test_batch", today, lambda f: cifar(f, 10, train=False)),
        "cifar100 py": ("test", fine, lambda f: cifar(f, 100, train=False)),
    }
    return {key: (content, damage(name, content, read)) for key, (name, content, read) in files.items()}


CUTTABLE = cuttable()


@pytest.mark.parametrize("key", CUTTABLE)
@settings(max_examples=80, deadline=None)
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


@settings(max_examples=80, deadline=None)
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


@settings(max_examples=200, deadline=None)
@given(key=st.sampled_from(sorted(CUTTABLE)), at=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_changed_byte_gives_a_set_or_one_clear_error(key: str, at: float, byte: int) -> None:
    content, _ = CUTTABLE[key]
    where = int(at * min(len(content), 400))
    changed = content[:where] + bytes([byte]) + content[where + 1 :]
    name, read = {
        "svhn": ("test_32x32.mat", lambda f: svhn(f, train=False)),
        "cifar10": ("test_batch", lambda f: cifar(f, 10, train=False)),
        "cifar100": ("test", lambda f: cifar(f, 100, train=False)),
        "mnist": ("t10k-images-idx3-ubyte", three_digits),
    }[key.split()[0]]
    with suppress(InputError):
        damage(name, changed, read)(len(changed))


# ImageNet


WNIDS = ["n02119789", "n02100735", "n01440764"]  # by ILSVRC id; sorted, they are 2, 1, 0


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Images 1, 2 and 4, so that numbers and places differ."""
    folder = tmp_path / "val"
    folder.mkdir()
    for number in (1, 2, 4):
        Image.new("L" if number == 2 else "RGB", (8, 6), number).save(
            folder / f"ILSVRC2012_val_{number:08d}.JPEG", "JPEG"
        )
    return folder


@pytest.mark.parametrize(
    ("name", "text", "synsets"),
    [
        ("val.txt", "".join(f"ILSVRC2012_val_{n:08d}.JPEG {c}\n" for n, c in [(4, 0), (2, 1), (1, 2), (9, 7)]), ""),
        ("val_list.txt", "val/ILSVRC2012_val_00000001.JPEG n02119789\nval/ILSVRC2012_val_00000002.JPEG n02100735\n"
         "val/ILSVRC2012_val_00000004.JPEG n01440764\n", ""),
        ("LOC_val_solution.csv", "ImageId,PredictionString\n"
         "ILSVRC2012_val_00000004,n01440764 1 2 3 4 n01440764 5 6 7 8 \nILSVRC2012_val_00000001,n02119789 1 2 3 4\n"
         "ILSVRC2012_val_00000002,n02100735 1 2 3 4\n", ""),
        ("labels.txt", "n02119789\nn02100735\nn02100735\nn01440764\n", ""),
        ("ILSVRC2012_validation_ground_truth.txt", "1\n2\n2\n3\n", "\n".join(WNIDS)),
        ("ILSVRC2012_validation_ground_truth.txt", "1\n2\n2\n3\n",
         "n01440764 3 tench\nn02119789 1 kit_fox\nn02100735 2 English_setter\n"),
    ],
)  # fmt: skip
def test_flat_imagenet(flat: Path, name: str, text: str, synsets: str) -> None:
    labels = write(flat.parent / name, text.encode())
    given = write(flat.parent / "synsets.txt", synsets.encode()) if synsets else None
    data = imagenet_val(flat, labels, given)
    assert data.labels.tolist() == [2, 1, 0]
    assert len(data) == 3
    assert [(data[i].mode, data[i].size) for i in range(3)] == [("RGB", (8, 6))] * 3
    assert len(data.fingerprint) == 16


def test_flat_imagenet_with_the_devkit(flat: Path) -> None:
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    rows = [
        (3, WNIDS[2], "tench", 0),
        (1, WNIDS[0], "kit fox", 0),
        (4, "n00001740", "entity", 3),
        (2, WNIDS[1], "x", 0),
    ]
    savemat(flat.parent / "meta.mat", {"synsets": np.array(rows, kinds)[:, None]})
    truth = write(flat.parent / "ILSVRC2012_validation_ground_truth.txt", b"1\n2\n2\n3\n")
    assert imagenet_val(flat, truth, flat.parent / "meta.mat").labels.tolist() == [2, 1, 0]
    content = (flat.parent / "meta.mat").read_bytes()
    for cut in (0, 100, 200, len(content) // 2, len(content) - 9):
        write(flat.parent / "meta.mat", content[:cut])
        with pytest.raises(InputError, match="damaged or not the devkit's"):
            imagenet_val(flat, truth, flat.parent / "meta.mat")


def test_flat_imagenet_synsets_complete_the_classes(flat: Path) -> None:
    labels = write(flat.parent / "wnids.txt", b"n02119789\nn02119789\nn02119789\nn02119789\n")
    index = write(
        flat.parent / "imagenet_class_index.json", b'{"0": ["n01440764", "tench"], "1": ["n02119789", "fox"]}'
    )
    assert imagenet_val(flat, labels).labels.tolist() == [0, 0, 0]
    assert imagenet_val(flat, labels, index).labels.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "synsets", "message"),
    [
        ("1\n2\n2\n3\n", None, "bare numbers, ILSVRC ids.* give synsets too"),
        ("1\n2\n2\n3\n", "\n".join(sorted(WNIDS)), "sorted by wnid"),
        ("0\n2\n2\n3\n", "\n".join(WNIDS), "must lie in 1..3, got 0..3"),
        ("1\n2\n2\n", "\n".join(WNIDS), "no label for ILSVRC2012_val_00000004.JPEG: it covers 3 images"),
        ("1\n2\n2\n3\n", "tench\nfox", "one wnid .* per class, each once; got 'tench'"),
        ("n02119789\nn02100735\nn02100735\nn09999999\n", "\n".join(WNIDS), "names n09999999"),
        ("ILSVRC2012_val_00000001.JPEG 1000\n", None, r"must lie in 0..999, got 1000; count from 0"),
        ("cat.jpg 1\n", None, "'cat.jpg' is no name like"),
        ("tench\nfox\nfox\ndog\n", None, "all numbers or all wnids, got 'tench'; accepted are LOC_val"),
        ("a b c\n1\n", None, r"lines of \[1, 3\] fields .*accepted are"),
        ("", None, "accepted are"),
        ("99999999999999999999\n1\n", None, "all numbers or all wnids"),
    ],
)
def test_an_ambiguous_label_file_is_refused(flat: Path, text: str, synsets: str | None, message: str) -> None:
    labels = write(flat.parent / "labels.txt", text.encode())
    given = None if synsets is None else write(flat.parent / "synsets.txt", synsets.encode())
    with pytest.raises(InputError, match=message) as error:
        imagenet_val(flat, labels, given)
    assert str(flat.parent) in str(error.value)


def test_flat_imagenet_says_what_is_missing(flat: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as text"):
        imagenet_val(flat, flat.parent / "nothing.txt")
    with pytest.raises(InputError, match="for class folders use ImageFolder"):
        imagenet_val(flat.parent, flat.parent / "nothing.txt")
    labels = write(flat.parent / "labels.txt", b"n02119789\n" * 4)
    write(flat / "ILSVRC2012_val_00000002.JPEG", b"no image")
    with pytest.raises(InputError, match=r"ILSVRC2012_val_00000002.JPEG is no image"):
        imagenet_val(flat, labels)[1]
