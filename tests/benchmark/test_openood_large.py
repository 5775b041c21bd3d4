"""OpenOOD's ImageNet benchmarks on small made-up sets: ImageNet-C as it is, torchvision's networks by their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from oodshape import Classifier, Features
from oodshape.benchmark.plan import Options, Prepared
from oodshape.benchmark.run import run
from oodshape.benchmark.spec import Benchmark
from oodshape.images.datasets.catalog import open_source
from oodshape.images.decode.preprocessing import IMAGENET
from oodshape.networks import zoo
from oodshape.report.tables.openood import openood_tables
from openood_files import write_openood

RUN = "imagenet200_resnet18_224x224_base_e90_lr0.1_default"


def test_the_full_spectrum_of_imagenet_200(tmp_path: Path, torchvision_ops: object) -> None:
    data = tmp_path / "data"
    write_openood(data, "openood-imagenet200", count=2, side=40)
    file = tmp_path / "results" / RUN / "s2" / "best.ckpt"
    file.parent.mkdir(parents=True)
    torch.manual_seed(0)
    net = zoo.build("imagenet200-resnet18")
    torch.save(net.state_dict(), file)
    spectrum = Benchmark.load("openood-imagenet200").full_spectrum()
    how = {"resamples": 2, "samples": 0, "progress": False, "any_list": True}
    results = run(spectrum, Options(data=data, weights=tmp_path, methods=("energy",), **how))
    assert [row.ood for row in results.rows] == ["ssb_hard", "ninco", "inaturalist", "textures", "openimage_o"]
    assert {(row.model, row.n_id, row.n_ood) for row in results.rows} == {("ResNet18 s2", 8, 2)}
    # the accuracy is over all ID images alike, and ImageNet-C goes in as it is
    right, known = 0, 0
    for name in ("test", "imagenet_v2", "imagenet_c", "imagenet_r"):
        images = open_source(f"catalog:openood-imagenet200/{name}", data, data, any_list=True)
        way = replace(IMAGENET, resize=None, crop=None) if name == "imagenet_c" else IMAGENET
        features = Features.extract(Classifier(net), images, way, progress=False)
        right += int((features.predictions.numpy() == images.labels).sum())
        known += len(images)
    assert results.rows[0].id_accuracy == right / known
    ((frame, title, notes),) = openood_tables(results)
    assert title == "openood-imagenet200-fs (OpenOOD v1.5): ResNet18"
    assert frame.iloc[0]["near published"] == "50.51"
    assert "Full spectrum (fs): ID are the test images and those of imagenet_v2, imagenet_c, imagenet_r." in notes


def test_imagenet_c_keeps_its_size(tmp_path: Path) -> None:
    write_openood(tmp_path, "openood-imagenet200", count=1, side=40)
    image = open_source("catalog:openood-imagenet200/imagenet_c", tmp_path, tmp_path, any_list=True)[0]
    pixels = replace(IMAGENET, resize=None, crop=None).pixels(image)
    np.testing.assert_array_equal(pixels, np.asarray(image))


@pytest.mark.parametrize("es", [False, True])
def test_torchvisions_networks_are_found_by_their_files(es: bool, tmp_path: Path) -> None:
    data, weights = tmp_path / "data", tmp_path / "checkpoints"
    write_openood(data, "openood-imagenet", count=1, side=8)
    weights.mkdir()
    files = ("resnet50-0676ba61", "swin_t-704ceda3", "vit_b_16-c867db91", "regnet_y_16gf_swag-43afe44d")
    for name in files:
        (weights / f"{name}.pth").write_bytes(b"")
    large = Benchmark.load("openood-imagenet").full_spectrum("es" if es else "")
    prepared = Prepared.of(large, Options(data=data, weights=weights, any_list=True, methods=("react",)))
    assert {title: each.weights.stem for title, each in prepared.networks.items()} == dict(
        zip(("ResNet50", "Swin-T", "ViT-B/16", "RegNet_Y_16GF"), files, strict=True)
    )
    shifted = ["imagenet_v2", "imagenet_c", "imagenet_r", *(["imagenet_es"] if es else [])]
    near_and_far = ["ssb_hard", "ninco", "inaturalist", "textures", "openimage_o"]
    assert list(prepared.sets) == ["train", "test", "val", *shifted, *near_and_far]
    assert prepared.skipped == []
