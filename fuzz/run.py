"""make fuzz: damaged files of every kind; each must be refused by an InputError, or lead to what the whole one does.

In half of the inputs of a kind with checksums, what they are over is changed and they are made right again, so that
the checks of the values are tried too. Every kind runs in a process of its own, so that a crash is seen and named.
Input N of a kind is the same in every run with the same seed: `--format KIND --first N --inputs 1` repeats it.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import collected_files
import given_files
import own_files
import served_files
from damage import bytes_damaged
from kind import Files, Kind
from oodshape.core.errors import InputError

MEMORY = 8 << 30  # bytes of address space: a file that asks for more gets a MemoryError, not the machine
SECONDS = 30.0  # for one input; more is a hang
SHOWN = 3  # failures of a kind that are printed
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a folder in memory
KINDS: dict[str, Callable[[], Kind]] = {}


def every() -> dict[str, Callable[[], Kind]]:
    """How each kind is made, by its name."""
    collected = {"collected": collected_files.parts_of_a_fit}
    return {**own_files.every(), **collected, **given_files.every(), **served_files.every()}


class Hang(BaseException):
    """An input took too long."""


def damaged(kind: Kind, number: int, seed: int) -> tuple[Files, Files, bool]:
    """(the whole files, the damaged ones, whether their checksums are right) of one input."""
    rng = Random(f"{seed} {kind.name} {number}")
    whole = rng.choice(kind.seeds)
    if kind.forge is not None and rng.random() < 0.5:
        return whole, kind.forge(whole, rng), True
    name = rng.choice([each for each in whole if not kind.hurt or each in kind.hurt])
    return whole, whole | {name: bytes_damaged(whole[name], rng)}, False


def outcome(kind: Kind, number: int, seed: int, folder: Path, known: dict[int, bytes]) -> str:
    """refused, read, or what went wrong."""
    whole, files, forged = damaged(kind, number, seed)
    if id(whole) not in known:
        known[id(whole)] = _read(kind, whole, folder)
    try:
        found = _read(kind, files, folder)
    except InputError as error:
        return "refused" if str(error).strip() and "\n" not in str(error) else f"no line: {error!s:.300}"
    except Hang:
        return "hang"
    except Exception:
        return traceback.format_exc(limit=-6)
    if kind.same is not None and not forged and not kind.same(found, known[id(whole)]):
        return "silent difference"
    return "read"


def _read(kind: Kind, files: Files, folder: Path) -> bytes:
    for old in folder.rglob("*"):
        if old.is_file() and str(old.relative_to(folder)) not in files:
            old.unlink()
    for name, data in files.items():
        path = folder / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
        path.write_bytes(data)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return kind.read(folder)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def fuzz(name: str, first: int, inputs: int | None, seconds: float, seed: int, place: Path) -> bool:
    """Try one kind in this process; whether all went well."""
    kind, counts, known = KINDS[name](), Counter[str](), dict[int, bytes]()
    number, begun = first, time.monotonic()
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        while (number < first + inputs) if inputs is not None else (time.monotonic() - begun < seconds):
            place.write_text(str(number))
            said = outcome(kind, number, seed, Path(folder) / "files", known)
            short = said if said in ("refused", "read") else "FAILED"
            counts[short] += 1
            if short == "FAILED" and counts[short] <= SHOWN:
                print(f"{name} --first {number}: {said}", flush=True)
            number += 1
    tried = number - first
    print(
        f"{name:<16} {tried:>8,} inputs {tried / max(time.monotonic() - begun, 1e-9):>8,.0f} /s: "
        f"{counts['refused']:,} refused, {counts['read']:,} read, {counts['FAILED']:,} failed",
        flush=True,
    )
    return not counts["FAILED"]


def in_a_process(name: str, *rest: object) -> bool:
    """The same in a child, whose crash is a failure too."""
    handle, place = tempfile.mkstemp(dir=FAST)
    os.close(handle)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            faulthandler.enable()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            warnings.simplefilter("ignore")
            signal.signal(signal.SIGALRM, _hang)
            status = 0 if fuzz(name, *rest, Path(place)) else 1  # type: ignore[arg-type]
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        print(f"{name} --first {Path(place).read_text()}: crashed with signal {os.WTERMSIG(status)}", flush=True)
    Path(place).unlink()
    return status == 0


def _hang(*_: object) -> None:
    raise Hang


def main(arguments: list[str] | None = None) -> int:
    """Try the kinds asked for; 1 where anything went wrong."""
    KINDS.update(every())
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="for all kinds together")
    parser.add_argument("--format", choices=sorted(KINDS), action="append", help="a kind of file; none: all")
    parser.add_argument("--inputs", type=int, help="so many of each kind, however long it takes")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    names = asked.format or list(KINDS)
    seconds = 60 * asked.minutes / len(names)
    print(f"seed {asked.seed}; {len(names)} kinds of files", flush=True)
    sound = [in_a_process(name, asked.first, asked.inputs, seconds, asked.seed) for name in names]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
