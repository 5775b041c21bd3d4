"""Commands that run no network start within 4 times of `python -c "import numpy"`; wrong paths are refused as quickly.

Each command runs in a process of its own, interleaved with the import of numpy; the figure is the least CPU time of a
command over the least of the import, since what else the machine does can only add to both. Bytecode is cached, as it
is after an installation.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from oodshape import METHODS, Features, Guard, Preprocessing
from oodshape.guard.fitted import About

LIMIT = 4.0
UNIT = ("-c", "import numpy")
COMMANDS = (
    "--help",
    "methods",
    "methods react",
    "models",
    "data",
    "inspect guard.safetensors",
    "watch scores.csv --guard guard.safetensors",
    "decide scores.csv --guard guard.safetensors",
    "review scores.csv --sample 9 --out sample.csv",
    "fit --model zoo:digits-vit --images nowhere --out new.safetensors",
    "fit --model zoo:digits-vit --images . --out new.safetensors --method raect",
    "calibrate guard.safetensors --alpha 10",
    "score --guard nothing.safetensors --model zoo:digits-vit --images .",
)


def write_files(folder: Path) -> None:
    """Write a small guard, and scores that it might have given."""
    data = np.random.RandomState(0).standard_normal((299, 4)).astype(np.float32)
    features = Features.from_arrays(data, (np.eye(4, dtype=np.float32), None))
    detector = METHODS["energy"].fit(features[np.arange(200)]).calibrate(features[np.arange(200, 299)])
    about = About(Preprocessing((0.5,), (0.5,)), network="0" * 16, held_out=True, method="energy")
    Guard(detector, about).save(folder / "guard.safetensors")
    rows = [f"{row}.png,{(37 * row % 99 + 1) / 100}" for row in range(99)]
    (folder / "scores.csv").write_text("\n".join(["path,p_value", *rows, ""]))


def cpu_seconds(words: Sequence[str], folder: Path) -> float:
    """The CPU seconds of one run of Python."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "NO_COLOR": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # os.times() counts in steps of 10 ms
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, print, and fail where a command takes too long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    tasks = {text: ("-m", "oodshape", *text.split()) for text in COMMANDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        least = dict.fromkeys(("import numpy", *tasks), float("inf"))
        for number in range(rounds + 1):
            for text, words in {"import numpy": UNIT, **tasks}.items():
                seconds = cpu_seconds(words, folder)
                if number:  # the first round writes the bytecode
                    least[text] = min(least[text], seconds)
    unit, missed = least.pop("import numpy"), False
    print(f"import numpy: {1000 * unit:.0f} ms of CPU time; the least of {rounds} rounds")
    for text, seconds in least.items():
        missed |= seconds > LIMIT * unit
        print(f"  {text:<80} {1000 * seconds:5.0f} ms {seconds / unit:6.2f}x  <= {LIMIT:g}x")
    if missed:
        sys.exit("a command starts too slowly")


if __name__ == "__main__":
    main()
