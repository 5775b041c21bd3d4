"""Networks from where users have them: a spec -> a classifier and its own preprocessing."""

from __future__ import annotations

import difflib
import logging
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack
from unittest.mock import patch

import torch
from torch import Tensor, nn

from oodshape.core.errors import InputError, check_trust
from oodshape.core.files import one_line
from oodshape.core.machine import OFFLINE, is_offline
from oodshape.core.options import HeadOptions, ModelOptions, OpenKeywords, make_options, takes_options
from oodshape.core.progress import announce
from oodshape.core.user_code import import_object, locate_failure, working_directory
from oodshape.images.decode.preprocessing import Interpolation, Preprocessing, Resize
from oodshape.networks import zoo
from oodshape.networks.classifier import Classifier
from oodshape.networks.device import find_device
from oodshape.networks.hugging_face import HEAD, PROMPT, ZeroShot, from_hugging_face
from oodshape.networks.model_names import FORMS, imagenet_classes, no_model_error
from oodshape.networks.weights import count_classes, is_torchscript, load_weights

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class OpenNet:
    """An opened network, with its own preprocessing and class names if known."""

    classifier: Classifier
    native: Preprocessing | None = None  # the model's own; None where it says none
    names: tuple[str, ...] = ()  # of its classes, where they are known
    spec: str = ""  # as it was given
    opening: ModelOptions = ModelOptions()
    layer: HeadOptions = HeadOptions()

    @property
    def weights(self) -> str:
        """The file of weights, as it was given."""
        return str(self.opening.weights or "")

    @property
    def text(self) -> Tensor | None:
        """The text features [C, M] of the classes, where these are the head."""
        net = self.classifier.net
        return net.head.weight.detach() if isinstance(net, ZeroShot) else None


Model = str | Path | nn.Module | Classifier | OpenNet


@takes_options(ModelOptions, HeadOptions)
def open_model(
    model: Model,
    *,
    classes: tuple[str, ...] = (),
    prompt: str = PROMPT,
    text: Tensor | None = None,
    **options: Unpack[OpenKeywords],
) -> OpenNet:
    """Open a model: build the network that a spec names, or wrap a torch network.

    The number of classes is taken from the weights where a library can build the network for any. A torch network
    or a Classifier is used as it is, with another `head` where one is named.

    >>> open_model("zoo:digits-vit").native
    Preprocessing(mean=(0.303,), std=(0.32,), resize=None, crop=None, interpolation='bilinear')

    Args:
        model: A spec (see `FORMS`), a torch network, a Classifier, or a Source that was opened before.
        classes: Class names for a model that compares images with texts (`hf:`, CLIP or SigLIP).
        prompt: The sentence around such a name, which stands for {}.
        text: In place of both: the text features [C, M] that they gave before.

    Returns:
        The classifier with its own preprocessing and class names, where it has any.

    Raises:
        InputError: If the spec, the weights or the head cannot be used; the message says what to change.
    """
    opening, layer = make_options(ModelOptions, options), make_options(HeadOptions, options)
    if opening.device is not None:
        find_device(opening.device)  # refused before anything is loaded
    if isinstance(model, (str, Path)):
        source = _from_spec(str(model), opening, layer, classes, prompt, text)
    else:
        source = _given(model, opening, layer)
    found, head = source.classifier, layer.head
    wanted = opening.precision or found.precision
    if (head is not None and head != found.head_name) or wanted != found.precision:
        source = replace(source, classifier=Classifier(found.net, head or found.head_name, precision=wanted))
    if opening.device is not None:
        source.classifier.to(opening.device)
    return source


def _given(model: Any, opening: ModelOptions, layer: HeadOptions) -> OpenNet:
    if opening.weights is not None or layer.num_classes is not None:
        raise InputError("weights and num_classes are for a model that is named by a spec; load them into the network")
    if isinstance(model, OpenNet):
        return model
    if not isinstance(model, (nn.Module, Classifier)):
        raise InputError(f"a model is {FORMS}; or a torch network; got {type(model).__name__}")
    classifier = model if isinstance(model, Classifier) else Classifier(model, layer.head)
    return OpenNet(classifier, spec=type(classifier.net).__name__)


def override(
    native: Preprocessing | None,
    *,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    resize: Resize | None = None,
    crop: int | None = None,
    interpolation: Interpolation | None = None,
) -> Preprocessing:
    """Override parts of a model's own preprocessing; without one, mean and std are needed.

    An exact resize leaves nothing to crop, so it takes the place of the model's own crop too.
    """
    said: dict[str, Any] = {"mean": mean, "std": std, "resize": resize, "crop": crop, "interpolation": interpolation}
    said = {name: value for name, value in said.items() if value}
    if native is None and not (mean and std):
        raise InputError(
            "the model does not say how its images are prepared: say how they were in training. In Python: "
            "preprocessing=Preprocessing(mean=..., std=..., resize=..., crop=...); on the command line: "
            "--preprocessing 'mean=0.485,0.456,0.406 std=... resize=256 crop=224'; or return (network, Preprocessing) "
            "from the function. Give mean and std as fractions of 255, one per channel; resize and crop if any"
        )
    if native is None:
        return Preprocessing(**said)
    if isinstance(resize, tuple):
        native = replace(native, crop=None)
    return replace(native, **said) if said else native


