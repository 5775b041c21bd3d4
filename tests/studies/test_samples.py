"""What a study is told: the set that is real OOD data, its methods, its seeds; and how many images a fit needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commands import call
from oodshape import InputError
from oodshape.benchmark.spec import Benchmark
from oodshape.studies.catalog import select_studies
from oodshape.studies.network import Network
from oodshape.studies.sample_size import SIZES, resample, tabulate_samples
from small_study import network as make_network


def network(small: dict, **told) -> Network:
    return make_network(small).with_options(**told)


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
    made = make_network(small, requested_real="iNaturalist")
    assert made.describe().endswith("real OOD data: far (the largest here; iNaturalist is not)")


def test_real_must_be_an_ood_set_of_the_file() -> None:
    text = Benchmark.load("digits").text
    with pytest.raises(InputError, match="real must be one of .*letters.*, got 'dogs'"):
        Benchmark.parse(f'real = "dogs"\n{text}', where="file", base=Path())


def test_methods_are_for_studies_that_compare_them(small: dict) -> None:
    assert list(network(small, methods=("react", "msp")).compared) == ["react", "msp"]
    with pytest.raises(InputError, match="no method is called 'raect'"):
        network(small, methods=("raect",))
    assert select_studies("samples", ("react",)) == ["samples"]
    assert select_studies("all", ("react",)) == ["generalisation", "samples", "auto"]
    with pytest.raises(InputError, match="the study variants has fixed methods; leave --methods out"):
        select_studies("variants", ("react",))


def test_more_images_give_steadier_fits(small: dict) -> None:
    frame = resample(network(small, methods=("optfs-e", "mds++")), 6)
    assert list(frame["images"].unique()) == [*(size for size in SIZES if size < 200), 200]
    assert set(frame.groupby(["images", "method"]).size()) == {6}
    theta = frame[frame["method"] == "optfs-e"].groupby("images")["theta"].mean()
    assert theta.is_monotonic_decreasing or theta.loc[200] < 0.6 * theta.loc[20]
    assert frame[frame["method"] == "mds++"]["theta"].isna().all()
    same = resample(network(small, methods=("optfs-e",)), 6)
    wanted = frame[frame["method"] == "optfs-e"]["auroc"].to_numpy()
    np.testing.assert_allclose(same["auroc"], wanted)  # drawn by the seed alone
    table = tabulate_samples(frame.assign(network="net"))
    assert list(table.columns) == ["network", "images", "optfs-e AUROC", "mds++ AUROC", "change of theta"]


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    said = call("study", "variants", "--methods", "react", cwd=tmp_path)
    assert said.returncode == 2
    assert "the study variants has fixed methods" in said.stderr
