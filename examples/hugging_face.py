"""A Hugging Face data set: its images, its labels, and the names of its classes.

pip install datasets
"""

from __future__ import annotations

from typing import Any

import PIL.Image

from oodshape import Guard
from oodshape.images.datasets.digits import load_digits_sets


def made(name: str, first: int, last: int) -> Any:
    """A data set as `datasets.load_dataset("mnist", split="train")` gives it; here of digits that are at hand."""
    from datasets import ClassLabel, Dataset, Image
    from datasets import Features as Columns

    digits = load_digits_sets()[name]
    columns = Columns({"image": Image(), "label": ClassLabel(names=[f"digit {i}" for i in range(8)])})
    pictures = [PIL.Image.fromarray(image) for image in digits.images[first:last]]
    return Dataset.from_dict({"image": pictures, "label": digits.labels[first:last].tolist()}, features=columns)


def main() -> None:
    """Fit on one, calibrate on another, and ask about images of a third."""
    train, val, test = made("train", 0, 300), made("test", 0, 100), made("test", 100, 110)
    guard = Guard.fit("zoo:digits-convnet", images=train, calibrate=val, method="optfs-e")
    live = guard.attach("zoo:digits-convnet")
    verdict = live(test[0]["image"])
    print(f"{verdict.label}: {'accepted' if verdict.accepted else 'rejected'} (p = {verdict.p_value:.2f})")
    print(f"{sum(each.accepted for each in live(test))} of {len(test)} accepted")


if __name__ == "__main__":
    main()