def call_builder(spec: str) -> tuple[nn.Module, Preprocessing | None]:
    """Call a user's function that builds a network; it may return a pair with the preprocessing.

    The working directory can be imported from, as with `python -m`.
    """
    make = import_object(spec, f"a model is {FORMS}")
    with working_directory():
        try:
            made = make()
        except Exception as error:
            raise InputError(f"{spec} failed: {locate_failure(error, getattr(make, '__code__', None))}") from error
    net, preprocessing = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(net, nn.Module) or not (preprocessing is None or isinstance(preprocessing, Preprocessing)):
        raise InputError(f"{spec}() must return a network, or (network, Preprocessing), got {type(made).__name__}")
    return net, preprocessing


def load_archive(path: Path, *, trust_code: bool) -> nn.Module:
    """Load a network that `torch.export.save` wrote.

    Args:
        path: The archive.
        trust_code: Whether the archive may run code. It may hold pickled objects, compiled libraries, expressions
            that torch evaluates and operators that write files; no check of the file could rule all of these out.

    Raises:
        InputError: The archive is not trusted, cannot be loaded, or takes something else than batches of images.
    """
    if not path.is_file():
        raise InputError(f"cannot read {path}: there is no such file")
    check_trust(f"{path} is a torch.export archive, which can run any code when it is loaded", trust_code)
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it prints the traceback of a damaged file before it raises
    try:
        # Guards would refuse batches of one image where the network was exported with two or more.
        module = torch.export.load(path).module(check_guards=False)
    except Exception as error:  # damaged bytes fail in whatever way they lead to
        raise InputError(
            f"{path} cannot be loaded by torch {torch.__version__} ({one_line(error)}); export the network again with "
            "this torch: torch.export.save(torch.export.export(net, ...), path)"
        ) from None
    finally:
        logger.setLevel(level)
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise InputError(f"{path} takes {len(inputs)} inputs; a classifier takes one, a batch of images")
    batch = inputs[0].meta["val"].shape[0]
    if isinstance(batch, int):
        raise InputError(
            f"{path} was exported for batches of exactly {batch}; export it for any number of images: "
            "torch.export.export(net, (images,), dynamic_shapes=({0: torch.export.Dim('batch')},)) "
            "with two images or more"
        )
    return module


def runs_named_code(spec: str) -> bool:
    """Whether opening a model runs code that its spec names: a function of the user's, or an archive.

    >>> [runs_named_code(spec) for spec in ("my_nets:build", "net.pt2", "timm:resnet18", "resnet50")]
    [True, True, False, False]
    """
    kind, colon, _ = spec.partition(":")
    return spec.lower().endswith(".pt2") or (bool(colon) and kind not in _LIBRARIES)


def _from_spec(
    spec: str, opening: ModelOptions, layer: HeadOptions, classes: tuple[str, ...], prompt: str, text: Tensor | None
) -> OpenNet:
    weights, num_classes = opening.weights, layer.num_classes
    kind, _, name = spec.partition(":")
    names: tuple[str, ...] = ()
    native: Preprocessing | None = None
    if spec.lower().endswith(".pt2"):
        net = load_archive(Path(spec), trust_code=opening.trust_code)
        if weights is not None or num_classes is not None or layer.head:
            raise InputError(
                f"{spec} holds its weights, and its layers have no names: leave weights, num_classes and head out; if "
                "it returns several tensors, export a network that returns the logits alone"
            )
    elif kind == "hf" and name:
        opened = partial(from_hugging_face, name, weights, num_classes, classes, prompt, text)
        net, native, names = load_published(spec, opened)
    elif kind in _LIBRARIES and name:
        net, native, names = _LIBRARIES[kind](name, weights, num_classes)
        net.float()  # torch.set_default_dtype may say otherwise, and a guard knows its network by its weights
    elif name:
        if num_classes is not None:
            raise InputError(f"{spec} decides the number of classes itself: leave num_classes out")
        net, native = call_builder(spec)
        if weights is not None:
            load_weights(net, weights)
    else:
        if is_torchscript(Path(spec)):
            raise InputError(
                f"{spec} is a TorchScript archive (torch.jit.save): the layers in it cannot be read from Python; give "
                "the network that it was made from (package.module:function), or a torch.export archive of it (.pt2)"
            )
        raise no_model_error(spec)
    head = HEAD if isinstance(net, ZeroShot) else layer.head
    return OpenNet(Classifier(net, head), native, names, spec, opening, layer)


