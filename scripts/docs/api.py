"""The pages of the API: the public names by the package that they live in."""

from __future__ import annotations

import re
from pathlib import Path

import oodshape

DOCS = Path(__file__).parents[2] / "docs"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def room_jobs(docs: Path = DOCS) -> dict[str, str]:
    """By package: its one job, as docs/architecture.md has it."""
    text = (docs / "architecture.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, flags=re.MULTILINE))


def api_packages() -> dict[str, list[str]]:
    """By package: the public names that live in it; `METHODS` has pages of its own."""
    packages: dict[str, list[str]] = {}
    for name, home in oodshape._HOMES.items():
        if name != "METHODS":
            packages.setdefault(home.partition(".")[0], []).append(name)
    return packages


def api_table(docs: Path = DOCS) -> str:
    """The packages, and the names in each."""
    homes, jobs = oodshape._HOMES, room_jobs(docs)
    rows = [
        [
            f"[{package}]({package}.md)",
            jobs[package],
            ", ".join(f"[`{name}`]({package}.md#oodshape.{homes[name]}.{name})" for name in names),
        ]
        for package, names in api_packages().items()
    ]
    return table(["package", "its one job", "names"], rows)


def room_of(page: str) -> str | None:
    """The package that a page `api/ROOM.md` is about, if any."""
    found = [package for package in api_packages() if page == f"api/{package}.md"]
    return found[0] if found else None


def api_page(package: str, docs: Path = DOCS) -> str:
    """The public names of a package, each from its home module."""
    names = [f"::: oodshape.{oodshape._HOMES[name]}.{name}" for name in api_packages()[package]]
    return "\n\n".join([f"# {package}", f"{room_jobs(docs)[package]}.".capitalize(), *names]) + "\n"
