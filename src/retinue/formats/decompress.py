"""Compressed bodies, slice by slice and with a cap: a small answer that unpacks to gigabytes costs
no memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping

from retinue.errors import ModelRejected, ModelUnavailable

MAX_BODY = 64 << 20
SLICE = 256 << 10
FREE = 4 << 20
MOST_TIMES = 250
"""Replies pack fifty times at most; what packs a thousand times was made to be unpacked."""


def unpacker(headers: Mapping[str, str]) -> Callable[[bytes], Iterator[bytes]]:
    """Bodies are asked for as they are; one that comes compressed all the same is unpacked."""
    kind = headers.get("content-encoding", "identity").strip().lower()
    if kind in ("", "identity"):
        return lambda data: iter((data,))
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise ModelUnavailable(
            f"the answer came in an encoding that was not asked for ({kind[:40]})", "server_error"
        )
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
    size = packed = 0

    def slices(data: bytes) -> Iterator[bytes]:
        nonlocal size, packed
        while data:
            try:
                out = unpack.decompress(data, SLICE)
            except zlib.error as error:
                raise ModelUnavailable(
                    f"the answer says that it is compressed, and is not: {error}"
                ) from None
            packed += len(data) - len(unpack.unconsumed_tail)
            data, size = unpack.unconsumed_tail, size + len(out)
            if size > MAX_BODY or size > max(FREE, MOST_TIMES * packed):
                raise ModelRejected(
                    f"the reply unpacks to {size >> 20} MiB and more", kind="response_too_large"
                )
            yield out

    return slices
