"""A benchmark run as files: results, tables and the page, made again only when something has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import oodshape
from oodshape.benchmark.kept_scores import FILE as SCORES
from oodshape.benchmark.prepared import Options, Prepared
from oodshape.benchmark.results import Results
from oodshape.benchmark.run import run_prepared
from oodshape.benchmark.spec import Benchmark
from oodshape.core.files import replacing
from oodshape.report.openood import is_openood, openood_tables, write_openood
from oodshape.report.page import write_page
from oodshape.report.pivot import Table
from oodshape.report.render import frame_latex, frame_markdown, to_latex, to_markdown
from oodshape.report.table_kinds import Kind, by_ood, check, tables_of

KEPT = ("results.csv", "results.json")
FILES = (*KEPT, "report.html", "table.md", "table.tex")


def bench_files(
    benchmark: Benchmark, options: Options, folder: Path, kind: Kind = "model", *, paper: bool = False
) -> Results:
    """The results of a benchmark, and `FILES` in the folder; a run that has been done already is copied.

    The tables start with those of the kind asked for. What identifies a run: the benchmark, the weights, the images,
    the methods, the settings and this package's code.
    """
    check(benchmark, kind, paper=paper, positive=options.positive)
    prepared = Prepared.of(benchmark, options)
    kept = folder if options.cache is None else options.cache / "runs" / _key(prepared)
    done = options.cache is not None and all((kept / name).is_file() for name in KEPT)
    results = Results.load(kept) if done else _made(prepared, kept)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*KEPT, SCORES) if kept != folder else ():
        (folder / name).unlink(missing_ok=True)
        if (kept / name).is_file():
            with replacing(folder / name) as temporary:
                temporary.write_bytes((kept / name).read_bytes())
    write_page(results, folder / "report.html")
    more = [] if kind == "ood" else [by_ood(results, model) for model in results.names("model")]
    _write_tables([*tables_of(results, kind, paper=paper), *more], folder, results)
    if is_openood(results):
        write_openood(results, folder)
    return results


def _made(prepared: Prepared, folder: Path) -> Results:
    results, scores = run_prepared(prepared)
    results.save(folder)
    (folder / SCORES).unlink(missing_ok=True)  # of an earlier run
    if scores.wanted(prepared.options.keep_scores):
        scores.save(folder)
    return results


def _write_tables(tables: Sequence[Table], folder: Path, results: Results) -> None:
    first = list(openood_tables(results)) if is_openood(results) else []
    renderers = (("table.md", to_markdown, frame_markdown), ("table.tex", to_latex, frame_latex))
    for name, render, render_frame in renderers:
        texts = [*(render_frame(*part) for part in first), *(render(part) for part in tables)]
        with replacing(folder / name) as temporary:
            temporary.write_text("\n".join(texts), encoding="utf-8")


def _key(prepared: Prepared) -> str:
    digest = hashlib.sha256()
    # what does not count: where features are kept, and how fast they come
    settings = replace(prepared.options, cache=None, progress=None, device=None, batch_size=1, workers=None)
    for part in (repr(prepared.benchmark), repr(settings), *prepared.identity()):
        digest.update(part.encode())
    for path in sorted(Path(oodshape.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
