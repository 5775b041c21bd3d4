"""CLIP and SigLIP as linear classifiers: tiny models saved to disk, held to their own forward pass and to MCM."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from networks.test_hugging_face import transformers as transformers  # the fixture
from oodshape import METHODS, Features, Guard, InputError, Method, evaluate
from oodshape.methods.scores.logits import MaxSoftmax
from oodshape.networks.loading import open_model

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(find_spec("transformers") is None, reason="need the extra hf (pip install 'oodshape[hf]')"),
]
CLASSES = ("cat", "dog", "car")
WORDS = ("<pad>", "<s>", "</s>", "<unk>", "a", "photo", "of", ".", *CLASSES)
TEXT = {"vocab_size": len(WORDS), "max_position_embeddings": 12, "pad_token_id": 0, "bos_token_id": 1}
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
IMAGES = {"image_size": 32, "patch_size": 8}


@pytest.fixture(scope="module", params=["CLIP", "Siglip"])
def saved(request: pytest.FixtureRequest, transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(folder, model, tokenizer) of a tiny model."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    kind = getattr(transformers, f"{request.param}Config")
    more = {"projection_dim": 12} if request.param == "CLIP" else {}
    config = kind(text_config={**SMALL, **TEXT, "eos_token_id": 2}, vision_config={**SMALL, **IMAGES}, **more)
    model = getattr(transformers, f"{request.param}Model")(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)  # as small as they are made, all cosines would be alike
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    for part in (model, tokenizer, processor):
        part.save_pretrained(folder)
    return folder, model, tokenizer


def cosines(saved: Any, pixels: torch.Tensor) -> torch.Tensor:
    """The model's own logits without its scale and bias."""
    _, model, tokenizer = saved
    full = type(model).__name__ != "CLIPModel"
    sentences = [f"a photo of a {name}." for name in CLASSES]
    length = {"padding": "max_length", "max_length": 12} if full else {"padding": True}
    tokens = tokenizer(sentences, return_tensors="pt", **length)
    given = {"input_ids": tokens["input_ids"]} | ({} if full else {"attention_mask": tokens["attention_mask"]})
    with torch.no_grad():
        logits = model(**given, pixel_values=pixels).logits_per_image
    return (logits - getattr(model, "logit_bias", torch.zeros(1)).detach()) / model.logit_scale.detach().exp()


def test_logits_are_the_model_s_cosines_and_msp_is_mcm(saved: Any) -> None:
    source = open_model(f"hf:{saved[0]}", classes=CLASSES)
    pixels = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    outputs, wanted = source.classifier(pixels), cosines(saved, pixels)
    torch.testing.assert_close(outputs.logits, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(outputs.features.norm(dim=1), torch.ones(6))
    torch.testing.assert_close(outputs.head.weight.norm(dim=1), torch.ones(3))
    features = Features.extract(source.classifier, pixels, prepared=True, progress=False)
    for temperature in (1.0, 0.01):  # MCM's own, and that of CLIP's scale: another score
        exact = np.exp(wanted.double().numpy() / temperature)
        mcm = (exact / exact.sum(axis=1, keepdims=True)).max(axis=1)
        scores = Method(score=MaxSoftmax(temperature=temperature)).fit(features).score(features)
        np.testing.assert_allclose(scores.numpy(), mcm, rtol=1e-3)
        if temperature == 1:  # `msp` is its logarithm
            np.testing.assert_allclose(METHODS["msp"].fit(features).score(features).exp().numpy(), mcm, rtol=1e-4)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    for name, count, side in (("train", 60, 4), ("val", 30, 4), ("noise", 20, 32)):
        (tmp_path / name).mkdir()
        for place in range(count):
            picture = Image.fromarray(rng.integers(0, 256, size=(side, side, 3), dtype=np.uint8))
            picture.resize((40, 36), Image.Resampling.BICUBIC).save(tmp_path / name / f"{place}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folders")
@pytest.mark.filterwarnings("ignore:the guard accepts", "ignore:no method separates")
def test_a_guard_keeps_the_text_features_and_every_method_runs(saved: Any) -> None:
    spec = f"hf:{saved[0]}"
    given = {"classes": CLASSES, "progress": False}
    guard = Guard.fit(spec, images="train", calibrate="val", method="msp", **given)
    guard.save("guard.safetensors")
    (saved[0] / "tokenizer.json").rename(saved[0] / "kept.json")  # the guard needs no text encoder any more
    rows = list(Guard.load("guard.safetensors").score("noise", model=spec, progress=False))
    (saved[0] / "kept.json").rename(saved[0] / "tokenizer.json")
    assert {row.label for row in rows} <= set(CLASSES)
    assert len(repr(guard).splitlines()) == 3
    assert repr(guard).startswith("Guard: msp\n  network: hf:")
    assert "<th>guarantee</th>" in guard._repr_html_()
    found = evaluate(spec, train="train", id="val", ood={"noise": "noise"}, resamples=5, cache=None, **given)
    assert not found.failed
    with pytest.raises(InputError, match="at least 2 classes"):
        open_model(spec)
    with pytest.raises(InputError, match="a prompt has {} in place of the class name"):
        open_model(spec, classes=CLASSES, prompt="a photo")
    with pytest.raises(InputError, match="two classes are called 'cat'"):
        open_model(spec, classes=("cat", "cat"))
