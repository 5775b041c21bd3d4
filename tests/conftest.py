"""Fixtures that several test files share."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from browser import CHROMIUM

try:
    import torch

    from rounding import rounding
except ModuleNotFoundError:  # the light part of the package is tested without it
    torch = None  # type: ignore[assignment]

HEAVY = ("torch", "numba", "pandas", "sklearn", "matplotlib", "safetensors.torch")
SURROGATES = ("gaussian", "uniform")
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")  # no test hangs on the clock


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip test files that import a heavy package where torch is not installed."""
    report = yield
    missing = re.search(r"No module named '([\w.]+)'", str(report.longrepr)) if report.failed else None
    if torch is None and missing is not None and missing[1] in HEAVY:
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: needs {missing[1]}")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line that says what was skipped, why, and how to enable it."""
    reasons = Counter(
        _skip_reason(report.longrepr[2])
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"skipped {reasons.total()}: {told}")


def _skip_reason(message: str) -> str:
    """The reason of a skip, and the command that installs what is missing.

    >>> _skip_reason("Skipped: could not import 'timm': No module named 'timm'")
    'need timm (pip install timm)'
    """
    reason = message.removeprefix("Skipped: ")
    missing = re.match(r"could not import '(\w+)", reason)
    return f"need {missing[1]} (pip install {missing[1]})" if missing else reason


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounding", type=int, metavar="SEED", help="simulate other last bits; see tests/rounding.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    seed = item.config.getoption("--rounding")
    exact = seed is None or item.get_closest_marker("other_process") is not None
    with nullcontext() if exact else rounding(seed):
        return (yield)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real images, weights and features; tests that need it skip where it is missing."""
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("OODSHAPE_SHARED", default))
    if not folder.is_dir():
        pytest.skip("need the shared folder (put it next to the repository, or set OODSHAPE_SHARED)")
    return folder


@pytest.fixture(scope="session")
def torchvision_ops() -> torch.library.Library | None:
    """Operators that torchvision (and so timm) needs at import, where its compiled library does not load."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        pytest.skip("torchvision is not installed")
    for compiled in Path(spec.origin).parent.glob("_C.*"):
        try:
            torch.ops.load_library(compiled)
            return None
        except OSError:
            pass
    if hasattr(torch.ops.torchvision, "nms"):  # a bench that was imported before has defined it
        return None
    try:
        library = torch.library.Library("torchvision", "DEF")
    except RuntimeError:  # an import that failed half-way has begun it
        library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Tests run side by side, and threads that wait for a busy core cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def real_features(shared: Path) -> list[dict[str, Any]]:
    """The features of three real networks: name, head, train, id, labels, ood and surrogates (dicts of sets)."""
    networks = []
    for folder in sorted((shared / "features").iterdir()):
        sets = {path.stem: np.load(path) for path in folder.glob("*.npz")}
        head = sets.pop("head")
        inside = sets.pop("test" if "test" in sets else "val")
        networks.append(
            {
                "name": folder.name,
                "head": (head["weight"], head["bias"]),
                "train": sets.pop("train")["features"],
                "id": inside["features"],
                "labels": inside["labels"],
                "ood": {name: data["features"] for name, data in sets.items() if name not in SURROGATES},
                "surrogates": {name: sets[name]["features"] for name in SURROGATES},
            }
        )
    return networks


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; playwright drives the system's own, it downloads none."""
    api = pytest.importorskip("playwright.sync_api", reason="need playwright (pip install playwright)")
    if CHROMIUM is None:
        pytest.skip("need Chromium (apt-get install chromium)")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()
