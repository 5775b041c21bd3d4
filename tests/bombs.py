"""Small files that would take gigabytes."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

COLOURS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # PNG's number of a kind -> its bands: gray, RGB, palette, with alpha


def png(path: Path, width: int, height: int, *, bits: int = 1, colour: int = 0) -> Path:
    """A PNG of zeros, gray unless told, made without ever holding it."""
    packer, row = zlib.compressobj(9 if bits == 1 else 1), bytes(1 + (width * bits * COLOURS[colour] + 7) // 8)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    palette = [(b"PLTE", bytes(3))] if colour == 3 else []
    parts = [(b"IHDR", header), *palette, (b"IDAT", data), (b"IEND", b"")]
    blocks = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(blocks))
    return path
