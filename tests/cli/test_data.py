"""oodshape data: a short list, blocks with whole addresses, downloads from a server on this machine; one table."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import call
from dataset_files import archive, svhn_file
from oodshape.benchmark.spec import Benchmark
from oodshape.images.datasets import download_sources as sources
from oodshape.images.datasets.catalog import CATALOG, list_status, open_dataset
from oodshape.images.datasets.download_sources import list_sources
from oodshape.networks.model_names import KNOWN
from oodshape.networks.zoo import MODELS
from web_server import Offer, Server, serving


def test_every_set_and_every_network_has_a_source_or_a_reason() -> None:
    for name, collection in CATALOG.items():
        for _, entry in collection:
            assert entry.sources, (name, entry.name)
            for source in entry.sources:
                assert source.folder == "data"
                wanted = source.to.split("/")[0]
                beside = [layout.folder for layout in entry.layouts] + [entry.listed]
                assert any(place.startswith(wanted) or place == "." for place in beside), (entry.name, source.to)
    assert KNOWN.keys() == MODELS.keys()
    networks = {name for name in KNOWN if not name.startswith("digits-")}
    assert {name for name, (first, *_) in list_sources().items() if first.folder == "weights"} == networks
    used = {name for sets in CATALOG.values() for _, entry in sets for name in entry.source_names}
    assert used | networks == list_sources().keys()


@pytest.mark.parametrize("name", list_sources())
def test_a_row_of_the_table_is_well_formed(name: str) -> None:
    for source in list_sources()[name]:
        assert source.addresses
        assert source.licence
        assert all(re.match(r"https?://[\w.-]+/", address) for address in source.addresses)
        assert re.fullmatch(r"([0-9a-f]{32})?", source.md5)
        assert re.fullmatch(r"([0-9a-f]{64}|[0-9a-f]{8})?", source.sha256)
        assert not Path(source.to).is_absolute()
        if not source.by_hand:
            assert source.file
            secure = all(address.startswith("https://") for address in source.addresses)
            assert secure or source.is_verified  # plain http needs a checksum
        assert not (source.by_hand == "" and "image-net.org" in " ".join(source.addresses))


def test_the_list_is_short_and_made_without_torch(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from oodshape.cli import main; main()"
    words = [sys.executable, "-c", code, "data", "--data", str(tmp_path)]
    listed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    assert len(lines) == len(CATALOG) + 3
    assert max(map(len, lines)) <= 80
    assert re.search(r"^cifar10 +0 +10  5\.8 GB and 4 of unknown size$", listed.stdout, flags=re.MULTILINE)
    assert (call("data", cwd=tmp_path).returncode, call("models", cwd=tmp_path).returncode) == (0, 0)
    assert "no folder" in call("data", "--data", "nowhere", cwd=tmp_path).stderr
    assert "no benchmark is called 'cifar11'; did you mean cifar10" in call("data", "cifar11", cwd=tmp_path).stderr


def test_blocks_have_whole_addresses_and_say_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "test_batch.bin").write_bytes(bytes(3 * 3073))
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(b"cut off")
    shown = call("data", "cifar10", "--data", ".", cwd=tmp_path).stdout
    assert "CIFAR-10 (test): found, 3 images of 10,000\n" in shown
    assert "SVHN (far): damaged" in shown
    for source in (*list_sources()["places365"], *list_sources()["isun"]):
        assert all(f"\n  {address}\n" in shown for address in source.addresses)
    assert all(len(line) <= 80 or re.match(r"  (https?:|->)", line) for line in shown.splitlines())


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Small files in the layout of all that CIFAR-10's benchmark needs, and a table of sources that points at them."""
    image = tmp_path / "image.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(image)
    png, record = image.read_bytes(), bytes(range(256)) * 12 + b"\0"
    batches = {f"cifar-10-batches-bin/data_batch_{n}.bin": record * 20 for n in range(1, 6)}
    contents = {
        "cifar-10": archive(batches | {"cifar-10-batches-bin/test_batch.bin": record * 9}, "w:gz"),
        "cifar-100": archive({f"cifar-100-binary/{part}.bin": (b"\0" + record) * 9 for part in ("train", "test")}),
        "tinyimagenet": archive({f"tiny-imagenet-200/{part}/images/1.JPEG": png for part in ("val", "test")}, "zip"),
        "svhn": svhn_file(tmp_path / "svhn.mat", np.zeros((4, 32, 32, 3), np.uint8), [1, 2, 3, 10]),
        "texture": archive({"dtd/images/banded/1.jpg": png, "dtd/labels/x.txt": b""}, "w:gz"),
        "places365": archive({f"test_256/Places365_test_{n:08d}.jpg": png for n in range(12)}),
        "lsun-crop": archive({"LSUN/test/1.png": png}, "w:gz"),
        "lsun-resize": archive({"LSUN_resize/LSUN_resize/1.png": png}, "w:gz"),
        "isun": archive({"iSUN/iSUN_patches/1.png": png}, "w:gz"),
        "cifar10-densenet101": b"weights",
    }  # fmt: skip
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("OODSHAPE_OFFLINE", raising=False)
    with serving() as server:
        table = {}
        for name, rows in list_sources().items():
            content = contents.get(name)
            if content is None:
                table[name] = rows
                continue
            server.offers[f"/{name}"] = Offer(content)
            table[name] = (
                replace(
                    rows[0],
                    addresses=(f"{server.address}/{name}",),
                    bytes=len(content),
                    is_exact=True,
                    md5="",
                    sha256=hashlib.sha256(content).hexdigest(),
                    pick=rows[0].pick and 10,
                ),
            )
        for module in ("oodshape.cli.data", "oodshape.images.datasets.catalog"):
            monkeypatch.setattr(f"{module}.list_sources", lambda: table)
        monkeypatch.setattr(sources, "list_sources", lambda: table)
        yield server


