"""Studies as a user runs them: every table and figure is there, says what it shows, and holds the right numbers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import call
from data import arrays
from oodshape import METHODS, InputError
from oodshape.images.decode.limits import Limits
from oodshape.report.tables.markdown_latex import frame_latex, frame_markdown
from oodshape.studies import plotting as drawing
from oodshape.studies.catalog import STUDIES, write_study
from oodshape.studies.compare_methods import compare_methods, compare_with_optfs
from oodshape.studies.load_networks import StudyNetwork, find_folders, load_folder, load_networks
from oodshape.studies.optfs_variants import compare_variants, sweep_limits


def write_folder(folder: Path, *, seed: int = 0, signed: bool = False) -> Path:
    """A small network's feature files in the layout that studies read."""
    folder.mkdir(parents=True)
    z, (weight, bias) = arrays(160, signed=signed, seed=seed)
    np.savez(folder / "head.npz", weight=weight, bias=bias)
    np.savez(folder / "train.npz", features=z.astype(np.float16), labels=np.zeros(len(z), np.int16))
    np.savez(folder / "val.npz", features=arrays(100, signed=signed, seed=seed + 1)[0], labels=np.zeros(100, np.int16))
    rng = np.random.default_rng(seed)
    for place, name in enumerate(("far", "near", "gaussian", "uniform")):
        values = np.abs(rng.normal(scale=0.4 + 0.2 * place, size=(60 + place, 40))).astype(np.float32)
        np.savez(folder / f"{name}.npz", features=values, labels=np.full(len(values), -1, np.int16))
    values = rng.permuted(z[:50], axis=1)
    np.savez(folder / "scrambled.npz", features=values, labels=np.full(len(values), -1, np.int16))
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[StudyNetwork]:
    base = tmp_path_factory.mktemp("features")
    write_folder(base / "cifar10_densenet101")
    write_folder(base / "imagenet_deit_tiny", signed=True, seed=3)
    return load_networks("digits", [base])


def test_folders_say_family_settings_and_roles(two, tmp_path) -> None:
    assert [(n.name, n.family) for n in two] == [
        ("cifar10_densenet101", "ConvNet"),
        ("imagenet_deit_tiny", "transformer"),
    ]
    first = two[0]
    limited = load_folder(write_folder(tmp_path / "cifar10_densenet101"), limit=70)
    assert (len(limited.train), len(limited.id_test), len(limited.ood["far"])) == (70, 70, 60)
    assert (list(first.ood), list(first.surrogates)) == (["far", "near"], ["gaussian", "uniform"])
    assert first.real == "near"  # the larger
    assert first.methods["ash-s"].shape.p == 0.95  # the paper's for CIFAR-10
    assert two[1].methods["vra-p"].shape.absolute
    assert "surrogates: gaussian 62, uniform 63" in first.describe()


def test_a_panel_may_lie_elsewhere_and_is_asked_for(tmp_path) -> None:
    folder = write_folder(tmp_path / "features" / "mine")
    assert [len(part) for part in load_folder(folder).proxy] == [50]
    elsewhere = tmp_path / "panels" / "mine" / "scrambled.npz"
    elsewhere.parent.mkdir(parents=True)
    (folder / "scrambled.npz").rename(elsewhere)
    there = load_folder(folder, tmp_path / "panels")
    assert len(there.proxy[0]) == 50
    assert "proxy: 50" in there.describe()
    (none,) = load_networks("digits", [folder])
    assert "auto" not in set(compare_methods(none)["method"])


def test_feature_files_are_held_to_the_limit_of_inflated_bytes(tmp_path, monkeypatch) -> None:
    folder = write_folder(tmp_path / "mine")
    np.savez_compressed(folder / "bomb.npz", features=np.zeros((400, 1000), np.float32))
    monkeypatch.setattr(Limits, "_now", Limits(inflated=1_000_000))
    with pytest.raises(InputError, match=r"bomb\.npz has .* inflates to 1,600,\d{3} or more, over the limit"):
        load_folder(folder)