Opened = tuple[nn.Module, Preprocessing | None, tuple[str, ...]]


def _from_zoo(name: str, weights: Path | None, num_classes: int | None) -> Opened:
    entry = zoo.model_entry(name)
    if weights is None and entry.id_set != "digits":
        raise InputError(f"zoo:{name} needs weights ({entry.weights}); give the file (--weights)")
    if weights is not None and num_classes is None:
        num_classes = count_classes(entry.make(entry.classes), weights)
    of_imagenet = entry.id_set == "imagenet" and num_classes in (None, entry.classes)
    return (
        zoo.build(name, weights, num_classes),
        entry.native,
        tuple(imagenet_classes().values()) if of_imagenet else (),
    )


def _from_timm(name: str, weights: Path | None, num_classes: int | None) -> Opened:
    timm = zoo.library("timm")
    try:
        make = partial(timm.create_model, name)
        net = _filled(f"timm:{name}", make, {"pretrained": True}, weights, num_classes)
    except RuntimeError as error:
        like = ", ".join(difflib.get_close_matches(name, timm.list_models(), n=4))
        raise InputError(f"timm:{name}: {one_line(error)}{f'; did you mean {like}?' if like else ''}") from None
    # published weights with 1,000 classes are ImageNet's; a folder or another hub (NAME with a colon) may hold any
    told: Any = net
    published = weights is None or str(told.pretrained_cfg.get("url")).endswith(f"/{weights.name}")
    of_imagenet = published and ":" not in name and told.num_classes == len(imagenet_classes())
    return net, Preprocessing.from_timm(net), tuple(imagenet_classes().values()) if of_imagenet else ()


def _from_torchvision(name: str, weights: Path | None, num_classes: int | None) -> Opened:
    models = zoo.library("torchvision.models")
    try:
        published = list(models.get_model_weights(name))
    except ValueError:
        raise InputError(f"torchvision has no model {name!r}; see torchvision.models.list_models()") from None
    # A file under its published name comes with its own preprocessing; other weights with the usual one, the first.
    chosen = published[0] if weights is not None else models.get_model_weights(name).DEFAULT
    if weights is not None:
        chosen = next((entry for entry in published if entry.url.endswith(f"/{weights.name}")), chosen)
    make = partial(models.get_model, name)
    net = _filled(f"torchvision:{name}", make, {"weights": chosen}, weights, num_classes)
    way = chosen.transforms()
    how: Any = way.interpolation.value
    native = Preprocessing(tuple(way.mean), tuple(way.std), way.resize_size[0], way.crop_size[0], how)
    same = weights is None or chosen.url.endswith(f"/{weights.name}")
    return net, native, tuple(chosen.meta["categories"]) if same else ()


_LIBRARIES: dict[str, Callable[[str, Path | None, int | None], Opened]] = {
    "zoo": _from_zoo,
    "timm": _from_timm,
    "torchvision": _from_torchvision,
    "hf": from_hugging_face,
}


def takes_num_classes(spec: str) -> bool:
    """Whether a spec names a network that its library can build for any number of classes."""
    return spec.partition(":")[0] in _LIBRARIES


def _filled(
    spec: str, make: Callable[..., nn.Module], trained: dict[str, Any], weights: Path | None, num_classes: int | None
) -> nn.Module:
    """A library's network with its published weights, or with those of a file and as many classes as these have."""
    if weights is None:
        if num_classes is not None:
            raise InputError(f"{spec} with num_classes={num_classes} has no trained head: give its weights")
        return load_published(f"the published weights of {spec}", partial(make, **trained))
    if num_classes is None:
        num_classes = count_classes(make(), weights)
    net = make() if num_classes is None else make(num_classes=num_classes)
    load_weights(net, weights)
    return net


def load_published(what: str, load: Callable[[], T]) -> T:
    """Call `load`, without network access if the cache of a hub is complete.

    A download is announced in one line; offline it is an error. `load` raises OSError for what it cannot get.
    """
    hub = sys.modules.get("huggingface_hub.constants")
    # before huggingface_hub 1.0, an open session stays offline or online, whatever is asked later
    reset_sessions = getattr(sys.modules.get("huggingface_hub.utils"), "reset_sessions", lambda: None)
    reset_sessions()
    try:
        with (
            patch.object(torch.hub, "urlopen", side_effect=OSError("not in the cache")),
            patch.object(hub, "HF_HUB_OFFLINE", True) if hub else nullcontext(),
        ):
            return load()
    except OSError:
        if is_offline():
            raise InputError(
                f"{what}: not in the cache of its hub, and --offline or {OFFLINE} forbids downloads; give a file with "
                "--weights (weights=...), or allow the download"
            ) from None
    announce(f"downloading {what} into the cache of its hub")
    reset_sessions()
    try:
        return load()
    except OSError as error:  # no connection, no such file at the publisher's
        raise InputError(f"cannot get {what} ({one_line(error)}); give a file with weights") from None