def test_one_command_gets_a_benchmark_and_a_second_one_does_nothing(published: Server, tmp_path: Path) -> None:
    get = ("data", "get", "cifar10", "--data", "data", "--weights", "weights")
    asked = call(*get, cwd=tmp_path)
    assert asked.returncode == 2
    assert "Download 10 files" in asked.stderr
    assert "add --yes" in asked.stderr
    assert not (tmp_path / "data").exists()
    done = call(*get, "--yes", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: cifar10-vit_b_16.bin: not downloaded without --unverified")
    assert "train_mixer_nano.py" in done.stdout
    assert len(published.asked) == 10
    data = tmp_path / "data"
    assert {row.state for row in list_status(data, "cifar10")} == {"found"}
    assert len(open_dataset("catalog:cifar10/train", tmp_path, data)) == 100
    assert len(open_dataset("catalog:cifar10/Places365", tmp_path, data)) == 10
    assert (tmp_path / "weights" / "cifar10-densenet101.pth").read_bytes() == b"weights"
    again = call("data", "get", "cifar10", "--data", "data", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "nothing to download: all files are there\n")
    assert len(published.asked) == 10
    assert list((data / "downloads").iterdir()) == []


def test_one_set_offline_and_by_hand(published: Server, tmp_path: Path) -> None:
    for command in (("data", "get", "SVHN"), ("bench", "cifar10", "--download")):
        offline = call("--offline", *command, "--data", "data", "--yes", cwd=tmp_path)
        assert (offline.returncode, published.asked) == (2, [])
        assert "test_32x32.mat" in offline.stderr
        assert offline.stderr.endswith("not downloaded, because --offline or OODSHAPE_OFFLINE forbids it\n")
    assert call("data", "get", "SVHN", "--data", "data", "--yes", cwd=tmp_path).returncode == 0
    by_hand = call("data", "get", "Species", "--data", "data", cwd=tmp_path)
    assert by_hand.returncode == 0
    assert "\n  https://drive.google.com/file/d/1-JCxDx__iFMExkYRMylnGJYTPvyuX6aq\n" in by_hand.stdout
    assert "-> data/downloads/species_sub.zip\n  to unpack it: oodshape data get species" in by_hand.stdout
    (tmp_path / "data" / "downloads").mkdir()
    (tmp_path / "data" / "downloads" / "species_sub.zip").write_bytes(archive({"fungi/1.txt": b"1"}, "zip"))
    assert call("data", "get", "species", "--data", "data", cwd=tmp_path).returncode == 0
    assert (tmp_path / "data" / "species" / "fungi" / "1.txt").is_file()
    for words, error in (
        (("data", "get", "svnh", "--data", "data"), "did you mean svhn"),
        (("data", "get", "svhn"), "name it with --data DIR"),
        (("data", "get", "resnet50", "--data", "data"), "name it with --weights DIR"),
        (("data", "get", "cifar10"), "name the folder for data sets with --data DIR"),
    ):
        assert error in call(*words, cwd=tmp_path).stderr


def test_a_dead_address_does_not_stop_the_others(published: Server, tmp_path: Path) -> None:
    del published.offers["/isun"]
    done = call("data", "get", "isun", "svhn", "--data", "data", "--yes", cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(r"^error: iSUN\.tar\.gz cannot be downloaded \(.*HTTP 404", done.stderr, flags=re.MULTILINE)
    assert (tmp_path / "data" / "svhn" / "test_32x32.mat").is_file()


def test_bench_downloads_what_it_needs(published: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Benchmark] = []

    class Ran(Exception):
        pass

    def run(made: Benchmark, *_) -> None:
        ran.append(made)
        raise Ran

    monkeypatch.setattr("oodshape.report.benchmark_files.write_benchmark", run)
    places = ("--data", "data", "--weights", "weights", "--models", "DenseNet101")
    asked = call("bench", "cifar10", *places, "--download", cwd=tmp_path)  # no terminal that could answer
    assert (asked.returncode, published.asked, ran) == (2, [], [])
    assert "add --yes" in asked.stderr
    with pytest.raises(Ran):
        call("bench", "cifar10", *places, "--download", "--yes", cwd=tmp_path)
    assert [made.name for made in ran] == ["cifar10"]
    assert (tmp_path / "data" / "svhn" / "test_32x32.mat").is_file()
