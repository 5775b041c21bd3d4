"""The reference pages that follow from the code: the public names by package, and the commands with their options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import oodshape

DOCS = Path(__file__).parents[2] / "docs"
TITLES = {"guard": "Guards", "core": "Errors"}  # the other packages have readable names
ALIGN = {"l": "---", "r": "---:"}


def table(head: list[str], rows: list[list[str]], align: str = "") -> str:
    """A table in Markdown; `align` has a letter per column, l or r."""
    marks = [ALIGN[letter] for letter in align or "l" * len(head)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, marks, *rows])


def package_jobs(docs: Path = DOCS) -> dict[str, str]:
    """By package: its job, as docs/architecture.md has it."""
    text = (docs / "architecture.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, flags=re.MULTILINE))


def api_packages() -> dict[str, list[str]]:
    """By package: the public names that live in it; `METHODS` has pages of its own."""
    packages: dict[str, list[str]] = {}
    for name, home in oodshape._HOMES.items():
        if name != "METHODS":
            packages.setdefault(home.partition(".")[0], []).append(name)
    return packages


def api_page(docs: Path = DOCS) -> str:
    """Every public name by package, each from its home module."""
    homes, jobs = oodshape._HOMES, package_jobs(docs)
    intro = (
        "Everything that `from oodshape import ...` provides. `METHODS` is a dictionary from id to `Method`: see the "
        "[table of methods](methods/index.md)."
    )
    rows = [
        [
            f"[{TITLES.get(package, package.capitalize())}](#{TITLES.get(package, package).lower()})",
            jobs[package],
            ", ".join(f"[`{name}`](#oodshape.{homes[name]}.{name})" for name in names),
        ]
        for package, names in api_packages().items()
    ]
    parts = ["# Python API", intro, table(["package", "job", "names"], rows)]
    for package, names in api_packages().items():
        parts.append(f"## {TITLES.get(package, package.capitalize())}")
        parts += [f"::: oodshape.{homes[name]}.{name}" for name in names]
    return "\n\n".join(parts) + "\n"


def cli_page() -> str:
    """Every command with its arguments and options, as `--help` prints them."""
    import typer

    from oodshape.cli.all_commands import app

    group: Any = typer.main.get_command(app)
    parts = [
        "# Command line",
        "`--help` after a command prints the same. Options of all commands come before the command.",
    ]
    parts.append(_options([each for each in group.params if not each.hidden]))
    for name, command in group.commands.items():
        usage = " ".join(
            ["oodshape", name, *(each.name.upper() for each in command.params if each.param_type_name == "argument")]
        )
        parts += [f"## {name}", _plain(command.help or ""), f"```\n{usage} [OPTIONS]\n```", _options(command.params)]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text.replace("\b", "")).strip()


def _options(params: list[Any]) -> str:
    rows = []
    for each in params:
        names = each.opts + each.secondary_opts if each.param_type_name == "option" else [each.name.upper()]
        shown = getattr(each, "show_default", True)
        default = each.default if shown and not callable(each.default) else None
        value = "required" if each.required else "" if default in (None, (), [], False, "") else f"`{default}`"
        text = _plain(getattr(each, "help", None) or "").replace("|", "\\|").replace("\n", " ")
        rows.append([", ".join(f"`{name}`" for name in names if name != "--help"), value, text])
    return table(["option", "default", "meaning"], [row for row in rows if row[0]])
