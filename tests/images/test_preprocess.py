"""Preprocessing: bit for bit what torchvision and timm do with the same image."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from oodshape.core.errors import InputError
from oodshape.images.decode.preprocessing import CIFAR, DIGITS, IMAGENET, Preprocessing, stack_images


@cache
def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Smooth waves and some noise: rounding differences would show."""
    rng = np.random.default_rng(width * 1000 + height)
    y, x = np.mgrid[:height, :width] / 20
    waves = np.stack([np.sin(x + c) * np.cos(y * (c + 1)) for c in range(3)], -1)
    noisy = 127 + 100 * waves + rng.normal(0, 20, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).convert(mode)


def theirs(ours: Preprocessing) -> Any:
    """The torchvision pipeline of the same settings."""
    transforms = pytest.importorskip("torchvision.transforms")
    steps: list[Any] = []
    if ours.channels == 1:
        steps.append(transforms.Grayscale())
    if ours.resize is not None:
        steps.append(transforms.Resize(ours.resize, transforms.InterpolationMode(ours.interpolation)))
    if ours.crop is not None:
        steps.append(transforms.CenterCrop(ours.crop))
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(ours.mean, ours.std)])


# Landscape, portrait, square, exact, odd margins, an uneven scale, and smaller than the crop in one side or two.
SIZES = [(640, 480), (333, 500), (300, 300), (256, 256), (224, 224), (257, 390), (401, 287), (100, 500), (31, 47)]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize(
    ("resize", "crop"),
    [(256, 224), (238, 224), (None, 224), (None, 225), (97, None), (64, 101), ((64, 48), None), ((240, 240), 224)],
)
def test_equals_torchvision(resize: Any, crop: int | None, interpolation: Any, torchvision_ops: object) -> None:
    ours = dataclasses.replace(IMAGENET, resize=resize, crop=crop, interpolation=interpolation)
    reference = theirs(ours)
    for size in SIZES:
        out = ours(picture(*size))
        assert out.dtype == torch.float32
        assert torch.equal(out, reference(picture(*size))), size


def test_arrays_and_pictures_are_the_same() -> None:
    for mode in ("RGB", "L"):
        image = picture(60, 50, mode)
        array = np.asarray(image)
        for preprocessing in (IMAGENET, CIFAR, DIGITS):
            assert torch.equal(preprocessing(image), preprocessing(array))
    assert torch.equal(DIGITS(array[:, :, None]), DIGITS(array))
    assert torch.equal(CIFAR(array[::2, ::-1]), CIFAR(array[::2, ::-1].copy()))  # views too


def test_batches_are_the_images_one_by_one() -> None:
    images = [picture(300 + i, 280) for i in range(3)]
    batch = IMAGENET.batch(images)
    assert batch.shape == (3, 3, 224, 224)
    assert batch.is_contiguous()
    assert all(torch.equal(row, IMAGENET(image)) for row, image in zip(batch, images, strict=True))
    assert stack_images([IMAGENET.pixels(image) for image in images]).dtype == np.uint8
    with pytest.raises(InputError, match=r"images 0 and 1 of a batch have the sizes 300 x 280 and 301 x 280; give the"):
        CIFAR.batch(images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": (0.5,)}, "mean and std need 1 or 3 values each, got 1 and 3"),
        ({"mean": (0.5, 0.5), "std": (1.0, 1.0)}, "got 2 and 2"),
        ({"std": (0.1, 0.0, 0.1)}, "std positive, got .*0.0"),
        ({"mean": (123.675, 116.28, 103.53)}, r"fractions of 255, .* did you mean \(0.485, 0.456, 0.406\)"),
        (
            {"resize": 0},
            r"resize must be a whole number of pixels \(the shorter side\), a pair \(height, width\) or None, got 0",
        ),
        ({"resize": (64, 0)}, r"a pair \(height, width\) or None, got \(64, 0\)"),
        ({"resize": (64,)}, r"got \(64,\)"),
        ({"resize": "64x64"}, "got '64x64'"),
        ({"crop": 224.0}, "crop must be a whole number of pixels or None, got 224.0"),
        ({"interpolation": "linear"}, "one of bilinear, bicubic, nearest, lanczos, box, hamming, got 'linear'"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(IMAGENET, **change)


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4)), np.zeros((4, 4, 2), np.uint8), np.zeros((2, 4, 4, 3), np.uint8), np.zeros(0, np.uint8)]
)
def test_what_is_no_image_is_refused(image: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"an image is a PIL image, or uint8 \[H, W\] or \[H, W, 3\], got "):
        IMAGENET(image)


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "resnet10t.c3_in1k", "mobilenetv4_conv_small", "lcnet_050"])
def test_from_timm_equals_timm(name: str, torchvision_ops: object) -> None:
    timm = pytest.importorskip("timm")
    net = timm.create_model(name, pretrained=False)
    ours = Preprocessing.from_timm(net)
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=net))
    image = picture(300, 411)
    assert torch.equal(ours(image), transform(image))
    assert Preprocessing.from_timm(net.pretrained_cfg) == ours


def test_from_timm_without_a_configuration_is_refused() -> None:
    with pytest.raises(InputError, match="Linear has no pretrained_cfg with input_size, mean and std"):
        Preprocessing.from_timm(nn.Linear(2, 2))
    wide = {"input_size": (3, 224, 320), "mean": (0.5,), "std": (0.5,)}
    with pytest.raises(InputError, match="only square centre crops can be made, the network's are 224 x 320"):
        Preprocessing.from_timm(wide)
    square = {**wide, "input_size": (3, 240, 240)}
    half = (0.5, 0.5, 0.5)
    assert Preprocessing.from_timm(square) == Preprocessing(half, half, 274, 240, "bicubic")
    with pytest.raises(InputError, match="'squash'"):
        Preprocessing.from_timm({**square, "crop_mode": "squash"})


@pytest.mark.parametrize(("number", "name"), [(1, "lanczos"), (4, "box"), (5, "hamming"), (7, None)])
def test_the_filter_of_a_processor_is_followed_or_refused(number: int, name: str | None) -> None:
    from oodshape.networks.hugging_face import read_processor

    processor = Processor(number)
    if name is None:
        with pytest.raises(InputError, match="resample=7"):
            read_processor(processor)
        return
    made = read_processor(processor)
    picture = Image.effect_noise((80, 60), 90).convert("RGB")
    assert made.interpolation == name
    torch.testing.assert_close(made(picture), processor(picture)["pixel_values"][0])


class Processor:
    """As those of transformers, with pixels of 0 to 1."""

    size, image_mean, image_std = {"height": 32, "width": 24}, [0.0] * 3, [1.0] * 3

    def __init__(self, resample: int) -> None:
        self.resample = resample

    def __call__(self, images: Image.Image, return_tensors: str = "pt") -> dict[str, torch.Tensor]:
        pixels = np.asarray(images.resize((24, 32), self.resample), np.float32) / 255
        return {"pixel_values": torch.tensor(pixels).permute(2, 0, 1)[None]}
