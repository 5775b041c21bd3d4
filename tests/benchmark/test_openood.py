"""OpenOOD's benchmarks on small made-up sets in its own layout: every list, every table, one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from commands import call
from oodshape import Classifier, Features, InputError
from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.plan import Plan, settings_of_openood
from oodshape.benchmark.run import run_benchmark
from oodshape.benchmark.spec import Benchmark
from oodshape.images.datasets.catalog import open_dataset
from oodshape.images.decode.preprocessing import IMAGENET
from oodshape.metrics.detection import Estimate
from oodshape.networks import zoo
from openood_files import write_openood

RUN = "cifar10_resnet18_32x32_base_e100_lr0.1_default"
NAMES = ["openood-cifar10", "openood-cifar100", "openood-imagenet200", "openood-imagenet"]
FEW = ("energy", "react", "ash-b", "vra-p", "klm", "optfs-e")
EVERY = BenchOptions(any_list=True, resamples=5, progress=False, batch_size=8)


def trained(name: str, data: Path, benchmark: str, seed: int) -> dict[str, torch.Tensor]:
    """Weights of a network that predicts the labels of the made-up training images: its head solves for them."""
    torch.manual_seed(seed)
    net = zoo.build(name)
    images = open_dataset(f"catalog:{benchmark}/train", data, data, any_list=True)
    head = next(module for module in reversed(list(net.modules())) if isinstance(module, torch.nn.Linear))
    found = Features.extract(Classifier(net), images, zoo.model_entry(name).native, progress=False)
    z = torch.cat([raw for _, raw in found.chunks()]).double()
    wanted = torch.nn.functional.one_hot(torch.from_numpy(images.labels), head.out_features).double()
    ones = torch.ones(len(z), 1, dtype=torch.float64)
    solved = 10 * torch.linalg.pinv(torch.cat([z, ones], dim=1), rcond=1e-6) @ (wanted - 0.1)
    with torch.no_grad():
        head.weight.copy_(solved[:-1].T)
        head.bias.copy_(solved[-1])
    return net.state_dict()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OpenOOD's folders: data, and results with two training runs."""
    root = tmp_path_factory.mktemp("OpenOOD")
    write_openood(root / "data", "openood-cifar10", count=6)
    for seed in (0, 1):
        file = root / "results" / RUN / f"s{seed}" / "best.ckpt"
        file.parent.mkdir(parents=True)
        torch.save(trained("cifar10-resnet18", root / "data", "openood-cifar10", seed), file)
    return root


@pytest.fixture(scope="module")
def options(place: Path) -> BenchOptions:
    return replace(EVERY, data=place / "data", weights=place / "results", methods=FEW, cache=place / "cache")


@pytest.mark.parametrize("name", NAMES)
def test_the_benchmarks_are_the_catalog(name: str) -> None:
    made = Benchmark.load(name)
    assert (made.settings, made.preprocessing, made.spectrum) == ("openood", "native", "")
    sources = [made.train, made.val, made.test]
    assert sources == [f"catalog:{name}/{part}" for part in ("train", "val", "test")]
    from oodshape.images.datasets.catalog import CATALOG

    for role, sets in (("near", made.ood), ("far", made.ood), ("shifted", made.shifted)):
        wanted = [entry.name for kind, entry in CATALOG[name] if kind == role]
        assert [each.name for each in sets if getattr(each, "group", role) == role] == wanted
        assert all(each.images == f"catalog:{name}/{each.name}" for each in sets)
    assert made.pooled == ()


def test_full_spectra_have_names(tmp_path: Path) -> None:
    large = Benchmark.load("openood-imagenet")
    plain = large.full_spectrum()
    assert plain.name == "openood-imagenet-fs"
    assert [look.name for look in plain.pooled] == ["imagenet_v2", "imagenet_c", "imagenet_r"]
    with pytest.raises(InputError, match="openood-cifar100 has no shifted ID images"):
        Benchmark.load("openood-cifar100").full_spectrum()


def test_training_runs_are_found_where_openood_puts_them(place: Path, options: BenchOptions) -> None:
    small = Benchmark.load("openood-cifar10")
    prepared = Plan.of(small, options)
    assert prepared.runs == {"ResNet18 s0": "ResNet18", "ResNet18 s1": "ResNet18"}
    assert list(prepared.networks) == ["ResNet18 s0", "ResNet18 s1"]
    with pytest.raises(InputError, match=f"ResNet18 needs weights.* --unverified`.*or name a folder that holds {RUN}"):
        Plan.of(small, replace(options, weights=place / "data"))


def scores_of(place: Path, seed: int, method: str, names: list[str]) -> dict[str, np.ndarray]:
    """The scores of one method, fitted and computed apart from any run."""
    entry = zoo.model_entry("cifar10-resnet18")
    classifier = Classifier(zoo.build(entry.name, place / "results" / RUN / f"s{seed}" / "best.ckpt"))
    sets = {
        name: open_dataset(f"catalog:openood-cifar10/{name}", place, place / "data", any_list=True) for name in names
    }
    how = {"cache": place / "cache", "batch_size": 8, "progress": False}
    data = {name: Features.extract(classifier, part, entry.native, **how) for name, part in sets.items()}
    setting = settings_of_openood(Benchmark.load("openood-cifar10"))[method]
    detector = setting.method.fit(data[setting.fit])
    return {name: detector.score(part).double().numpy() for name, part in data.items()}


