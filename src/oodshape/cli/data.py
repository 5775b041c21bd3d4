"""oodshape data: the sets of the benchmarks, their published files, the weights of networks, and their download."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from oodshape.cli.shared_options import DataOption
from oodshape.core.errors import InputError, unknown
from oodshape.core.machine import OFFLINE, is_offline
from oodshape.core.progress import Report, progress_bar
from oodshape.images.datasets.catalog import CATALOG, DatasetEntry, DatasetStatus, list_status
from oodshape.images.datasets.download_sources import Download, format_size, list_sources

if TYPE_CHECKING:
    from oodshape.benchmark.spec import Benchmark

MB = 10**6
Wanted = dict[Download, Path]  # published files, each with the folder of data or of weights that it goes into


def data(
    *,
    names: Annotated[list[str] | None, typer.Argument(metavar="BENCHMARK|get NAME")] = None,
    data: DataOption = None,
    weights: Annotated[Path | None, typer.Option(envvar="OODSHAPE_WEIGHTS", rich_help_panel="Downloads")] = None,
    yes: bool = False,
    unverified: bool = False,
) -> None:
    """List the data sets of the benchmarks: present, missing, and where to get them. `data get` downloads.

    A download is verified by size and checksum, resumed after a break, and unpacked at the place where benchmarks look
    for it. Nothing is downloaded twice. With --offline only the files in DATA/downloads are used.

    Args:
        names: List the sets of a benchmark [default: a line per benchmark], or download what a benchmark, a data set or
            a network needs.
        weights: Also download the weights of the networks, into this folder.
        yes: Download without asking.
        unverified: Also download files whose checksum is not published; their digest is printed.
    """
    chosen = names or []
    if chosen[:1] == ["get"]:
        if not chosen[1:]:
            raise typer.BadParameter("name a benchmark, a data set or a network after get")
        get(wanted_files(chosen[1:], data, weights), yes=yes, unverified=unverified)
        return
    if len(chosen) > 1:
        raise typer.BadParameter(f"one benchmark at most, got {' '.join(chosen)}")
    if data is not None and not data.is_dir():
        raise InputError(f"there is no folder {data}; --data names the folder that holds the data sets")
    lines = describe(data, chosen[0]) if chosen else overview(data)
    typer.echo("\n".join(lines))  # never wrapped: addresses stay whole
    if data is None:
        sys.stderr.write("no data folder was named: --data DIR or OODSHAPE_DATA\n")


def overview(root: Path | None) -> Iterator[str]:
    """A line per benchmark: how many sets are there, how many are missing, and the size of these."""
    yield f"{'benchmark':<20} {'present':>7} {'missing':>7}  size of the missing files"
    for name, collection in CATALOG.items():
        entries = [entry for _, entry in collection]
        missing = [entry for entry in entries if root is None or entry.find(root) is None]
        sizes = _size(_needed(missing, root)) if missing else ""
        yield f"{name:<20} {len(entries) - len(missing):>7} {len(missing):>7}  {sizes}".rstrip()
    yield "oodshape data NAME lists the sets of a benchmark;"
    yield "oodshape data get NAME --data DIR downloads them"


def describe(root: Path | None, benchmark: str) -> Iterator[str]:
    """A block per set: its state, and for what is missing each address and path on a line of its own."""
    if benchmark not in CATALOG:
        raise unknown("benchmark", benchmark, CATALOG)
    missing = [DatasetStatus(benchmark, role, entry, "missing") for role, entry in CATALOG[benchmark]]
    shown = set[Download]()
    for row in missing if root is None else list_status(root, benchmark):
        expected = "unknown" if row.entry.images is None else f"{row.entry.images:,}"
        yield f"{row.entry.name} ({row.role}): {row.state}, {row.images or 0:,} images of {expected}"
        yield from _wrap_text(row.reason)
        for source in _needed([row.entry], root) if row.state == "missing" else ():
            yield from [f"  {source.file}: see above"] if source in shown else _block(source, root or Path("DIR"))
            shown.add(source)
    yield f"to download it: oodshape data get {benchmark} --data {root or 'DIR'}"


def _wrap_text(text: str) -> list[str]:
    return wrap(text, 80, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _block(source: Download, root: Path) -> Iterator[str]:
    """A published file: size, licence, checksum, addresses, and where it goes."""
    kind = "sha256" if source.sha256 else "md5"
    checksum = f"{kind} {source.sha256 or source.md5}" if source.is_verified else "no checksum known"
    texts = [f"{source.file or source.name}: {source.size}; licence: {source.licence}", checksum]
    if source.pick:
        texts.append(f"only a seeded sample of {source.pick:,} images is unpacked; the authors' is not published")
    if source.by_hand:
        texts.append(f"by hand: {source.by_hand}")
    yield from (line for text in texts for line in _wrap_text(text))
    yield from (f"  {address}" for address in source.addresses)
    if source.by_hand and source.is_archive:
        yield f"  -> {root / source.put}"
        yield f"  to unpack it: oodshape data get {source.name}"
    else:
        yield f"  -> {root / source.to}"


def _needed(entries: Iterable[DatasetEntry], root: Path | None) -> list[Download]:
    """The published files of some sets that are not there, each once."""
    found = (source for entry in entries for source in (entry.sources if root is None else entry.needed(root)))
    return list(dict.fromkeys(found))


def _size(sources: Iterable[Download]) -> str:
    """The size of some files together.

    >>> _size(list_sources()["svhn"]), _size([*list_sources()["svhn"], *list_sources()["isun"]])
    ('64 MB', '64 MB and 1 of unknown size')
    """
    sizes = [source.bytes for source in sources]
    known, unknown = sum(sizes), sizes.count(0)
    parts = [format_size(known)] if known else []
    return " and ".join([*parts, f"{unknown} of unknown size"] if unknown else parts)


def wanted_files(names: Iterable[str], data: Path | None, weights: Path | None) -> Wanted:
    """The files that some names stand for and that are not there: benchmarks, data sets, networks."""
    from oodshape.benchmark.spec import Benchmark  # the help needs none of it

    wanted: Wanted = {}
    for name in names:
        if name in Benchmark.names():
            wanted |= files_of(Benchmark.load(name), data, weights)
            continue
        if name.lower() not in list_sources():
            known = [*Benchmark.names(), *list_sources()]
            raise unknown("benchmark, data set or network", name, known, "`oodshape data NAME` and `models` list them")
        for source in list_sources()[name.lower()]:
            root = data if source.folder == "data" else weights
            if root is None:
                raise InputError(f"{name} goes into a folder of {source.folder}: name it with --{source.folder} DIR")
            wanted |= {source: root} if not (root / source.to).exists() else {}
    return wanted


def files_of(benchmark: Benchmark, data: Path | None, weights: Path | None, models: tuple[str, ...] = ()) -> Wanted:
    """The files that a benchmark needs and that are not there: of data, of weights, or both, as folders are named."""
    if data is None and weights is None:
        raise InputError(
            "name the folder for data sets with --data DIR, the one for weights with --weights DIR, or both"
        )
    wanted: Wanted = {}
    images = (benchmark.train, benchmark.test, benchmark.val)
    for text in (*images, *(ood.images for ood in benchmark.ood), *(look.images for look in benchmark.shifted)):
        home, _, name = text.removeprefix("catalog:").partition("/")
        if data is not None and text.startswith("catalog:"):
            wanted |= dict.fromkeys(CATALOG[home].named()[name].needed(data), data)
    for spec in benchmark.chosen(list(models)):
        if weights is not None and not spec.weights and not any(weights.glob(f"{spec.name}.*")):
            sources = list_sources().get(spec.name, ())
            wanted |= {source: weights for source in sources if not (weights / source.to).exists()}
    return wanted


def get(wanted: Wanted, *, yes: bool, unverified: bool) -> None:
    """Show what will be downloaded and what must be got by hand, ask once, and download."""
    ready = {source for source, root in wanted.items() if source.file and (root / source.put).is_file()}
    by_hand = [source for source in wanted if source.by_hand and source not in ready]
    remote = [source for source in wanted if source not in (*ready, *by_hand)]
    if is_offline():
        refused, why = remote, f"not downloaded, because --offline or {OFFLINE} forbids it"
    else:
        refused = [source for source in remote if not (source.is_verified or unverified)]
        why = "not downloaded without --unverified, because the checksum is not published"
    todo = {source: root for source, root in wanted.items() if source not in (*by_hand, *refused)}
    parts = {"to download or unpack:": list(todo), "to get by hand:": by_hand, f"{why}:": refused}
    for heading, sources in parts.items():
        blocks = [line for source in sources for line in _block(source, wanted[source])]
        if blocks:
            typer.echo("\n".join([heading, *blocks]))
    if not wanted:
        typer.echo("nothing to download: all files are there")
    if todo.keys() - ready and not yes:
        question = f"Download {len(todo)} files, {_size(todo)}?"
        if not sys.stdin.isatty():
            raise InputError(f"{question} Standard input is no terminal that could answer: add --yes")
        typer.confirm(question, abort=True)
    errors = [f"{', '.join(source.file for source in refused)}: {why}"] if refused else []
    errors = _obtain_all(todo, unverified) + errors
    for error in errors[:-1]:
        typer.echo(f"error: {error}", err=True)
    if errors:
        raise InputError(errors[-1])


def _obtain_all(todo: Wanted, unverified: bool) -> list[str]:
    """Download and unpack file after file; returns the errors, a line each."""
    from oodshape.images.datasets.download import obtain

    errors = []
    for number, (source, root) in enumerate(todo.items(), 1):
        text = f"{source.file} ({number} of {len(todo)})"
        with progress_bar(text, source.bytes // MB or None, unit="MB") as report:

            def report_bytes(done: int, report: Report = report) -> None:
                report(done // MB)

            try:
                note = obtain(source, root, report_bytes, unverified=unverified)
                typer.echo(f"{root / source.to}{f': {note}' if note else ''}")
            except InputError as error:
                errors.append(str(error))
    return errors
