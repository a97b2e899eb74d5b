"""A set of small images for the examples, drawn here: red, green and blue ones, a folder each."""

from __future__ import annotations

import pathlib
import random
import struct
import zlib

CLASSES = ("red", "green", "blue")


def draw(folder: str | pathlib.Path, count: int = 240) -> pathlib.Path:
    """Writes `count` PNG files of 24 to 40 pixels a side, always the same, and gives the folder."""
    chance = random.Random(7)
    for number in range(count):
        label = number % len(CLASSES)
        width, height = chance.randint(24, 40), chance.randint(24, 40)
        rows = bytearray()
        for _ in range(height):
            rows.append(0)  # PNG: this row is stored as it is
            for _ in range(width):
                pixel = [chance.randrange(120) for _ in CLASSES]
                pixel[label] += 60
                rows += bytes(pixel)
        path = pathlib.Path(folder, CLASSES[label], f"{number:04}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts))
    return pathlib.Path(folder)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(
        ">I", zlib.crc32(kind + content)
    )
