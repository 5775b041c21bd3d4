"""The source distribution holds what it takes to build, read and test the package, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder

ROOT = Path(__file__).parents[1]
LEFT_OUT = {".ci/run"}  # how the repository is worked on
STRAY = (
    "out/demo/report.html",
    ".venv/bin/python",
    ".venv-lowest/bin/python",
    "src/oodshape/__pycache__/app.pyc",
    "tests/.hypothesis/examples",
    ".mypy_cache/cache.json",
    "dist/old.tar.gz",
    "notes.txt",
    "scores.csv.part",
)


def test_the_sdist_holds_what_is_kept_and_nothing_that_work_leaves_behind(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs the repository")
    kept = {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    tree = tmp_path / "tree"
    for name in kept:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    for name in STRAY:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("stray")
    [file] = SdistBuilder(str(tree)).build(directory=str(tmp_path / "dist"))
    with tarfile.open(file) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert kept - found == LEFT_OUT & kept
    assert found - kept == {"PKG-INFO"}
    assert Path(file).stat().st_size < 10 << 20
