"""BenchModel: one network of a run, with the features of every set, and the scores of methods on them.

A method that perturbs images runs them through the network a second time.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oodshape.benchmark.spec import ModelSpec
from oodshape.core.errors import InputError
from oodshape.core.options import CacheOptions, ModelOptions, RunOptions, SubsetOptions, make_options
from oodshape.core.progress import progress_bar
from oodshape.features.features import Features
from oodshape.features.proxy import SIZE, extract_tensor_proxy, proxy_features
from oodshape.features.tensor_batches import extract_tensors, hash_tensors
from oodshape.images.decode.prefetch import prefetch_rows
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.identity import Keys
from oodshape.images.sources.image_set import ImageSet, limit_images
from oodshape.images.sources.memory import iterate_prepared
from oodshape.methods.detector import Detector, Method
from oodshape.networks.classifier import Classifier

SEEN = 5000  # training images that a perturbation learns from: what the authors of AdaSCALE take
BATCH = 64  # images at once: gradients take several times the memory of a forward pass
FEATURES_ONLY = "this method changes images: it needs a network and images, and got features"


@dataclass(frozen=True, kw_only=True)
class BenchOptions(ModelOptions, SubsetOptions, CacheOptions, RunOptions):
    """Options of a benchmark run; `weights` is the folder that holds the weights of its networks."""

    models: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seed: int = 0
    seeds: int = 1  # how many runs, from `seed` on, where anything is random
    resamples: int = 200
    data: Path | None = None
    head: str | None = None  # the layer that gives the logits, in every network; None: as each says, or found
    any_list: bool = False  # whether lists of images need not be the published ones

    @property
    def run(self) -> RunOptions:
        """How networks run."""
        return make_options(RunOptions, vars(self))


@dataclass(frozen=True, eq=False)
class TensorSet:
    """Prepared images: a DataLoader, or any iterable of batches of tensors."""

    name: str
    batches: Any
    fingerprint = ""  # known once they were read


Images = ImageSet | TensorSet | Features  # what a run reads features from


@dataclass
class BenchModel:
    """A network of the benchmark, and the features of every set once they are extracted."""

    spec: ModelSpec
    family: str
    network: Classifier | None  # None: only features were given
    steps: Preprocessing | None  # None: images come prepared
    sets: dict[str, Images]
    options: BenchOptions
    features: dict[str, Features] = field(default_factory=dict)
    proxy: list[Features] = field(default_factory=list)  # only where a method wants one
    uncropped: frozenset[str] = frozenset()  # the sets whose images have their final size

    @property
    def classifier(self) -> Classifier:
        """The network, or an error where only features were given."""
        if self.network is None:
            raise InputError(FEATURES_ONLY)
        return self.network

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared."""
        assert self.steps is not None
        return self.steps

    @property
    def fingerprint(self) -> str:
        """What identifies the network, or the head of features."""
        found = self.features["train"].head if self.network is None else self.network
        return str(found.fingerprint)

    def prepares(self, name: str) -> Preprocessing:
        """How the images of a set are prepared."""
        return replace(self.preprocessing, resize=None, crop=None) if name in self.uncropped else self.preprocessing

    def image_set(self, name: str) -> ImageSet:
        """The images of a set, or an error where it has none that can be prepared again."""
        given = self.sets[name]
        if isinstance(given, (TensorSet, Features)):
            raise InputError(FEATURES_ONLY)
        return given

    def extract(self, name: str, *, proxy: bool) -> None:
        """Extract the features of a set; with `proxy`, those of scrambled images of it too."""
        given, options = self.sets[name], self.options
        if isinstance(given, Features):
            self.features[name] = given
        elif isinstance(given, TensorSet):
            self._extract_tensors(given, name, proxy)
        else:
            how = {"cache": options.cache, **vars(options.run)}
            self.features[name] = Features.extract(self.classifier, given, self.prepares(name), **how)
            if proxy:
                self.proxy = proxy_features(self.classifier, given, self.preprocessing, seed=options.seed, **how)

    def _extract_tensors(self, given: TensorSet, name: str, proxy: bool) -> None:
        net, progress, cache = self.classifier, self.options.progress, self.options.cache
        seen = extract_tensors(
            net, given.batches, keep=SIZE if proxy else 0, cache=cache, name=given.name, progress=progress
        )
        head = net.head if net.head.weight.device.type == "cpu" else net.head.to("cpu")
        self.features[name] = Features.from_tensors(seen, head)
        if proxy and seen.shape is not None and seen.kept.ndim == 4 and seen.kept.is_floating_point():
            identities = seen.identities[seen.kept_rows]
            self.proxy = extract_tensor_proxy(net, seen.kept, identities, self.options.seed, progress=progress)

    def learn(self, method: Method) -> Method:
        """The method, once its perturbation has seen at most 5,000 training images, where it learns from them."""
        if not method.perturb.learns:
            return method
        given = self.sets["train"]
        if isinstance(given, TensorSet):
            prepared = (batch for batch, _ in islice(iterate_prepared(given.batches, BATCH), -(-SEEN // BATCH)))
            return replace(method, perturb=method.perturb.learned(self.classifier, prepared))
        few = limit_images(self.image_set("train"), SEEN, self.options.seed)
        with closing(self._decode(few, "train")) as decoding:
            batches = (images for _, images in decoding)
            return replace(method, perturb=method.perturb.learned(self.classifier, batches))

    def score(self, detector: Detector, name: str) -> tuple[Tensor, float | None]:
        """The scores of a set, and the seconds they took: None where a loader is read again.

        A perturbation goes back to the images.
        """
        start, given = time.perf_counter(), self.sets[name]
        if not detector.method.perturbs:
            return detector.score(self.features[name]), time.perf_counter() - start
        if isinstance(given, TensorSet):
            return self._score_tensors(detector, given, self.features[name].identities), None
        images = self.image_set(name)
        scores, decoding = torch.empty(len(images), dtype=torch.float32), self._decode(images, name)
        with progress_bar(f"{name} perturbed", len(images), self.options.progress) as report, closing(decoding):
            for rows, batch in decoding:
                scores[rows.start : rows.stop] = detector.score(self.classifier, batch).cpu()
                report(rows.stop)
        return scores, time.perf_counter() - start

    def _decode(self, images: ImageSet, name: str) -> Generator[tuple[range, Tensor], None, None]:
        """The images of a set as the network takes them, with their rows."""
        steps = self.prepares(name)
        with closing(prefetch_rows(images, steps, range(len(images)), BATCH, self.options.workers)) as decoding:
            for rows, pixels, _ in decoding:
                yield rows, steps.normalize(pixels)

    def _score_tensors(self, detector: Detector, given: TensorSet, identities: Keys) -> Tensor:
        """[N] float32 scores in the order of the identities: a loader is read once more, and may shuffle."""
        found: dict[int, float] = {}
        for batch, _ in iterate_prepared(given.batches):
            for part in torch.split(batch, BATCH):
                found |= zip(hash_tensors(part).tolist(), detector.score(self.classifier, part).tolist(), strict=True)
        try:
            return torch.tensor([found[key] for key in identities.tolist()], dtype=torch.float32)
        except KeyError:
            raise InputError(
                "this method reads images twice, and the loader gives other images the second time: turn random "
                "augmentation off, and give a loader that can be iterated again"
            ) from None
