"""Checks an image: its type by its first bytes, its size from its header, and that its end is
there. One bad picture costs the whole request in which it is sent, and every later one of the same
conversation."""

from __future__ import annotations

import base64
import binascii
import struct

from msgspec.structs import replace

from retinue.core.messages import Image
from retinue.core.values import Value

MAX_BYTES = 20 << 20
MAX_SIDE = 16_384
MOST_SHOWN = 50_000_000
"""Bytes of pictures, in base64, that a model is shown at a time. No provider takes a larger
request, and each of them is in memory as it came and as it was written."""
FULL = (
    f"the conversation shows {MOST_SHOWN // 1_000_000} MB of pictures already, and no provider "
    "takes more in one request. Let a sub-agent look at it"
)


class ImageFacts(Value):
    """What a picture is, or (`wrong`) why it is none that can be shown."""

    media_type: str = ""
    width: int = 0
    height: int = 0
    n_bytes: int = 0
    wrong: str = ""


def image_facts(image: Image) -> ImageFacts:
    if len(image.data) > MAX_BYTES * 4 // 3 + 4:
        return ImageFacts(wrong=f"it has {len(image.data) * 3 // 4} bytes")
    try:
        data = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):
        return ImageFacts(wrong="it is not base64")
    return facts_of_bytes(data)


def facts_of_bytes(data: bytes) -> ImageFacts:
    """The same for its bytes."""
    for mark, kind, measure in (
        (b"\x89PNG\r\n\x1a\n", "image/png", _png),
        (b"\xff\xd8\xff", "image/jpeg", _jpeg),
        (b"GIF8", "image/gif", _gif),
        (b"RIFF", "image/webp", _webp),
    ):
        if data.startswith(mark):
            try:
                size = measure(data)
            except (struct.error, IndexError):
                size = None
            if size is None:
                return ImageFacts(
                    n_bytes=len(data), wrong=f"it starts like {kind} and is damaged or truncated"
                )
            if not (0 < size[0] <= MAX_SIDE and 0 < size[1] <= MAX_SIDE):
                return ImageFacts(n_bytes=len(data), wrong=f"it is {size[0]} x {size[1]}")
            return ImageFacts(media_type=kind, width=size[0], height=size[1], n_bytes=len(data))
    return ImageFacts(n_bytes=len(data), wrong="it is not PNG, JPEG, GIF or WebP")


def taken_in(
    text: str, images: tuple[Image, ...], room: int = MOST_SHOWN
) -> tuple[str, tuple[Image, ...]]:
    """A text and its pictures as they come from a tool: each picture under its real kind, or words
    in its place. `room` is for how many bytes of them, in base64, the conversation has room."""
    accepted = []
    for image in images:
        looks = image_facts(image)
        if wrong := looks.wrong or (FULL if len(image.data) > room else ""):
            text = f"{text}\n{in_words(image, wrong)}".lstrip("\n")
        else:
            room -= len(image.data)
            accepted.append(
                image
                if image.media_type == looks.media_type
                else replace(image, media_type=looks.media_type)
            )
    return text, tuple(accepted)


def in_words(image: Image, why: str) -> str:
    """The text that replaces a picture."""
    named = "".join(c for c in image.media_type[:60] if c.isalnum() or c in "/+.-") or "no type"
    return f"[an image ({named}, {len(image.data) * 3 // 4} bytes) is not shown: {why}]"


def _png(data: bytes) -> tuple[int, int] | None:
    """A header, at least one chunk of data, an end; each chunk whole."""
    at, size, has_data = 8, None, False
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        if at + 12 + length > len(data):
            return None
        if size is None:
            if kind != b"IHDR" or length != 13:
                return None
            size = struct.unpack_from(">II", data, at + 8)
        has_data = has_data or kind == b"IDAT"
        if kind == b"IEND":
            return size if has_data else None
        at += 12 + length
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """A frame with a size, and behind it the beginning of the scan."""
    at, size = 2, None
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return None
        kind = data[at + 1]
        if kind == 0xFF or kind == 0x01 or 0xD0 <= kind <= 0xD7:
            at += 1 if kind == 0xFF else 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if length < 2 or at + 2 + length > len(data):
            return None
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            size = (width, height)
        if kind == 0xDA:
            return size if len(data) > at + 2 + length else None
        at += 2 + length
    return None


def _gif(data: bytes) -> tuple[int, int] | None:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)
    return (width, height) if len(data) > at + 2 and data[at] in b"!,;" else None


def _webp(data: bytes) -> tuple[int, int] | None:
    length, mark, kind = struct.unpack_from("<I4s4s", data, 4)
    if mark != b"WEBP" or length + 8 > len(data):
        return None
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(data) > 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return None
