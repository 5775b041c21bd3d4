"""Image classifiers of Hugging Face's transformers, with the preprocessing of their own processor.

Zero-shot classifiers are the image encoder of CLIP or SigLIP, and sentences with the class names as its linear head.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor, nn
from torch.nn import functional

from oodshape.core.errors import InputError
from oodshape.images.decode.preprocessing import FILTERS, Preprocessing
from oodshape.networks.weights import load_weights
from oodshape.networks.zoo import library

FAR = 0.05  # how far prepared pixels may be from the processor's on average: its resizing may round otherwise
ZERO_SHOT = ("clip", "siglip", "siglip2")  # model types of transformers
PROMPT = "a photo of a {}."
HEAD = "head"  # the layer's name in ZeroShot
AT_ONCE = 256  # sentences that go through the text encoder together


def from_hugging_face(
    name: str,
    weights: Path | None,
    num_classes: int | None,
    classes: tuple[str, ...] = (),
    prompt: str = PROMPT,
    text: Tensor | None = None,
) -> tuple[nn.Module, Preprocessing | None, tuple[str, ...]]:
    """The network of a name or a folder, its processor's preprocessing, and the names of its classes.

    CLIP and SigLIP compare images with texts: the `classes` in a `prompt` are their head, or the `text` features
    [C, M] that these gave before. Code that comes with a model is not run, and transformers does not ask whether to
    run it. What a hub does not give is an OSError.
    """
    if num_classes is not None:
        raise InputError(f"hf:{name} decides the number of classes itself: leave num_classes out")
    if find_spec("torchvision") is not None:
        library("torchvision")  # transformers would fail with it, and say less
    transformers = library("transformers", "hf")
    here: dict[str, Any] = {"pretrained_model_name_or_path": name, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(**here)
        processor = transformers.AutoImageProcessor.from_pretrained(**here)
        if is_zero_shot(config):
            if text is None:
                check_classes(name, classes, prompt)
            model = transformers.AutoModel.from_pretrained(**here).eval()
            if weights is not None:
                load_weights(model, weights)
            if text is None:
                text = compute_text_features(model, transformers.AutoTokenizer.from_pretrained(**here), classes, prompt)
            model.text_model = None  # done with it: the head holds what it said
            return ZeroShot(model, text).eval(), read_processor(processor), classes
        net: nn.Module = transformers.AutoModelForImageClassification.from_pretrained(**here)
    except InputError:
        raise
    except (OSError, ValueError, ImportError) as error:
        if isinstance(error, OSError) and not (Path(name).is_absolute() or Path(name).is_dir()):
            raise  # not in a cache, or no connection
        raise InputError(f"transformers cannot open hf:{name}: {' '.join(str(error).split())}") from None
    if weights is not None:
        load_weights(net, weights)
    return net.eval(), read_processor(processor), _names(net)


def read_processor(processor: Any) -> Preprocessing:
    """Convert a processor to a Preprocessing, and check it against the processor's output for a picture."""
    resample, crop_pct = getattr(processor, "resample", None), getattr(processor, "crop_pct", None)
    size, crop = (dict(getattr(processor, each, None) or {}) for each in ("size", "crop_size"))
    normal = getattr(processor, "do_normalize", True)
    mean, std = (
        tuple(getattr(processor, each, None) or ()) if normal else (other,) * 3
        for each, other in (("image_mean", 0.0), ("image_std", 1.0))
    )
    resize: int | tuple[int, int] | None = None
    if getattr(processor, "do_resize", True) and size:
        resize = size["shortest_edge"] if "shortest_edge" in size else (size.get("height", 0), size.get("width", 0))
    side = None
    if getattr(processor, "do_center_crop", False) and crop:
        side = crop.get("height")
    elif isinstance(resize, int) and crop_pct:  # ConvNeXt: a larger resize, then a crop of that size
        resize, side = (resize, resize) if resize >= 384 else int(resize / crop_pct), resize
        side = None if isinstance(resize, tuple) else side
    filters = {int(value): name for name, value in FILTERS.items()}
    number = int(PIL.Image.Resampling.BILINEAR if resample is None else resample)
    how = filters.get(number, f"resample={number}")
    try:
        made = Preprocessing(mean, std, resize, side, how)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"the processor {type(processor).__name__} cannot be followed: {error}") from None
    _hold(made, processor)
    return made


