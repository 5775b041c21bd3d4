"""The page of a small run, opened in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from browser import Opened
from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.run import run_benchmark
from oodshape.benchmark.spec import Benchmark
from oodshape.report.pages.benchmark_page import write_benchmark_page

METHODS = ("msp", "energy", "react", "optfs-e", "knn", "vim")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """results.csv and report.html of a small run of digits."""
    folder = tmp_path_factory.mktemp("browser")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results = run_benchmark(
        Benchmark.load("digits"), BenchOptions(methods=METHODS, limit=80, resamples=20, progress=False)
    )
    torch.set_num_threads(threads)
    results.save(folder)
    write_benchmark_page(results, folder / "report.html")
    return folder


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Opened]:
    shown = Opened(browser, folder / "report.html")
    shown.page.locator("#filters select").first.select_option("model")
    yield shown
    assert shown.said == []
    assert all(url.startswith(("file:", "data:")) for url in shown.requests), shown.requests
    assert sum(url.startswith("file:") for url in shown.requests) == 1
    shown.context.close()
