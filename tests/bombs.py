"""Small files that would take gigabytes."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path


def png(path: Path, width: int, height: int, *, bits: int = 1) -> Path:
    """A gray PNG of zeros, made without ever holding it."""
    packer, row = zlib.compressobj(9), bytes(1 + (width * bits + 7) // 8)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    blocks = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(blocks))
    return path
