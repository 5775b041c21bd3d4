"""Proxy OOD sets: scrambled ID images and crossed features, noise and constant images."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.options import CacheOptions, ExtractKeywords, ImageOptions, RunOptions, make_options, takes_options
from oodshape.features.features import Features
from oodshape.features.tensor_batches import extract_tensors
from oodshape.images import identity
from oodshape.images.datasets.synthetic import NOISE_IMAGES, Scrambled, draw_lattice, draw_noise, draw_phases, scramble
from oodshape.images.decode.prefetch import sample_sizes
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import ArraySet, limit_images
from oodshape.images.sources.open_images import Given, in_column, open_images
from oodshape.networks.classifier import Classifier

SIZE = 500  # images of a proxy set


@takes_options(ImageOptions, CacheOptions, RunOptions)
def proxy_features(
    classifier: Classifier,
    images: Given,
    preprocessing: Preprocessing | None = None,
    *,
    size: int = SIZE,
    seed: int = 0,
    **options: Unpack[ExtractKeywords],
) -> list[Features]:
    """Extract the features of scrambled images, noise and constant images, for `fit(train, proxy=...)`.

    Noise and constant images have the size of the first prepared image.

    Args:
        classifier: The network.
        images: ID training images, of any kind; a seeded subset is scrambled.
        preprocessing: Preprocessing of the images; not needed for prepared batches.
        size: Largest number of scrambled images.
        seed: Seed of the subset and the noise.

    Returns:
        The features of scrambled, noise and constant images.

    >>> from oodshape import Classifier
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4))
    >>> [len(each) for each in proxy_features(Classifier(net), torch.rand(8, 3, 2, 2), prepared=True, progress=False)]
    [8, 704, 512]
    """
    reading, run = make_options(ImageOptions, options), make_options(RunOptions, options)
    cache, progress = make_options(CacheOptions, options).cache, run.progress
    if reading.prepared:
        seen = extract_tensors(classifier, images, keep=size, cache=cache, progress=progress)
        seen.check_one_size()
        return extract_tensor_proxy(classifier, seen.kept, seen.identities[seen.kept_rows], seed, progress=progress)
    given = open_images(in_column(images, reading.column))
    made = Scrambled(limit_images(given, size, seed), seed)
    how: dict[str, Any] = {"cache": cache, **vars(run)}
    found = [Features.extract(classifier, made, preprocessing, **how)]
    if preprocessing is None:
        return found
    return found + extract_synthetic_features(classifier, preprocessing, sample_sizes(given, preprocessing)[0], **how)


def extract_synthetic_features(
    classifier: Classifier, preprocessing: Preprocessing, size: tuple[int, int], **how: Any
) -> list[Features]:
    """Extract the features of noise images, then of constant images; none if the network refuses them.

    Neither the noise nor most of the colours are those of the sanity check, which shows what fitting on these reached.
    """
    as_they_are = replace(preprocessing, resize=None, crop=None)
    found = []
    channels = preprocessing.channels
    made = {"noise": draw_noise(*size, channels, 1, weak=True), "constant": draw_lattice(*size, channels)}
    for name, pixels in made.items():
        images = ArraySet(name, pixels[..., 0] if channels == 1 else pixels)
        try:
            found.append(Features.extract(classifier, images, as_they_are, **how))
        except InputError:
            return []
    return found


def extract_tensor_proxy(
    classifier: Classifier, images: Tensor, which: identity.Keys, seed: int = 0, *, progress: bool | None = None
) -> list[Features]:
    """Scramble prepared tensors [N, C, H, W], clamp each channel to its range, and extract their features.

    Noise and constant images follow, in the range of each channel, and noise with its mean and standard deviation.
    """
    if images.ndim != 4 or not images.is_floating_point():
        raise InputError(
            f"a method that uses scrambled images needs float tensors [N, C, H, W], got {list(images.shape)}; "
            "choose another method, such as optfs-e"
        )
    low, high = images.amin(dim=(0, 2, 3))[:, None, None], images.amax(dim=(0, 2, 3))[:, None, None]
    made = torch.empty_like(images)
    for row, image in enumerate(images):
        values = scramble(image.permute(1, 2, 0).double().numpy(), draw_phases(int(which[row]), seed))
        made[row] = torch.from_numpy(values).permute(2, 0, 1).to(made.dtype).clamp(low, high)
    channels, height, width = images.shape[1:]
    noise, constant = (
        (torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255 * (high - low) + low).to(images.dtype)
        for pixels in (draw_noise(height, width, channels, 1, weak=True), draw_lattice(1, 1, channels))
    )
    noise, constant = torch.cat([noise, draw_matched_noise(images, 1)]), constant.expand(-1, -1, height, width)
    return [Features.extract(classifier, each, prepared=True, progress=progress) for each in (made, noise, constant)]


def draw_matched_noise(images: Tensor, seed: int) -> Tensor:
    """[64, C, ...]: Gaussian noise with the mean and standard deviation of tensors [N, C, ...], channel by channel."""
    others = [0, *range(2, images.ndim)]
    mean, std = images.mean(dim=others, keepdim=True), images.std(dim=others, correction=0, keepdim=True)
    noise = torch.from_numpy(np.random.RandomState(seed).standard_normal((NOISE_IMAGES, *images.shape[1:])))
    return noise.to(images.dtype) * std + mean


def cross_features(inside: Features, size: int = SIZE, seed: int = 0) -> Features:
    """Cross pairs of ID images with different predicted classes: a fair coin per feature selects the image.

    Images are put into an order by a seeded hash of their identities, and each is crossed with the next one that has
    another predicted class, in as many orders as give `size` pairs. Coins are hashes of the first identity. So the
    result is the same on every machine and for any order of the images, and a prediction that flips changes only the
    pairs of its image.

    >>> pair = Features.from_arrays([[1.0, 1.0, 0.0, 9.0], [2.0, 2.0, 3.0, 0.0]], (np.eye(4)[2:], None))
    >>> [sorted({*column}) for column in zip(*next(cross_features(pair).chunks())[1].tolist())]
    [[1.0, 2.0], [1.0, 2.0], [0.0, 3.0], [0.0, 9.0]]
    """
    classes, n = inside.predictions.cpu().numpy(), len(inside)
    if len(np.unique(classes)) < 2:
        raise InputError(f"all {n} images to select by have the same predicted class")
    made: list[Tensor] = []
    for turn in range(math.ceil(size / n)):
        purpose = f"crossed {turn}"
        order = np.argsort(identity.draw_keys(inside.identities, seed, purpose), kind="stable")
        first = order[: size - turn * n]
        second = order[_next_other(classes[order])[: len(first)]]
        coins = torch.from_numpy(identity.draw_coins(inside.identities[first], inside.width, seed, purpose))
        one, other = _rows(inside, first), _rows(inside, second)
        made.append(torch.where(coins.to(one.device), one, other))
    return Features.from_arrays(torch.cat(made), inside.head)


def _next_other(classes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[n]: for each place, the next place on the circle whose class differs.

    >>> _next_other(np.array([5, 5, 7, 5]))
    array([2, 2, 3, 2])
    """
    n = len(classes)
    found = np.empty(2 * n, np.int64)
    found[-1] = -1
    for place in range(2 * n - 2, -1, -1):  # twice around: a run of one class may reach over the end
        following = place + 1
        found[place] = following if classes[following % n] != classes[place % n] else found[following]
    return found[:n] % n


def _rows(features: Features, rows: np.ndarray[Any, Any]) -> Tensor:
    """[n, M] float32: some rows, in the given order."""
    return torch.cat([raw.float() for _, raw in features[rows].chunks()])
