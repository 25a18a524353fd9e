"""Small pictures that are whole."""

from __future__ import annotations

import base64
import struct
import zlib


def png(width: int = 1, height: int = 1, more: bytes = b"") -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    row = b"\x00" + b"\x00" * width
    body = zlib.compress(row * min(height, 4))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    extra = chunk(b"tEXt", b"Comment\x00" + more) if more else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + extra
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