def test_wrong_folders_say_what_is_missing(tmp_path) -> None:
    with pytest.raises(InputError, match="holds no features; a network's folder has head.npz"):
        find_folders([tmp_path])
    folder = write_folder(tmp_path / "mine")
    assert load_folder(folder).family == "unknown"
    (folder / "train.npz").unlink()
    with pytest.raises(InputError, match="lacks 'train'"):
        load_folder(folder)
    with pytest.raises(InputError, match="no network is called 'other'; there are"):
        load_networks("digits", [write_folder(tmp_path / "second")], ("other",))


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_study_writes_tables_and_figures(name: str, two, tmp_path) -> None:
    paths = list(write_study(name, two, tmp_path))
    stems = [name, f"{name}-families"] if name == "generalisation" else [name]
    assert {(path.stem, path.suffix) for path in paths} == {
        *((name, kind) for kind in (".csv", ".md", ".tex")),
        *((stem, f".{kind}") for stem in stems for kind in drawing.FORMATS),
    }
    drawn = (tmp_path / f"{name}.svg").read_text()
    assert all(network.name in drawn for network in two)  # each panel has the name of its network
    frame = pd.read_csv(tmp_path / f"{name}.csv")
    assert set(frame["network"]) == {"cifar10_densenet101", "imagenet_deit_tiny"}
    text = (tmp_path / f"{name}.md").read_text()
    assert "higher score = ID" in text
    assert "nan" not in text.lower().replace("energy", "")


def test_frames_escape_and_align() -> None:
    frame = pd.DataFrame({"a_b": ["x|y", "50 %"], "n": ["1.0", ""]})
    assert frame_markdown(frame, "T", ["note"]).splitlines()[2:4] == ["| a_b | n |", "| --- | ---: |"]
    assert r"x\|y" in frame_markdown(frame, "T")
    latex = frame_latex(frame, "T & U")
    assert r"\begin{tabular}{lr}" in latex
    assert r"50 \% &  \\" in latex
    assert r"\caption{T \& U.}" in latex
    assert r"\label{tab:t-u}" in latex


def test_latex_compiles_and_stays_within_the_page(two, tmp_path) -> None:
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not installed")
    packages = r"\usepackage[margin=2cm]{geometry}\usepackage{booktabs,graphicx}"
    text = rf"\documentclass[twocolumn]{{article}}{packages}\begin{{document}}"
    for name in ("variants", "limits", "weights", "generalisation"):
        list(write_study(name, two, tmp_path))
        text += (tmp_path / f"{name}.tex").read_text() + r"\clearpage" + "\n"
    (tmp_path / "all.tex").write_text(text + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert r"\begin{table*}" in text
    assert "Ours (E)" in text


def test_studies_run_on_digits(tmp_path) -> None:
    few = ("--models", "ConvNet", "--limit", "40", "--cache", "cache")
    done = call("study", "variants", *few, "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "surrogates: gaussian 40, uniform 40" in done.stdout
    written = re.findall(r"wrote (.*)", done.stdout)
    assert len(written) == 6
    assert all((tmp_path / path).is_file() for path in written)


def test_real_networks_agree_with_the_authors(shared, real_features) -> None:
    """Means over OOD sets of the studies' own rows against what the authors' code gave on the same features."""
    for real in real_features:
        oracle = json.loads((shared / "oracle" / f"{real['name']}.json").read_text())["results"]
        network = load_folder(shared / "features" / real["name"])
        assert set(network.surrogates) == set(real["surrogates"])
        table = compare_variants(replace(network, methods=dict(METHODS)))
        means = 100 * table.groupby("variant")["auroc"].mean()
        assert means["Ours (V)"] == pytest.approx(oracle["optfs-v"]["average"]["auroc"], abs=0.05)
        assert means["Ours (E)"] == pytest.approx(oracle["optfs-e"]["average"]["auroc"], abs=0.05)
        assert means["Dynamic"] == pytest.approx(means["Ours (V)"], abs=0.5)  # the paper: almost the same
        pairs = 100 * compare_with_optfs(network).groupby("method")["auroc"].mean()
        for name in ("msp", "mls", "energy", "dice", "react"):
            assert pairs[name] == pytest.approx(oracle[name]["average"]["auroc"], abs=0.05)
        limits = sweep_limits(replace(network, methods=dict(METHODS)), (0.001,)).groupby("method")["auroc"].mean()
        assert 100 * limits["optfs-v"] == pytest.approx(means["Ours (V)"], abs=1e-9)