def _hold(made: Preprocessing, processor: Any) -> None:
    """Refuse a processor that gives other pixels for a smooth picture."""
    across, down = np.meshgrid(np.linspace(0, 6, 320), np.linspace(0, 4, 240))
    waves = np.stack([np.sin(across), np.cos(down), np.sin(across + down)], axis=2)
    picture = PIL.Image.fromarray(np.uint8(127.5 + 127 * waves))
    theirs = processor(images=picture, return_tensors="pt")["pixel_values"][0]
    ours = made(picture)
    if theirs.shape != ours.shape or not float((theirs - ours).abs().mean()) <= FAR:
        raise InputError(
            f"the processor {type(processor).__name__} does more than resize, crop and normalise: it gives "
            f"{list(theirs.shape)} where {made} gives {list(ours.shape)}, or other pixels; prepare the images with it "
            "yourself, and give the network as a torch module"
        )


def _names(net: nn.Module) -> tuple[str, ...]:
    """The names of the classes, where somebody gave them any."""
    config: Any = net.config
    names = tuple(str(config.id2label[number]) for number in sorted(config.id2label))
    return () if names == tuple(f"LABEL_{number}" for number in range(len(names))) else names


class ZeroShot(nn.Module):
    """Unit-norm image features, then a linear head whose rows are unit-norm text features: the logits are cosines.

    So MSP with a temperature T is MCM with that temperature, on plain cosines; CLIP's own scale is not part of it.
    """

    def __init__(self, encoder: nn.Module, text: Tensor) -> None:
        """Take a model of transformers with `get_image_features`, and the text features [C, M] of the classes."""
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(text.shape[1], text.shape[0], bias=False)
        self.head.weight = nn.Parameter(text, requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        """[N, 3, H, W] images -> [N, C] cosines."""
        found = self.encoder.get_image_features(pixel_values=images)  # type: ignore[operator]
        logits: Tensor = self.head(functional.normalize(_features(found), dim=-1))
        return logits


def is_zero_shot(config: Any) -> bool:
    """Whether a model's configuration is that of an image and a text encoder, without a trained head."""
    trained = any("ForImageClassification" in name for name in getattr(config, "architectures", None) or ())
    return getattr(config, "model_type", "") in ZERO_SHOT and not trained


def compute_text_features(model: Any, tokenizer: Any, classes: tuple[str, ...], prompt: str) -> Tensor:
    """[C, M]: the unit-norm text features of each class name in the prompt."""
    sentences = [prompt.replace("{}", name) for name in classes]
    # SigLIP was trained on sentences of full length
    limit = model.config.text_config.max_position_embeddings
    full = model.config.model_type != "clip"
    parts = []
    for first in range(0, len(sentences), AT_ONCE):
        tokens = tokenizer(
            sentences[first : first + AT_ONCE],
            padding="max_length" if full else True,
            truncation=True,
            max_length=limit,
            return_tensors="pt",
        )
        given = {name: tokens[name] for name in ("input_ids", *(() if full else ("attention_mask",)))}
        with torch.no_grad():
            parts.append(functional.normalize(_features(model.get_text_features(**given)), dim=-1))
    return torch.cat(parts)


def check_classes(name: str, classes: tuple[str, ...], prompt: str) -> None:
    """Refuse class names that give no head, and a prompt without a place for them."""
    if len(classes) < 2:
        raise InputError(
            f"hf:{name} compares images with texts and has no classes of its own: give the names of at least 2 classes "
            f"(--classes names.txt, one per line; Python: classes=(...)), got {len(classes)}"
        )
    double = next((each for each in classes if classes.count(each) > 1), None)
    if double is not None:
        raise InputError(f"two classes are called {double!r}: they would have the same logit; name each once")
    if "{}" not in prompt:
        raise InputError(f"a prompt has {{}} in place of the class name, such as {PROMPT!r}, got {prompt!r}")


def _features(found: Any) -> Tensor:
    """The features that `get_image_features` and `get_text_features` give: transformers 5 wraps them."""
    features: Tensor = getattr(found, "pooler_output", found)
    return features
