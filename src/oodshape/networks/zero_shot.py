"""Zero-shot classifiers: the image encoder of CLIP or SigLIP, and sentences with the class names as its linear head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from oodshape.core.errors import InputError

KINDS = ("clip", "siglip", "siglip2")  # model types of transformers
PROMPT = "a photo of a {}."
HEAD = "head"  # the layer's name in ZeroShot
AT_ONCE = 256  # sentences that go through the text encoder together


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
    return getattr(config, "model_type", "") in KINDS and not trained


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
