"""Images in memory: whatever they come as, they are the images that files of them would be."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from folders_of_digits import write_odd_files
from oodshape import InputError
from oodshape.images.decode.preprocessing import CIFAR
from oodshape.images.sources.image_files import ImageFiles, ImageFolder
from oodshape.images.sources.image_set import ArraySet
from oodshape.images.sources.memory import SequenceImages
from oodshape.images.sources.open_images import find_classes, open_images, stream_images

N = 4
COLOUR = np.random.default_rng(0).integers(256, size=(N, 9, 7, 3), dtype=np.uint8)


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(array).save(buffer, "png")
    return buffer.getvalue()


class Samples:
    """A map-style data set of whatever a function makes of an image."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> Any:
        return self.make(row)


CHANNELS_FIRST = torch.from_numpy(COLOUR).permute(0, 3, 1, 2)
FORMS = {
    "PIL list": [PIL.Image.fromarray(image) for image in COLOUR],
    "bytes": [png(image) for image in COLOUR],
    "mixed": [PIL.Image.fromarray(COLOUR[0]), png(COLOUR[1]), COLOUR[2], CHANNELS_FIRST[3]],
    "arrays": list(COLOUR),
    "array": COLOUR,
    "alpha": np.concatenate([COLOUR, COLOUR[..., :1]], axis=3),  # dropped, as that of files is
    "uint8 tensor": CHANNELS_FIRST,
    "float tensor": CHANNELS_FIRST.float() / 255,
    "images": Samples(lambda row: COLOUR[row]),
    "pairs": Samples(lambda row: (CHANNELS_FIRST[row].float() / 255, row)),
    "image": Samples(lambda row: {"image": PIL.Image.fromarray(COLOUR[row]), "label": row}),
    "pixel_values": Samples(lambda row: {"pixel_values": CHANNELS_FIRST[row], "label": torch.tensor(row)}),
    "image set": ArraySet("pixels", COLOUR),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_images(form: str) -> None:
    given = FORMS[form]
    images = open_images(given)
    assert len(images) == N
    for row in range(N):
        assert np.array_equal(CIFAR.pixels(images[row]), COLOUR[row])
    assert images.labels.tolist() == (list(range(N)) if form in ("pairs", "image", "pixel_values") else [-1] * N)
    listing = stream_images(given)
    assert [name for name, _ in listing.pairs()] == [f"image {row}" for row in range(N)]
    assert listing.count() == N
    assert np.array_equal(CIFAR.pixels(listing.read((listing.name, 2), upright=False)), COLOUR[2])


def test_identities_are_those_of_the_pixels() -> None:
    forms = {form: given for form, given in FORMS.items() if form != "image set"}
    keys = {form: open_images(given).identities.tolist() for form, given in forms.items()}
    assert len({tuple(each) for each in keys.values()}) == 1
    assert len(set(keys["array"])) == N
    # an order of its own, and each image keeps its key
    assert open_images(COLOUR[::-1]).identities.tolist() == keys["array"][::-1]
    assert (
        open_images(COLOUR).fingerprint
        == open_images(list(COLOUR)).fingerprint
        != open_images(COLOUR[::-1]).fingerprint
    )


@pytest.mark.parametrize("one", [COLOUR[0], COLOUR[0, :, :, 0], COLOUR[0, :, :, :1], CHANNELS_FIRST[0], png(COLOUR[0])])
def test_one_image(one: Any) -> None:
    (image,) = (open_images(one)[row] for row in range(len(open_images(one))))
    assert np.asarray(image).shape[:2] == (9, 7)


def test_paths_among_pictures_keep_their_names_and_identities(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(COLOUR[0]))
    images, listing = open_images([path, COLOUR[1]]), stream_images([path, COLOUR[1]])
    assert [name for name, _ in listing.pairs()] == [str(path), "image 1"]
    assert images.identities[0] == open_images([path]).identities[0]
    assert isinstance(stream_images([path, str(path)]), ImageFiles)


def test_broken_ones_say_which_and_why(tmp_path: Path) -> None:
    write_odd_files(tmp_path)
    (tmp_path / "cut.bmp").write_bytes((tmp_path / "plain.bmp").read_bytes()[:300])
    with PIL.Image.open(tmp_path / "cut.bmp") as cut:
        images = open_images([(tmp_path / "broken.jpg").read_bytes(), b"text", cut])
        reasons = ("of 300 bytes cannot be read", "of 4 bytes is not a readable image", "PIL image cannot be read")
        for row, reason in enumerate(reasons):
            with pytest.raises(InputError, match=reason):
                images[row]
        assert len(set(images.identities.tolist())) == 3  # a broken image is one of its own
    bad = open_images(Samples(lambda row: COLOUR[row] if row != 2 else 1 / 0))
    with pytest.raises(InputError, match=r"image 2 of Samples cannot be read \(ZeroDivisionError"):
        bad[2]
    with pytest.raises(InputError, match='needs "image" or "pixel_values", got'):
        open_images(Samples(lambda row: {"img": COLOUR[row]}))


def test_exif_turns_pictures_as_it_turns_files(tmp_path: Path) -> None:
    write_odd_files(tmp_path)
    path = tmp_path / "turned.jpg"
    for given in (path, [PIL.Image.open(path)], [path.read_bytes()]):
        for upright in (False, True):
            assert open_images(given, upright=upright)[0].size == ((20, 24) if upright else (24, 20))
    folder = ImageFolder(tmp_path)
    row = list(folder.names).index("turned.jpg")
    as_shot = open_images(folder, upright=False)
    assert (folder[row].size, as_shot[row].size) == ((20, 24), (24, 20))
    assert (as_shot.identities == folder.identities).all()
    assert as_shot.fingerprint != folder.fingerprint
    assert open_images(ImageFolder(tmp_path)).upright is True  # as it was, where nobody asks


def test_a_data_set_may_name_its_classes() -> None:
    hugging, vision = (Samples(lambda row: COLOUR[row]) for _ in range(2))
    hugging.features = {"image": None, "label": SimpleNamespace(names=("cat", "dog"))}
    vision.classes = ["cat", "dog"]
    assert find_classes(open_images(hugging)) == find_classes(open_images(vision)) == ("cat", "dog")
    assert find_classes(open_images(COLOUR)) == ()


def test_a_set_that_draws_anew_is_told() -> None:
    rng = np.random.default_rng(0)
    random = Samples(lambda row: rng.integers(256, size=(4, 4, 3), dtype=np.uint8))
    with pytest.warns(UserWarning, match="gives another image each time .* augmentation off"):
        open_images(random).identities  # noqa: B018


def test_a_users_set_is_read_by_one_thread_at_a_time() -> None:
    inside, most = [0], [0]

    def make(row: int) -> np.ndarray:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        image = np.sort(np.tile(COLOUR[row], (60, 60, 1)), axis=0)  # lets other threads in
        inside[0] -= 1
        return image

    assert len(set(open_images(Samples(make)).identities.tolist())) == N
    assert most[0] == 1


def test_nothing_is_read_before_it_is_needed() -> None:
    def make(row: int) -> np.ndarray:
        assert row == 0, "only the first is looked at"
        return COLOUR[0]

    assert stream_images(Samples(make)).count() == N
    with pytest.raises(InputError, match="holds no image"):
        SequenceImages([], "nothing")
