"""Folders of digit images, for tests that go the whole way from files to decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from oodshape.images.datasets.digits import load_digits_sets


def write_digits(root: Path, train: int = 400, val: int = 150, test: int = 100, ood: int = 60) -> Path:
    """train/ and val/ with class folders, test/ and letters/ without."""
    sets = load_digits_sets()
    held = sets["test"]
    parts = {
        "train": (sets["train"].images[:: 866 // train][:train], sets["train"].labels[:: 866 // train][:train]),
        "val": (held.images[0::3][:val], held.labels[0::3][:val]),
        "test": (held.images[1::3][:test], None),
        "letters": (sets["letters"].images[:ood], None),
    }
    for name, (images, labels) in parts.items():
        for i, image in enumerate(images):
            folder = root / name / (f"digit {labels[i]}" if labels is not None else "")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{i:04}.png")
    return root


def write_odd_files(root: Path) -> dict[str, str]:
    """Files that a real inbox holds; what comes out is the expected error of each, empty for those that can be read."""
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    gray = rng.integers(256, size=(20, 24), dtype=np.uint8)
    color = rng.integers(256, size=(20, 24, 3), dtype=np.uint8)
    Image.fromarray(color).save(root / "a whole.jpg")
    (root / "broken.jpg").write_bytes((root / "a whole.jpg").read_bytes()[:300])
    Image.new("RGB", (1, 1), "red").save(root / "tiny.png")
    Image.fromarray(color).convert("CMYK").save(root / "cmyk.jpg")
    frames = [Image.fromarray(color), Image.new("RGB", (24, 20), "blue")]
    frames[0].save(root / "animated.gif", save_all=True, append_images=frames[1:])
    frames[0].save(root / "animated.webp", save_all=True, append_images=frames[1:])
    Image.fromarray(gray.astype(np.uint16) * 257).save(root / "sixteen.png")
    Image.fromarray(gray.astype(np.uint16) * 257).save(root / "sixteen.tiff")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(color).save(root / "turned.jpg", exif=exif)
    palette = Image.fromarray(color).quantize(16)
    palette.info["transparency"] = 0
    palette.save(root / "palette.png", transparency=0)
    Image.fromarray(np.dstack([color, gray])).save(root / "alpha.png")
    Image.fromarray(color).save(root / "plain.bmp")
    (root / "empty.png").touch()
    (root / "notes.jpg").write_text("no picture")
    return {
        **dict.fromkeys((path.name for path in root.iterdir()), ""),
        "broken.jpg": "cannot be read as an image",
        "empty.png": "is not a readable image",
        "notes.jpg": "is not a readable image",
    }
