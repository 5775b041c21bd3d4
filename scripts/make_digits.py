"""Make the images of the embedded benchmark, src/oodshape/images/datasets/digits.npz.

    python scripts/make_digits.py --out digits.npz

Real digits and OOD sets, all made from scikit-learn's data or drawn: gray images of 16 x 16 pixels, uint8 in 0..255,
black background. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oodshape.images.datasets.digits import make_stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIDE = 16
CLASSES = 8  # digits 0..7 are in-distribution, 8 and 9 are not
OOD_COUNT = 400
# Without letters that a reader may take for a digit (B, D, G, I, O, S, T, Z, b, g, l, r ...).
LETTERS = "AEFHKLMNPRUVWXhkn"
# Bold strokes are as wide as the digits' pen; on 8 x 8 pixels, serifs would close n and U to a 0.
FONTS = ("Sans", "Sans-Bold", "Sans-BoldOblique", "SansMono", "SansMono-Bold", "SansMono-BoldOblique")


def make_sets() -> dict[str, NDArray[np.uint8]]:
    """All arrays of the file by name: images of each set, and the labels of the digits 0-7."""
    images, labels = scanned_digits()
    in_train = _train_mask(labels)
    in_test = (labels < CLASSES) & ~in_train
    return {
        "train": images[in_train],
        "train_labels": labels[in_train].astype(np.uint8),
        "test": images[in_test],
        "test_labels": labels[in_test].astype(np.uint8),
        "digits89": images[labels >= CLASSES],
        "letters": letters(),
        "photos": photo_patches(),
        "textures": textures(),
    }


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("src/oodshape/images/datasets/digits.npz"))
    np.savez_compressed(parser.parse_args().out, **make_sets())


def letters(n: int = OOD_COUNT) -> NDArray[np.uint8]:
    """[n, 16, 16] letters in six fonts, moved, turned and slanted a little; image i shows LETTERS[i % 17].

    They pass through the same scanner as the digits: a black-and-white bitmap of 32 x 32, of which each block
    of 4 x 4 is counted. So they differ from digits in shape, not in blur or gray levels.
    """
    import matplotlib
    from PIL import Image, ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    layout = ImageFont.Layout.BASIC
    fonts = [ImageFont.truetype(str(folder / f"DejaVu{font}.ttf"), 128, layout_engine=layout) for font in FONTS]
    rng = make_stream("letters")
    blocks = np.empty((n, 8, 8))
    for i in range(n):
        mask, _ = fonts[rng.randint(len(fonts))].getmask2(LETTERS[i % len(LETTERS)], mode="L")
        glyph = Image.frombytes("L", mask.size, bytes(mask))
        size = np.array([rng.uniform(18, 25), rng.uniform(28, 32)])  # as digits: full height, narrower
        center = 16 + rng.uniform(-1.5, 1.5, 2)
        angle, slant = np.deg2rad(rng.uniform(-10, 10)), rng.uniform(-0.15, 0.15)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        glyph_size = np.array(glyph.size)
        back = np.diag(glyph_size / size) @ turn @ np.array([[1, slant], [0, 1]])  # bitmap -> glyph
        offset = glyph_size / 2 - back @ center
        affine = (back[0, 0], back[0, 1], offset[0], back[1, 0], back[1, 1], offset[1])
        bitmap = glyph.transform((32, 32), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
        blocks[i] = (np.asarray(bitmap) > 127).reshape(8, 4, 8, 4).sum((1, 3))
    return _enlarge(blocks)


def photo_patches(n: int = OOD_COUNT) -> NDArray[np.uint8]:
    """[n, 16, 16] gray square patches of two photographs (a temple, a flower), 24 to 160 pixels wide.

    Almost uniform patches (sky, blurred background: standard deviation below 12) are skipped.
    """
    from PIL import Image
    from sklearn.datasets import load_sample_images

    photos = [Image.fromarray(photo).convert("L") for photo in load_sample_images().images]
    rng = make_stream("photos")
    patches: list[NDArray[np.uint8]] = []
    while len(patches) < n:
        photo = photos[len(patches) % len(photos)]
        side = rng.randint(24, 161)
        left, top = rng.randint(photo.width - side + 1), rng.randint(photo.height - side + 1)
        crop = photo.crop((left, top, left + side, top + side))
        patch = np.asarray(crop.resize((SIDE, SIDE), Image.Resampling.BOX))
        if patch.std() >= 12:
            patches.append(patch)
    return np.stack(patches)


def textures(n: int = OOD_COUNT) -> NDArray[np.uint8]:
    """[n, 16, 16] drawn textures: stripes, checkers, dots and smooth noise in turn, with random contrast."""
    rng = make_stream("textures")
    fine = 3 * SIDE  # drawn at three times the size, then averaged
    y, x = (np.mgrid[:fine, :fine] + 0.5) / fine - 0.5
    out = np.empty((n, SIDE, SIDE))
    for i in range(n):
        angle, wave = rng.uniform(0, np.pi), 2 * np.pi * rng.uniform(1.5, 4)
        shift_u, shift_v = rng.uniform(0, 2 * np.pi, 2)
        u = np.cos(wave * (x * np.cos(angle) + y * np.sin(angle)) + shift_u)
        v = np.cos(wave * (y * np.cos(angle) - x * np.sin(angle)) + shift_v)
        dots = np.sign(u + v - rng.uniform(0.2, 0.9))
        pattern = (u, np.sign(u * v), dots, _smooth_noise(rng, fine))[i % 4]
        pattern = pattern.reshape(SIDE, 3, SIDE, 3).mean((1, 3))
        out[i] = rng.uniform(90, 165) + rng.uniform(50, 90) * pattern
    return _pixels(out)


def scanned_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The 1,797 handwritten digits of scikit-learn, [1797, 16, 16], and their labels 0..9."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return _enlarge(digits.images), digits.target.astype(np.int64)


def _train_mask(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for 60 % of each class 0..7, chosen at random."""
    rng, mask = make_stream("split"), np.zeros(len(labels), dtype=np.bool_)
    for label in range(CLASSES):
        members = rng.permutation(np.flatnonzero(labels == label))
        mask[members[round(0.4 * len(members)) :]] = True
    return mask


def _enlarge(blocks: NDArray[Any]) -> NDArray[np.uint8]:
    """[N, 8, 8] counts 0..16 -> [N, 16, 16] bilinear pixels 0..255."""
    from PIL import Image

    small = _pixels(blocks * (255 / 16))
    big = [Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BILINEAR) for image in small]
    return np.stack([np.asarray(image) for image in big])


def _smooth_noise(rng: np.random.RandomState, side: int) -> NDArray[Any]:
    """[side, side] random sum of the 25 longest cosine waves, scaled to -1..1."""
    steps = (np.arange(side) + 0.5) / side
    basis = np.cos(np.pi * np.outer(np.arange(5), steps))
    field: NDArray[Any] = basis.T @ rng.normal(size=(5, 5)) @ basis
    field -= field.mean()
    field /= np.abs(field).max()
    return field


def _pixels(values: NDArray[Any]) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return pixels


if __name__ == "__main__":
    main()
