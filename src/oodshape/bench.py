"""A benchmark run as files: results, tables and the page, made again only when something has changed."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import oodshape
from oodshape.benchmark import Benchmark
from oodshape.files import replacing
from oodshape.results import Results
from oodshape.run import Options, identity, run

FILES = ("results.csv", "results.json", "table.md", "table.tex", "report.html")


def bench_files(benchmark: Benchmark, options: Options, folder: Path) -> Results:
    """The results of a benchmark, and `FILES` in the folder; a run that has been done already is copied.

    What identifies a run: the benchmark, the weights, the images, the methods, the settings and this package's code.
    """
    if options.cache is None:
        return _made(benchmark, options, folder)
    kept = options.cache / "runs" / _key(benchmark, options)
    done = all((kept / name).is_file() for name in FILES)
    results = Results.load(kept) if done else _made(benchmark, options, kept)
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        with replacing(folder / name) as temporary:
            temporary.write_bytes((kept / name).read_bytes())
    return results


def _made(benchmark: Benchmark, options: Options, folder: Path) -> Results:
    from oodshape.report import table, to_latex, to_markdown, write_page

    results = run(benchmark, options)
    results.save(folder)
    tables = [table(results)] + [table(results, columns="ood", model=name) for name in results.names("model")]
    for name, render in (("table.md", to_markdown), ("table.tex", to_latex)):
        with replacing(folder / name) as temporary:
            temporary.write_text("\n".join(render(part) for part in tables), encoding="utf-8")
    write_page(results, folder / "report.html")
    return results


def _key(benchmark: Benchmark, options: Options) -> str:
    digest = hashlib.sha256()
    settings = replace(options, cache=None, progress=None)
    for part in (repr(benchmark), repr(settings), *identity(benchmark, options)):
        digest.update(part.encode())
    for path in sorted(Path(oodshape.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
