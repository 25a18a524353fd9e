"""Makes a picture of a page small: its 256 most frequent colours instead of all of them."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

HEAD = b"\x89PNG\r\n\x1a\n"


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(HEAD)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _predicted(kind: int, rest: int, up: int, corner: int) -> int:
    if kind == 3:
        return (rest + up) // 2
    by = rest + up - corner
    return min((rest, up, corner), key=lambda one: abs(by - one))


def _row(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    """A line of pixels without the filter that it was stored with."""
    if kind == 0:
        return line
    if kind == 2:
        return bytes((a + b) & 255 for a, b in zip(line, above, strict=True))
    out = bytearray(line)
    for i in range(len(line)):
        rest, corner = (out[i - step], above[i - step]) if i >= step else (0, 0)
        guess = rest if kind == 1 else _predicted(kind, rest, above[i], corner)
        out[i] = (line[i] + guess) & 255
    return bytes(out)


def with_few_colours(picture: bytes) -> bytes:
    """The same picture with a palette. It has 8 bits a channel, as browsers write it."""
    chunks = list(_chunks(picture))
    width, height = struct.unpack_from(">II", chunks[0][1])
    depth, colour = struct.unpack_from("BB", chunks[0][1], 8)
    step = {2: 3, 6: 4}[colour]
    if depth != 8:
        raise ValueError(f"The picture has {depth} bits a channel, not 8.")
    data = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    size, above, rows = width * step, bytes(width * step), list[list[bytes]]()
    for n in range(height):
        start = n * (size + 1)
        above = _row(data[start], data[start + 1 : start + 1 + size], above, step)
        rows.append([above[i : i + 3] for i in range(0, size, step)])
    counts = Counter(pixel for row in rows for pixel in row)
    palette = [pixel for pixel, _ in counts.most_common(256)]
    nearest = {
        pixel: min(
            range(len(palette)),
            key=lambda n: sum((a - b) ** 2 for a, b in zip(palette[n], pixel, strict=True)),
        )
        for pixel in counts
    }
    body = b"".join(b"\0" + bytes(nearest[pixel] for pixel in row) for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = (b"IHDR", head), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(body, 9))
    return HEAD + b"".join(_chunk(kind, body) for kind, body in (*parts, (b"IEND", b"")))
