"""Rows as images."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from coterie.backend import Array


def png_uri(image: Array, low: float, high: float) -> str:
    """A grey image as a PNG in a data URI; `low` is black and `high` is white."""
    scaled = (image - low) / (high - low or 1.0)
    grey = np.rint(255 * np.clip(scaled, 0, 1)).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(_png(grey)).decode()


def _png(grey: Array) -> bytes:
    height, width = grey.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits a pixel, grey
    lines = b"".join(b"\0" + line.tobytes() for line in grey)  # 0: no filter
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check
