"""Features: what is taken, what is refused, and that nothing is copied or changed."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from data import arrays
from oodshape import METHODS, Features, InputError
from oodshape.features import features as module

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", ["numpy", "torch", "torch columns first", "memmap", "columns first", "turned"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_kind_of_array_scores_alike(kind: str, dtype: str, tmp_path) -> None:
    z, head = arrays(80, signed=True)
    wanted = Features.from_arrays(z.astype(dtype).astype(np.float32), head)
    values = z.astype(dtype)
    if kind.startswith("torch"):
        values = torch.from_numpy(values) if kind == "torch" else torch.from_numpy(values.T.copy()).T
    elif kind == "memmap":
        np.save(tmp_path / "z.npy", values)
        values = np.load(tmp_path / "z.npy", mmap_mode="r")
    elif kind == "columns first":
        values = np.asfortranarray(values)
    elif kind == "turned":
        values = values.astype(values.dtype.newbyteorder(">"))
    got = Features.from_arrays(values, head)
    assert torch.equal(got.predictions, wanted.predictions)
    for name in ("energy", "optfs-v", "ash-s"):
        detector = METHODS[name].fit(wanted)
        torch.testing.assert_close(detector.score(got), detector.score(wanted))
    a, b = (METHODS["optfs-e"].fit(x).shape.theta for x in (got, wanted))
    np.testing.assert_allclose(a, b, rtol=0.1, atol=0.05)


def test_chunks_cover_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    z, head = arrays(101, width=40)
    data = Features.from_arrays(z, head)
    whole = METHODS["optfs-v"].fit(data), METHODS["react"].fit(data)
    scores = [detector.score(data) for detector in whole]
    monkeypatch.setattr(module, "CHUNK_BYTES", 4 * 40 * 7)
    small = Features.from_arrays(z, head)
    assert [len(raw) for _, raw in small.chunks()] == [7] * 14 + [3]
    assert np.array_equal(torch.cat([raw for _, raw in small.chunks()]).numpy(), z)
    again = METHODS["optfs-v"].fit(small), METHODS["react"].fit(small)
    for one, two, score in zip(whole, again, scores, strict=True):
        torch.testing.assert_close(two.score(small), score)
        assert one.shape.__class__ is two.shape.__class__


def test_rows_can_be_chosen() -> None:
    z, head = arrays(20)
    data = Features.from_arrays(z, head, labels=np.arange(20))
    for rows in (slice(3, 9), [5, 2], np.arange(20) % 2 == 0):
        part = data[rows]
        assert np.array_equal(torch.cat([raw for _, raw in part.chunks()]).numpy(), z[rows])
        assert part.labels.tolist() == np.arange(20)[rows].tolist()
    with pytest.raises(InputError, match="no row of 20"):
        data[30:]


Z, HEAD = arrays(4, width=3, classes=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Features.from_arrays(np.zeros((0, 3)), HEAD), r"empty: shape \[0, 3\]"),
        (lambda: Features.from_arrays(np.zeros(3), HEAD), r"shape \[images, features\], got \[3\]"),
        (lambda: Features.from_arrays(np.zeros((4, 5)), HEAD), "have 5 columns, but the head reads 3"),
        (lambda: Features.from_arrays(np.zeros((4, 3), int), HEAD), "float16, float32 or float64, got int64"),
        (lambda: Features.from_arrays(Z, HEAD, labels=[1, 2]), r"labels must be 4 integers.*got int64\[2\]"),
        (lambda: Features.from_arrays(Z, HEAD, predictions=[0, 1, 2, 0]), r"must lie in 0..1, got 0..2"),
        (lambda: Features.from_arrays(Z, HEAD, predictions=[0.5] * 4), "integers, one per image, got float64"),
        (lambda: Features.from_arrays(Z, (HEAD[0], HEAD[1][:1])), r"bias has shape \[1\], but its weight has 2"),
        (lambda: Features.from_arrays(Z, (HEAD[0][0], HEAD[1])), r"\[classes, features\], got \[3\]"),
        (lambda: Features.from_arrays(Z, (HEAD[0] * np.nan, HEAD[1])), "NaN or infinite"),
        (lambda: Features.from_arrays(Z, HEAD[0]), "pair"),
    ],
)
def test_bad_input_is_one_clear_error(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_fingerprint_is_of_values_and_shape_not_of_type() -> None:
    weight, bias = HEAD
    same = Features.from_arrays(Z, (weight.astype(np.float64), torch.from_numpy(bias)))
    assert same.head.fingerprint == Features.from_arrays(Z, HEAD).head.fingerprint
    other = weight.copy()
    other[0, 0] += 1e-3
    assert Features.from_arrays(Z, (other, bias)).head.fingerprint != same.head.fingerprint


def test_a_head_is_a_copy_and_is_hashed_when_it_is_compared_with_another() -> None:
    weight = HEAD[0].copy()
    train = Features.from_arrays(Z, (weight, HEAD[1]))
    detector = METHODS["nci"].fit(train)
    weight += 1.0
    detector.score(train)
    assert "data" not in vars(detector.fingerprint)
    assert detector.fingerprint == Features.from_arrays(Z, HEAD).head.fingerprint
    assert pickle.loads(pickle.dumps(detector)) == detector
