"""Decompresses bodies piece by piece: a small body that unpacks to gigabytes costs no memory if its
reader stops in time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

SLICE = 256 << 10
ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate")
_MEMBER = b"\x1f\x8b"


class Decompressor:
    """gzip of several members, deflate with and without its frame, or nothing at all. Bodies may be
    cut anywhere; anything else is a `zlib.error`. `n_in` and `n_out` count what was unpacked so
    far."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inner: Any = None
        self._head = b""
        self._is_over = False
        self.n_in = self.n_out = 0

    def slices(self, data: bytes, size: int = SLICE) -> Iterator[bytes]:
        """What these bytes unpack to, at most `size` at a time."""
        if self._encoding in ("", "identity"):
            self.n_in += len(data)
            self.n_out += len(data)
            yield data
            return
        data, self._head = self._head + data, b""
        while data and not self._is_over:
            if self._inner is None and not self._begin(data):
                return
            part = self._inner.decompress(data, size)
            rest = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            self.n_in += len(data) - len(rest)
            self.n_out += len(part)
            data = rest
            if self._inner.eof:
                # More members may follow in gzip; behind deflate only filling can.
                self._inner, self._is_over = None, self._encoding == "deflate"
            yield part

    def _begin(self, data: bytes) -> bool:
        """Whether a member begins here; not when it takes one more byte to say so."""
        if len(data) < 2:
            self._head = data
            return False
        if self._encoding == "deflate":
            is_framed = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._inner = zlib.decompressobj(15 if is_framed else -15)
            return True
        if self.n_in and not data.startswith(_MEMBER):
            self._is_over = True
            return False
        self._inner = zlib.decompressobj(31)
        return True
