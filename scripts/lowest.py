"""Print the lowest versions that pyproject.toml allows, as constraints for pip: `python scripts/lowest.py parquet hf`.

`make test-lowest` installs exactly these, so that a bound which is not true fails there.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)$")
# One CPU build of each is to be had here: constraints.txt names it, and lower bounds of these two are not proven.
UNPROVEN = {"torch", "torchvision"}


def lowest(requirements: Iterable[str]) -> list[str]:
    """Each `name>=version` as `name==version`, the highest of several; a constraint on what is not installed is idle.

    >>> lowest(["numpy>=1.26", "torch>=2.10", "uvloop>=0.19; sys_platform != 'win32'", "numpy>=1.25"])
    ['numpy==1.26', 'uvloop==0.19']
    """
    bounds: dict[str, str] = {}
    for requirement in requirements:
        match = BOUND.match(requirement.partition(";")[0])
        if match is None:
            raise SystemExit(f"{requirement!r} has no lower bound of the form name>=version")
        name, version = match.groups()
        held = bounds.get(name, "0")
        if name not in UNPROVEN and _parts(version) > _parts(held):
            bounds[name] = version
    return [f"{name}=={version}" for name, version in bounds.items()]


def required(extras: Iterable[str], known: Mapping[str, list[str]]) -> Iterator[str]:
    """What extras need, those that they include too.

    >>> list(required(["onnx"], {"onnx": ["oodshape[torch]", "onnx>=1.21"], "torch": ["torch>=2.10"]}))
    ['torch>=2.10', 'onnx>=1.21']
    """
    for requirement in (each for extra in extras for each in known[extra]):
        included = re.fullmatch(r"oodshape\[(.+)\]", requirement)
        yield from [requirement] if included is None else required(included[1].split(","), known)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def main(extras: list[str]) -> None:
    """Print the bounds of the package and of these extras."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    print("\n".join(lowest([*project["dependencies"], *required(extras, project["optional-dependencies"])])))


if __name__ == "__main__":
    main(sys.argv[1:])