def test_both_directions_of_fpr95_are_scikit_learns(place: Path, options: BenchOptions) -> None:
    results = run_benchmark(Benchmark.load("openood-cifar10"), options)
    assert len(results.rows) == 2 * len(FEW) * 6
    for seed, method, ood in ((0, "react", "svhn"), (1, "energy", "tin")):
        (row,) = (r for r in results.rows if (r.model, r.method, r.ood) == (f"ResNet18 s{seed}", method, ood))
        scores = scores_of(place, seed, method, ["train", "val", "test", ood])
        inside, outside = scores["test"], scores[ood]
        conf, is_ood = np.concatenate([inside, outside]), np.repeat([0, 1], [len(inside), len(outside)])
        for positive, values in (("ood", -conf), ("id", conf)):
            fpr, tpr, _ = roc_curve(is_ood if positive == "ood" else 1 - is_ood, values)
            found = row.value("fpr95_ood" if positive == "ood" else "fpr95")
            assert found == pytest.approx(fpr[np.argmax(tpr >= 0.95)], abs=1e-12)
        assert row.value("auroc") == pytest.approx(roc_auc_score(is_ood, -conf), abs=1e-12)
    assert {row.n_train for row in results.rows if row.method in ("react", "klm", "vra-p")} == {6}
    with pytest.raises(InputError, match="fpr95_ood"):
        replace(results.rows[0], metrics={"fpr95_ood": Estimate(2.0, 2.0, 2.0)})


def test_one_command_and_no_renaming(place: Path, tmp_path: Path) -> None:
    """The command that the guide begins with, in OpenOOD's own folder."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "openood.md").read_text()
    first = guide.split("```")[1].strip()
    assert first == "oodshape bench openood-cifar10 --data data --weights results"
    command = f"{first.removeprefix('oodshape ')} --cache {place}/cache"
    refused = call(*command.split(), "--methods", ",".join(FEW), cwd=place)
    assert refused.returncode == 2
    assert "lists 6 images, the published list 50,000; get the published lists" in refused.stderr
    done = call(*command.split(), "--methods", ",".join(FEW), "--other-lists", "--out", f"{tmp_path}/out", cwd=place)
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "out" / "table.md").read_text()
    assert table.startswith(
        "**openood-cifar10 (OpenOOD v1.5): ResNet18, mean ± standard deviation of 2 training runs**"
    )
    assert "Not comparable with the leaderboard" in table
    line = next(line for line in table.splitlines() if line.startswith("| energy |"))
    assert [cell.strip() for cell in line.split("|")][3] == "87.58"  # EBO on the leaderboard
    assert (tmp_path / "out" / "report.html").is_file()


def test_shifted_images_count_as_id(place: Path, options: BenchOptions) -> None:
    spectrum = Benchmark.load("openood-cifar10").full_spectrum()
    results = run_benchmark(spectrum, replace(options, methods=("energy",)))
    assert {row.n_id for row in results.rows} == {12}
    assert {row.benchmark for row in results.rows} == {"openood-cifar10-fs"}
    scores = scores_of(place, 0, "energy", ["train", "test", "cifar10c", "mnist"])
    inside = np.concatenate([scores["test"], scores["cifar10c"]])
    is_id = np.repeat([1, 0], [12, 6])
    (row,) = (r for r in results.rows if (r.model, r.ood) == ("ResNet18 s0", "mnist"))
    assert row.value("auroc") == pytest.approx(
        roc_auc_score(is_id, np.concatenate([inside, scores["mnist"]])), abs=1e-12
    )
    assert results.provenance["settings"]["shifted"] == ["cifar10c"]


RUN_200 = "imagenet200_resnet18_224x224_base_e90_lr0.1_default"


def test_the_full_spectrum_of_imagenet_200(tmp_path: Path, torchvision_ops: object) -> None:
    data = tmp_path / "data"
    write_openood(data, "openood-imagenet200", count=2, side=40)
    file = tmp_path / "results" / RUN_200 / "s2" / "best.ckpt"
    file.parent.mkdir(parents=True)
    torch.manual_seed(0)
    net = zoo.build("imagenet200-resnet18")
    torch.save(net.state_dict(), file)
    spectrum = Benchmark.load("openood-imagenet200").full_spectrum()
    how = {"resamples": 2, "progress": False, "any_list": True}
    results = run_benchmark(spectrum, BenchOptions(data=data, weights=tmp_path / "results", methods=("energy",), **how))
    assert [row.ood for row in results.rows] == ["ssb_hard", "ninco", "inaturalist", "textures", "openimage_o"]
    assert {(row.model, row.n_id, row.n_ood) for row in results.rows} == {("ResNet18 s2", 8, 2)}
    # the accuracy is over all ID images alike, and ImageNet-C goes in as it is
    right, known = 0, 0
    for name in ("test", "imagenet_v2", "imagenet_c", "imagenet_r"):
        images = open_dataset(f"catalog:openood-imagenet200/{name}", data, data, any_list=True)
        way = replace(IMAGENET, resize=None, crop=None) if name == "imagenet_c" else IMAGENET
        features = Features.extract(Classifier(net), images, way, progress=False)
        right += int((features.predictions.numpy() == images.labels).sum())
        known += len(images)
    assert results.rows[0].id_accuracy == right / known
