"""The pages of the API: the public names by the room that they live in."""

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
    """By room: its one job, as docs/architecture.md has it."""
    text = (docs / "architecture.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, flags=re.MULTILINE))


def api_rooms() -> dict[str, list[str]]:
    """By room: the public names that live in it; `METHODS` has pages of its own."""
    rooms: dict[str, list[str]] = {}
    for name, home in oodshape._HOMES.items():
        if name != "METHODS":
            rooms.setdefault(home.partition(".")[0], []).append(name)
    return rooms


def api_table(docs: Path = DOCS) -> str:
    """The rooms, and the names in each."""
    homes, jobs = oodshape._HOMES, room_jobs(docs)
    rows = [
        [
            f"[{room}]({room}.md)",
            jobs[room],
            ", ".join(f"[`{name}`]({room}.md#oodshape.{homes[name]}.{name})" for name in names),
        ]
        for room, names in api_rooms().items()
    ]
    return table(["room", "its one job", "names"], rows)


def room_of(page: str) -> str | None:
    """The room that a page `api/ROOM.md` is about, if any."""
    found = [room for room in api_rooms() if page == f"api/{room}.md"]
    return found[0] if found else None


def api_page(room: str, docs: Path = DOCS) -> str:
    """The public names of a room, each from its home module."""
    names = [f"::: oodshape.{oodshape._HOMES[name]}.{name}" for name in api_rooms()[room]]
    return "\n\n".join([f"# {room}", f"{room_jobs(docs)[room]}.".capitalize(), *names]) + "\n"
