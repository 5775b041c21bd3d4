"""Preprocessing: from an image to the numbers that a network was trained on."""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import PIL.Image
import PIL.ImageOps
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.values import Value
from oodshape.images.decode.limits import Limits
from oodshape.images.decode.read import LargePicture, Mode, to_mode
from oodshape.images.sources.image_set import Image

if TYPE_CHECKING:  # a service prepares images without it
    from torch import Tensor

Interpolation = Literal["bilinear", "bicubic", "nearest", "lanczos", "box", "hamming"]
Resize = int | tuple[int, int]  # the shorter side, or (height, width)
LARGEST_INPUT = 1 << 24  # pixels that a network takes: 4096 x 4096
FILTERS: dict[str, PIL.Image.Resampling] = {
    name: PIL.Image.Resampling[name.upper()] for name in get_args(Interpolation)
}


def _is_size(value: object) -> bool:
    return isinstance(value, int) and value >= 1


class Preprocessing(Value):
    """Resize, crop the centre, scale to [0, 1], then (x - mean) / std, the same as torchvision.

    Without `resize` and `crop`, images keep their size.

    >>> Preprocessing(mean=(0.5,), std=(0.25,))(np.full((16, 16), 255, np.uint8))[0, 0, :3]
    tensor([2., 2., 2.])

    Args:
        mean: One mean per channel, as a fraction of 255; one channel means gray.
        std: One standard deviation per channel, as a fraction of 255.
        resize: 256 scales the shorter side to 256; (64, 48) scales to exactly 64 high and 48 wide.
        crop: Side of the square that is cut from the centre.
        interpolation: Interpolation of the resize.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: Resize | None = None
    crop: int | None = None
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        """Refuse what no image can be brought to."""
        for name in ("mean", "std"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        if self.channels not in (1, 3) or len(self.std) != self.channels:
            raise InputError(f"mean and std need 1 or 3 values each, got {len(self.mean)} and {len(self.std)}")
        if not all(map(math.isfinite, self.mean + self.std)) or np.float32(min(self.std)) <= 0:
            raise InputError(f"mean must be finite and std positive, got {self.mean} and {self.std}")
        if max(self.mean) > 1.5:
            fractions = tuple(round(value / 255, 4) for value in self.mean)
            raise InputError(f"mean is in fractions of 255, got {self.mean}; did you mean {fractions}?")
        if isinstance(self.resize, list):
            object.__setattr__(self, "resize", tuple(self.resize))
        pair = isinstance(self.resize, tuple) and len(self.resize) == 2 and all(map(_is_size, self.resize))
        if not (self.resize is None or pair or _is_size(self.resize)):
            raise InputError(
                "resize must be a whole number of pixels (the shorter side), a pair (height, width) or None, "
                f"got {self.resize!r}"
            )
        if not (self.crop is None or _is_size(self.crop)):
            raise InputError(f"crop must be a whole number of pixels or None, got {self.crop!r}")
        for sides in (self.resize, self.crop):
            height, width = sides if isinstance(sides, tuple) else (sides or 0, sides or 0)
            if height * width > (most := min(Limits.now().pixels, LARGEST_INPUT)):
                raise InputError(
                    f"images of {width} x {height} pixels have more than {most:,} (the limit of pixels of an input); "
                    "give a smaller resize and crop"
                )
        if self.interpolation not in FILTERS:
            raise InputError(f"interpolation must be one of {', '.join(FILTERS)}, got {self.interpolation!r}")

    @property
    def channels(self) -> int:
        """1 for gray, 3 for colour."""
        return len(self.mean)

    @property
    def size(self) -> tuple[int, int] | None:
        """(height, width) of every prepared image; None where it depends on the image."""
        if self.crop is not None:
            return self.crop, self.crop
        return self.resize if isinstance(self.resize, tuple) else None

    def __call__(self, image: Image) -> Tensor:
        """Prepare one image.

        Args:
            image: A PIL image, or uint8 [H, W] or [H, W, 3].

        Returns:
            float32 [C, H, W].
        """
        return self.normalize(self.pixels(image)[None])[0]

    def batch(self, images: Iterable[Image]) -> Tensor:
        """Prepare images that have one size after resizing and cropping.

        Args:
            images: PIL images or arrays.

        Returns:
            float32 [N, C, H, W].
        """
        return self.normalize(stack_images([self.pixels(image) for image in images]))

    def pixels(self, image: Image) -> NDArray[np.uint8]:
        """Resize and crop an image, without normalising it.

        Args:
            image: A PIL image or an array.

        Returns:
            uint8 [H, W, C], a quarter of the memory of the normalised image.
        """
        mode: Mode = "L" if self.channels == 1 else "RGB"
        if isinstance(image, LargePicture) and self.resize is not None:
            seen = image.resized(mode, _target(image.size, self.resize), FILTERS[self.interpolation])
        else:
            seen = to_mode(as_picture(image), mode)
            if self.resize is not None:
                target = _target(seen.size, self.resize)
                seen = seen if target == seen.size else seen.resize(target, FILTERS[self.interpolation])
        if self.crop is not None:
            seen = _cropped(seen, self.crop)
        return np.array(seen).reshape(seen.height, seen.width, self.channels)

    def normalize(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Normalise pixels, as a tensor.

        Args:
            pixels: uint8 [N, H, W, C].

        Returns:
            float32 [N, C, H, W].
        """
        import torch

        return torch.from_numpy(self.normalize_array(pixels))

    def normalize_array(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Normalise pixels, as an array and without torch, for an exported network.

        Args:
            pixels: uint8 [N, H, W, C].

        Returns:
            float32 [N, C, H, W], equal to `normalize`.
        """
        mean, std = (np.array(values, np.float32)[:, None, None] for values in (self.mean, self.std))
        values = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), np.float32)
        values /= np.float32(255)
        values -= mean
        values /= std
        return values

    @classmethod
    def from_timm(cls, net: Any) -> Preprocessing:
        """Read the preprocessing of a timm network from its `pretrained_cfg`.

        Args:
            net: The network, or such a mapping.

        Returns:
            The preprocessing.

        Raises:
            InputError: If there is no such configuration, or it cannot be expressed.
        """
        config = net if isinstance(net, Mapping) else getattr(net, "pretrained_cfg", None)
        config = config or getattr(net, "default_cfg", None)
        if not isinstance(config, Mapping) or not {"input_size", "mean", "std"} <= set(config):
            raise InputError(f"{type(net).__name__} has no pretrained_cfg with input_size, mean and std; give these")
        channels, height, width = config["input_size"]
        mode = config.get("crop_mode") or "center"
        if height != width or mode != "center":
            raise InputError(
                f"only square centre crops can be made, the network's are {height} x {width}, {mode!r}; "
                "prepare the images yourself"
            )
        mean, std = (tuple(config[name]) * (channels if len(config[name]) == 1 else 1) for name in ("mean", "std"))
        resize = math.floor(height / (config.get("crop_pct") or 0.875))
        return cls(mean, std, resize, height, config.get("interpolation") or "bicubic")  # timm's defaults


IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resize=256, crop=224)
CIFAR = Preprocessing(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
DIGITS = Preprocessing(mean=(0.303,), std=(0.320,))  # of the training split


def stack_images(pixels: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """[N, H, W, C]: images of one size as one array."""
    for row, image in enumerate(pixels):
        if image.shape != pixels[0].shape:
            sizes = " and ".join(f"{width} x {height}" for height, width, _ in (pixels[0].shape, image.shape))
            raise InputError(
                f"images 0 and {row} of a batch have the sizes {sizes}; "
                "give the preprocessing a resize and a crop, or use batch_size=1"
            )
    return np.stack(pixels)


def check_shape(found: Sequence[int], fitted: tuple[int, ...] | None) -> None:
    """Refuse an input of another shape than the guard was fitted on: its scores would mean something else.

    Shapes are those of one image, such as (channels, height, width); None: it was fitted on several sizes.
    """
    if fitted not in (None, tuple(found)):
        raise InputError(
            f"the network's input is {list(found)} here, but {list(fitted or ())} where the guard was fitted: prepare "
            "images in that size, or fit with a preprocessing that resizes (resize=..., crop=...)"
        )


def group_rows_by_size(pixels: Iterable[Any]) -> list[list[int]]:
    """Group the rows of prepared images by their size; a preprocessing may leave several. Errors are left out."""
    sizes: dict[tuple[int, ...], list[int]] = {}
    for row, each in enumerate(pixels):
        if isinstance(each, np.ndarray):
            sizes.setdefault(each.shape, []).append(row)
    return list(sizes.values())


def as_picture(image: Image) -> PIL.Image.Image:
    """The image as PIL has it, whatever it came as; arrays that are no image are refused."""
    if isinstance(image, LargePicture):
        return image.whole()
    if isinstance(image, PIL.Image.Image):
        return image
    array = np.asarray(image)
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    colour = array.ndim == 3 and array.shape[2] == 3
    if array.dtype != np.uint8 or not (array.ndim == 2 or colour) or 0 in array.shape:
        raise InputError(f"an image is a PIL image, or uint8 [H, W] or [H, W, 3], got {array.dtype}{list(array.shape)}")
    return PIL.Image.fromarray(array)


def _target(size: tuple[int, int], resize: Resize) -> tuple[int, int]:
    """(width, height): the shorter side as given, the longer one its share, rounded down as torchvision does; or both.

    What a thin picture would take is held to the limit.
    """
    if isinstance(resize, tuple):
        return resize[1], resize[0]
    width, height = size
    short = min(width, height)
    # int(resize * long / short), with the product first: the other order rounds elsewhere
    target = int(resize * width / short), int(resize * height / short)
    most = Limits.now().pixels
    if target[0] * target[1] > max(most, width * height):
        raise InputError(
            f"{width} x {height} pixels with the shorter side made {resize} are {target[0]} x {target[1]}, more than "
            f"{most:,} (the limit of pixels)"
        )
    return target


def _cropped(picture: PIL.Image.Image, size: int) -> PIL.Image.Image:
    """The centre, size x size; what lies outside the picture is black. Odd margins as torchvision splits them."""
    before = [max(size - side, 0) // 2 for side in picture.size]
    after = [(max(size - side, 0) + 1) // 2 for side in picture.size]
    if any(after):
        picture = PIL.ImageOps.expand(picture, (*before, *after))
    left, top = (round((side - size) / 2) for side in picture.size)
    return picture.crop((left, top, left + size, top + size))


SIDE = 64  # pixels of a thumbnail's longer side, at most


def make_thumbnail(image: Image, side: int = SIDE) -> str:
    """The image as a data URI, at most `side` pixels wide and high: gray as PNG, colour as WebP.

    >>> import numpy as np
    >>> make_thumbnail(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    shown = as_picture(image)
    shown = to_mode(shown, "L" if shown.mode in ("1", "L", "LA") or shown.mode.startswith("I;16") else "RGB").copy()
    shown.thumbnail((side, side))
    kind, options = ("png", {"optimize": True}) if shown.mode == "L" else ("webp", {"quality": 80, "method": 6})
    data = io.BytesIO()
    shown.save(data, format=kind, **options)
    return f"data:image/{kind};base64,{b64encode(data.getvalue()).decode()}"
