"""What a study is told: the set that is real OOD data, its methods, its seeds; and how many images a fit needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commands import call
from oodshape import METHODS, InputError
from oodshape.benchmark.spec import Benchmark
from oodshape.studies.catalog import STUDIES, picked_of
from oodshape.studies.network import Network
from oodshape.studies.sample_size import SIZES, print_samples, samples
from oodshape.studies.write import write
from small_study import sets


def network(small: dict, **told) -> Network:
    return Network("net", "ConvNet", *sets(small), surrogates={}, methods=dict(METHODS)).telling(**told)


def test_real_ood_data_are_as_told_else_the_largest_set(small: dict) -> None:
    plain = network(small)
    assert plain.real == "far"
    assert plain.describe().endswith("real OOD data: far (the largest)")
    assert network(small, real="near").describe().endswith("real OOD data: near")
    with pytest.raises(InputError, match="net has no OOD set 'photos'; there are far, near"):
        network(small, real="photos")


@pytest.mark.parametrize(
    ("name", "real"), [("imagenet", "iNaturalist"), ("cifar10", "CIFAR-100"), ("cifar100", "CIFAR-10"), ("digits", "")]
)
def test_shipped_benchmarks_say_which_set_is_real(name: str, real: str) -> None:
    assert Benchmark.load(name).real == real


def test_a_set_that_is_not_there_is_said(small: dict) -> None:
    made = Network("net", "ConvNet", *sets(small), surrogates={}, methods=dict(METHODS), told="iNaturalist")
    assert made.describe().endswith("real OOD data: far (the largest here; iNaturalist is not)")


def test_real_must_be_an_ood_set_of_the_file() -> None:
    text = Benchmark.load("digits").text
    with pytest.raises(InputError, match="real must be one of .*letters.*, got 'dogs'"):
        Benchmark.parse(f'real = "dogs"\n{text}', where="file", base=Path())


def test_methods_are_for_studies_that_compare_them(small: dict) -> None:
    assert list(network(small, methods=("react", "msp")).compared) == ["react", "msp"]
    with pytest.raises(InputError, match="no method is called 'raect'"):
        network(small, methods=("raect",))
    assert picked_of("samples", ("react",)) == ("react",)
    with pytest.raises(InputError, match="the study variants is of optfs-v, optfs-e, not of react"):
        picked_of("variants", ("react",))
    with pytest.raises(InputError, match="the study validation is of optfs-v, not of react"):
        picked_of("validation", ("react",))


def test_more_images_give_steadier_fits(small: dict) -> None:
    frame = samples(*sets(small), {name: METHODS[name] for name in ("optfs-e", "mds++")}, resamples=6)
    assert list(frame["images"].unique()) == [*(size for size in SIZES if size < 200), 200]
    assert set(frame.groupby(["images", "method"]).size()) == {6}
    theta = frame[frame["method"] == "optfs-e"].groupby("images")["theta"].mean()
    assert theta.is_monotonic_decreasing or theta.loc[200] < 0.6 * theta.loc[20]
    assert frame[frame["method"] == "mds++"]["theta"].isna().all()
    same = samples(*sets(small), {"optfs-e": METHODS["optfs-e"]}, resamples=6)
    wanted = frame[frame["method"] == "optfs-e"]["auroc"].to_numpy()
    np.testing.assert_allclose(same["auroc"], wanted)  # drawn by the seed alone
    table = print_samples(frame.assign(network="net"))
    assert list(table.columns) == ["network", "images", "optfs-e AUROC", "mds++ AUROC", "change of theta"]


def test_seeds_give_means_and_their_spread(small: dict, tmp_path: Path) -> None:
    found = [network(small, methods=("optfs-e",))]
    paths = {path.name: path for path in write("samples", found, tmp_path, seeds=2)}
    assert "Means over 2 seeds" in paths["samples.md"].read_text()
    one, two = (samples(*sets(small), {"optfs-e": METHODS["optfs-e"]}, seed=seed) for seed in (0, 1))
    lines = paths["samples.csv"].read_text().splitlines()
    first = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert float(first["auroc"]) == pytest.approx((one["auroc"][0] + two["auroc"][0]) / 2)


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    said = call("study", "variants", "--methods", "react", cwd=tmp_path)
    assert said.returncode == 2
    assert "the study variants is of optfs-v, optfs-e, not of react" in said.stderr
    assert STUDIES["samples"].compares
