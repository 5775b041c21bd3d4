"""The front door is light, and imports point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import oodshape

SOURCE = Path(oodshape.__file__).parent


def test_the_import_is_light() -> None:
    code = (
        "import time; start = time.perf_counter(); import oodshape; seconds = time.perf_counter() - start; "
        "import sys; heavy = {'torch', 'numba', 'numpy', 'pandas', 'matplotlib'} & set(sys.modules); "
        "print(seconds, sorted(heavy))"
    )
    seconds, heavy = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split(" ", 1)
    assert heavy.strip() == "[]"
    assert float(seconds) < 0.3


def test_public_names_are_there() -> None:
    for name in oodshape.__all__:
        assert getattr(oodshape, name) is not None
    assert set(dir(oodshape)) == set(oodshape.__all__)
    wanted = [
        "Features",
        "FeatureStats",
        "Outputs",
        "Method",
        "Detector",
        "METHODS",
        "paper_methods",
        "auroc",
        "fpr_at_tpr",
    ]
    assert set(wanted) <= set(oodshape.__all__)


def imports(path: Path) -> set[str]:
    """The modules of the package that a module imports when it is loaded (not inside functions)."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("oodshape"):
            names = [alias.name for alias in node.names]
            module = node.module.removeprefix("oodshape").lstrip(".")
            submodules = [n for n in names if (SOURCE / module.replace(".", "/") / f"{n}.py").exists()]
            found |= {f"{module}.{n}".lstrip(".") for n in submodules} or ({module} if module else set())
    return found


def test_imports_have_no_cycle() -> None:
    modules = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): imports(path)
        for path in SOURCE.rglob("*.py")
    }
    modules.pop("__init__", None)
    done: set[str] = set()
    while len(done) < len(modules):
        ready = {name for name, needs in modules.items() if name not in done and needs & set(modules) <= done}
        assert ready, f"a cycle among {sorted(set(modules) - done)}"
        done |= ready


FLOW = ["outputs", "features", "stats", "shaping", "heads", "detector", "methods"]


def test_data_flows_one_way() -> None:
    for place, name in enumerate(FLOW):
        later = set(FLOW[place + 1 :])
        assert not imports(SOURCE / f"{name}.py") & later, name
    assert "features" not in imports(SOURCE / "scores.py")
    assert "model" not in imports(SOURCE / "shaping.py")


def test_no_method_name_stands_in_an_if() -> None:
    names = set(oodshape.METHODS)
    for path in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.If, ast.IfExp)):
                constants = {n.value for n in ast.walk(node.test) if isinstance(n, ast.Constant)}
                assert not constants & names, f"{path.name}:{node.lineno}"
