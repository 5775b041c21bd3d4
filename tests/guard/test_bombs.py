"""A folder with files that would take gigabytes: rows with an error, and hardly more memory than without them."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import PIL.Image
import pytest

from bombs import png
from commands import GUARD, MODEL, call
from folders_of_digits import write_digits

MOST = 300  # MB beyond an ordinary folder
PEAK = """
import sys
from oodshape.cli.main import main
try:
    main()
finally:
    with open("/proc/self/status") as status:
        peak = [line.split()[1] for line in status if line.startswith("VmHWM")]
    sys.stderr.write(f"peak {peak[0]}\\n")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = write_digits(tmp_path_factory.mktemp("bombs"), train=120, val=60, test=20)
    size = ("--preprocessing", "resize=16 crop=16")
    words = ("--images", "train", "--calibrate", "val", "--method", "energy", "--out", "guard.safetensors")
    assert call("fit", *MODEL, *words, *size, "--cache", "none", cwd=home).returncode == 0
    for number in range(8):
        png(home / "bombs" / f"thin {number}.png", 60_000, 1)
        png(home / "bombs" / f"wide {number}.png", 13_000, 13_000)
    (home / "bombs" / "good.png").write_bytes(next((home / "test").iterdir()).read_bytes())
    return home


@pytest.fixture(scope="module")
def ordinary(home: Path) -> float:
    return peak(home, "test", 0)


def peak(home: Path, images: str, status: int) -> float:
    """The largest memory of a scoring run in a process of its own, in MB."""
    words = ("score", *GUARD, "--images", images, "--out", f"{images}.csv")
    run = subprocess.run([sys.executable, "-c", PEAK, *words], cwd=home, capture_output=True, text=True, check=False)
    assert run.returncode == status, run.stderr
    *said, last = run.stderr.splitlines()
    assert not [line for line in said if "Warning" in line or "Traceback" in line]
    return int(last.removeprefix("peak ")) / 1000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_bombs_are_rows_with_an_error_and_cost_little(home: Path, ordinary: float) -> None:
    more = peak(home, "bombs", 3) - ordinary
    with (home / "bombs.csv").open() as file:
        rows = {Path(row["path"]).name: row for row in csv.DictReader(file)}
    assert len(rows) == 17
    assert rows["good.png"]["error"] == ""
    assert rows["good.png"]["score"] != ""
    assert {rows[name]["error"].partition(",")[0] for name in rows if name != "good.png"} == {
        "is 60000 x 1 pixels",
        "is 13000 x 13000 pixels",
    }
    assert more < MOST


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_the_largest_images_cost_no_more_whatever_their_kind(home: Path, ordinary: float) -> None:
    """Alpha, palettes, 16 bits, CMYK and turned ones took two or three copies of their pixels."""
    folder, (width, height) = home / "largest", (8192, 6144)
    for name, (bits, colour) in {"alpha": (8, 6), "gray": (8, 4), "deep": (16, 0), "palette": (8, 3)}.items():
        png(folder / f"{name}.png", width, height, bits=bits, colour=colour)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    PIL.Image.new("RGB", (width, height)).save(folder / "turned.jpg", exif=exif)
    PIL.Image.new("CMYK", (width, height)).save(folder / "cmyk.tif", compression="tiff_lzw")
    more = peak(home, "largest", 0) - ordinary
    with (home / "largest.csv").open() as file:
        assert [row["error"] for row in csv.DictReader(file)] == [""] * 6
    assert more < MOST


def test_each_limit_is_an_option(home: Path) -> None:
    large = png(home / "large.png", 40, 40)
    words = ("score", *GUARD, "--images", str(large))
    assert call(*words, cwd=home).returncode == 0
    few = call(*words, "--limits", "pixels=1599", cwd=home)
    assert few.returncode == 3
    assert "is 40 x 40 pixels, more than 1,599 (the limit of pixels)" in few.stdout
    thin = call("score", *GUARD, "--images", str(png(home / "t.png", 40, 10)), "--limits", "aspect=3", cwd=home)
    assert "more than 3 times as long as wide" in thin.stdout
    assert call(*words, cwd=home).returncode == 0  # a limit holds for one command
