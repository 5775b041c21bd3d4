"""What a shell may complete besides commands and options: the names that a command takes."""

from __future__ import annotations


def method_names(incomplete: str) -> list[str]:
    """Methods that begin so; the last one of several with commas between them."""
    from oodshape.methods.records import RECORDS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in RECORDS if name.startswith(last)]


def benchmark_names(incomplete: str) -> list[str]:
    """Benchmarks that come with oodshape and begin so."""
    from oodshape.benchmark.spec import Benchmark

    return [name for name in Benchmark.names() if name.startswith(incomplete)]
