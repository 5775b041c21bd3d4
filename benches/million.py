"""A million rows through `oodshape score`: how much its own memory grows after the first 10,000.

Small images, repeated, in a Parquet column; scores go to Parquet. The process is watched from outside.

    python benches/million.py [--rows 1000000] [--batch-size 512]
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from oodshape import Guard
from oodshape.images.datasets.digits import load_digits_sets

MODEL = "zoo:digits-convnet"
FIRST = 10_000
LIMIT = 200  # MB


def main() -> None:
    """Write the images, score them, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=512)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sets = load_digits_sets()
        guard = Guard.fit(MODEL, images=sets["train"], calibrate=sets["test"], method="optfs", progress=False)
        guard.save(root / "guard.safetensors")
        write_images(root / "images.parquet", given.rows)
        words = ["score", "--guard", "guard.safetensors", "--model", MODEL, "--images", "images.parquet"]
        words += ["--out", "scores.parquet", "--batch-size", str(given.batch_size), "--quiet"]
        begun = time.monotonic()
        run = subprocess.Popen([sys.executable, "-c", "from oodshape.cli import main; main()", *words], cwd=root)
        seen: list[tuple[int, float]] = []
        while run.poll() is None:
            time.sleep(1)
            seen.append((scored(root / "scores.parquet.part"), anonymous(run.pid)))
        seconds = time.monotonic() - begun
        after = [memory for rows, memory in seen if rows >= FIRST and memory > 0]
        rows = pq.ParquetFile(root / "scores.parquet").metadata.num_rows
        found = {
            "rows": rows,
            "images_per_second": round(rows / seconds),
            "anonymous_mb_at_first": round(after[0]),
            "anonymous_mb_most": round(max(after)),
            "growth_mb": round(max(after) - after[0]),
            "status": run.returncode,
        }
        print(json.dumps(found))
        if run.returncode or rows != given.rows or found["growth_mb"] > LIMIT:
            sys.exit(1)


def write_images(path: Path, rows: int) -> None:
    """A Parquet file of small PNG images, over and over."""
    cells = []
    for image in load_digits_sets()["train"].images[:800]:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "PNG")
        cells.append(buffer.getvalue())
    schema = pa.schema([("image", pa.binary())])
    with pq.ParquetWriter(path, schema) as file:
        for first in range(0, rows, 40_000):
            part = [cells[row % len(cells)] for row in range(first, min(first + 40_000, rows))]
            file.write_table(pa.table({"image": part}, schema=schema))


def scored(part: Path) -> int:
    """About how many rows a run has behind it: by the size of its file, a row taking about 110 bytes."""
    try:
        return part.stat().st_size // 110
    except FileNotFoundError:
        return 0


def anonymous(pid: int) -> float:
    """MB of memory that are no file's."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1000


if __name__ == "__main__":
    main()
