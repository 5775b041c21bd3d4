"""hf:FOLDER: a tiny classifier of transformers, saved to disk, with its own processor."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

from oodshape.core.errors import InputError
from oodshape.networks.loading import open_model
from small_nets import explains

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(find_spec("transformers") is None, reason="need the extra hf (pip install 'oodshape[hf]')"),
]


@pytest.fixture(scope="module")
def transformers() -> Iterator[Any]:
    """The library; a torchvision that does not load is hidden from it, as it works without."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            import_module("torchvision")
        except (ImportError, RuntimeError):
            patch.setitem(sys.modules, "torchvision", None)
        yield import_module("transformers")


@pytest.fixture(scope="module")
def folder(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    where = tmp_path_factory.mktemp("hf")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=16,
        id2label={0: "cat", 1: "dog", 2: "owl"},
    )
    net = transformers.ViTForImageClassification(config)
    torch.nn.init.normal_(net.classifier.weight)  # as small as they are made, the logits would all be alike
    net.save_pretrained(where)
    processor = transformers.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4], resample=3
    )
    processor.save_pretrained(where)
    return where


@pytest.fixture
def picture() -> PIL.Image.Image:
    coarse = np.random.default_rng(0).integers(0, 256, size=(6, 8, 3), dtype=np.uint8)
    return PIL.Image.fromarray(coarse).resize((80, 60), PIL.Image.Resampling.BICUBIC)


def test_a_saved_classifier_comes_with_its_preprocessing_and_names(
    transformers: Any, folder: Path, picture: PIL.Image.Image
) -> None:
    source = open_model(f"hf:{folder}")
    assert source.names == ("cat", "dog", "owl")
    assert source.native is not None
    assert (source.native.resize, source.native.crop, source.native.interpolation) == ((32, 32), None, "bicubic")
    assert (source.native.mean, source.native.std) == ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    outputs = source.classifier(torch.stack([source.native(picture), source.native(picture.rotate(90))]))
    explains(outputs)
    assert source.classifier.head_name == "classifier"
    pixels = transformers.AutoImageProcessor.from_pretrained(folder)(images=picture, return_tensors="pt")
    with torch.no_grad():
        wanted = source.classifier.net(**pixels).logits[0]
    torch.testing.assert_close(outputs.logits[0], wanted, rtol=0.05, atol=0.05)  # resizing rounds otherwise


PROCESSORS: dict[str, tuple[dict[str, Any], tuple[Any, Any, str]]] = {
    "shorter side": (
        {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}},
        (40, 32, "bicubic"),
    ),
    "not normalised": ({"size": {"height": 32, "width": 32}, "do_normalize": False}, ((32, 32), None, "bicubic")),
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_the_steps_of_a_processor_are_followed(transformers: Any, kind: str) -> None:
    from oodshape.networks.hugging_face import read_processor

    said, wanted = PROCESSORS[kind]
    made = read_processor(transformers.CLIPImageProcessor(**({"do_center_crop": False} | said)))
    assert (made.resize, made.crop, made.interpolation) == wanted


@pytest.mark.usefixtures("transformers")
def test_a_name_that_is_nowhere_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=r"transformers cannot open hf:.*nothing") as caught:
        open_model(f"hf:{tmp_path / 'nothing'}")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="decides the number of classes itself"):
        open_model(f"hf:{tmp_path}", num_classes=3)
