"""Coverage-guided fuzzing of the readers with Atheris (libFuzzer).

    python fuzz/guided.py --format onnx --seconds 600

Atheris is no dependency: pip install atheris. An input is a failure if it leads to anything but an answer or an
InputError of one line; it is written to the folder `out/guided/KIND`, and can be given as an argument to repeat it.
The inputs start from those of `fuzz/run.py`; in a kind of several files the one that is fuzzed is the last. Checksums
are right, or not verified: an attacker can compute them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

COMPILED = ["oodshape.features.kernels", "oodshape.features.sum_kernels"]  # by numba, which cannot read the counters
with atheris.instrument_imports(include=["oodshape"], exclude=COMPILED):
    import run
    from oodshape.benchmark import results
    from oodshape.core import files as own_files
    from oodshape.core.errors import InputError
    from oodshape.guard.export.edit_onnx import HEX, START, add_checksum

SECONDS = 30  # for one input; more is a hang
MEMORY = 4096  # MB


def main() -> None:
    """Fuzz one kind of file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--format", choices=sorted(run.every()), required=True)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("repeat", nargs="*", type=Path, help="an input that failed")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    kind = run.every()[asked.format]()
    own_files.verify_checksum = results.verify_checksum = lambda *_: None
    out = Path("out") / "guided" / kind.name
    corpus = out / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    shapes = [list(seed) for seed in kind.seeds]  # the first byte of an input says whose files it replaces
    for number, seed in enumerate(kind.seeds):
        data = seed[shapes[number][-1]]
        whole = data[: -len(START) - HEX] if kind.name == "onnx" else data  # with the right checksum in every input
        (corpus / f"seed{number}").write_bytes(bytes([number]) + whole)
    folder = tempfile.TemporaryDirectory(dir=run.FAST)

    def one(data: bytes) -> None:
        number = data[0] % len(shapes) if data else 0
        content = add_checksum(data[1:]) if kind.name == "onnx" else data[1:]
        files = kind.seeds[number] | {shapes[number][-1]: content}
        try:
            run._read(kind, files, Path(folder.name) / "files")
        except InputError as error:
            if not str(error).strip() or "\n" in str(error):
                raise AssertionError("an error must be one line") from error

    signal.signal(signal.SIGALRM, run._hang)
    limits = [f"-max_total_time={asked.seconds}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEMORY}", "-max_len=200000"]
    inputs = [str(path) for path in asked.repeat] or [str(corpus)]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={out}/", "-print_final_stats=1", *inputs], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
