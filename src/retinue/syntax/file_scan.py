"""Facts about a file without parsing it: a digest, why it may be skipped, its lines, and a
signature that proves that a word is not in it."""

from __future__ import annotations

import re
import zlib
from hashlib import blake2b

from msgspec import Struct

from retinue.syntax.roles import content_role

_WORD = re.compile(rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*")
_CPP = re.compile(rb"^\s*(?:class|namespace|template)\b", re.MULTILINE)
MOST_WORDS = 60_000


class FileScan(Struct, frozen=True, array_like=True, gc=False):
    """`words` are four bytes for each word of the file: a word whose bytes are not in there is not
    in the file. `looks_cpp`: a header with a line that begins as only C++ can. `role` is why the
    content leaves it out, or ""."""

    digest: bytes
    role: str
    lines: int
    looks_cpp: bool
    words: bytes


def scan(path: str, data: bytes) -> FileScan:
    role = content_role(path, data)
    return FileScan(
        digest=digest(data),
        role=role,
        lines=data.count(b"\n"),
        looks_cpp=path.endswith(".h") and _CPP.search(data) is not None,
        words=b"" if role == "binary" else signature(data),
    )


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def signature(data: bytes) -> bytes:
    words = set(_WORD.findall(data))
    if len(words) > MOST_WORDS:
        return b"*"
    return b"".join(sorted(mark(word) for word in words))


def mark(word: bytes) -> bytes:
    return zlib.crc32(word).to_bytes(4, "little")


def may_have(scan: FileScan, word: bytes) -> bool:
    return scan.words == b"*" or mark(word) in scan.words
