"""The front door is light, the packages stand in one line, and nothing imports in a circle."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import oodshape

SOURCE = Path(oodshape.__file__).parent
# a package imports only from packages to its left; guard and benchmark do not import each other
ROOMS = (
    *("core", "metrics", "images", "networks", "features", "methods"),
    *("guard", "benchmark", "report", "evaluation", "studies", "engines", "cli"),
)
APART = {("benchmark", "guard"), *(("engines", other) for other in ("benchmark", "report", "evaluation", "studies"))}
HEAVY = {"torch", "numba", "numpy", "pandas", "matplotlib", "PIL", "scipy", "sklearn", "rich", "typer", "safetensors"}
MODULES = {
    ".".join(("oodshape", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}


def test_the_import_is_light() -> None:
    code = "import oodshape, sys; print(*sorted(m for m in sys.modules if m.split('.')[0] == 'oodshape')); "
    code += f"print(*sorted({HEAVY!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["oodshape", ""]


def test_public_names_are_there() -> None:
    for name in oodshape.__all__:
        assert getattr(oodshape, name) is not None
    assert set(dir(oodshape)) == set(oodshape.__all__)


def imported(node: ast.AST) -> set[str]:
    """The modules of the package that an import statement, or a string that names one, stands for."""
    if isinstance(node, ast.Import):
        named = {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        named = {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        whole = named & set(MODULES) - {str(node.module)}
        named = whole if len(whole) == len(node.names) else named
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        named = {node.value}  # import_module("oodshape. ..."), files("oodshape. ...")
    else:
        return set()
    return {name for name in named if name in MODULES and name != "oodshape"}


@cache
def edges(*, inside_functions: bool) -> list[tuple[str, str, int]]:
    """(module, imported module, line): all imports, or only those that run when the module is loaded."""
    found = []
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree) if inside_functions else tree.body:
            found += [(name, other, getattr(node, "lineno", 0)) for other in imported(node) - {name}]
    return found


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_module_lies_in_a_room() -> None:
    assert {package(name) for name in MODULES} == {"", "__main__", *ROOMS}
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_only_from_its_left(name: str) -> None:
    """Lazy imports, imports for types and module names in strings count too."""
    left = {other for other in ROOMS[: ROOMS.index(name) + 1] if (name, other) not in APART}
    wrong = [
        f"{module}:{line} imports {other}"
        for module, other, line in edges(inside_functions=True)
        if package(module) == name and package(other) not in left
    ]
    assert not wrong, "\n".join(wrong)


def test_engines_are_imported_inside_commands_only() -> None:
    """They need Ray, which few have."""
    users = {package(module) for module, other, _ in edges(inside_functions=True) if package(other) == "engines"}
    assert users == {"cli", "engines"}
    assert not [
        edge for edge in edges(inside_functions=False) if package(edge[0]) == "cli" and package(edge[1]) == "engines"
    ]


def test_imports_have_no_cycle() -> None:
    """Not even one that is hidden inside functions or behind TYPE_CHECKING."""
    needs: dict[str, set[str]] = {name: set() for name in MODULES if name != "oodshape"}
    for module, other, _ in edges(inside_functions=True):
        if module != "oodshape":
            needs[module].add(other)
    TopologicalSorter(needs).prepare()  # a CycleError names the circle


@pytest.mark.parametrize("package", sorted(name for name, path in MODULES.items() if path.name == "__init__.py"))
def test_a_package_describes_the_modules_that_it_has(package: str) -> None:
    text = ast.get_docstring(ast.parse(MODULES[package].read_text(encoding="utf-8"))) or ""
    own = {name.removeprefix(f"{package}.") for name in MODULES if name.rpartition(".")[0] == package}
    named = set(re.findall(r"`([a-z_]+)`", text))
    assert named <= own
    assert not named or package.count(".") > 1 or package == "oodshape.cli" or own <= named
