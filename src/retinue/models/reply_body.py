"""The body of a response as it arrives: decompressed, split into events, and limited in size."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping

from retinue.errors import ModelRejected, ModelUnavailable
from retinue.formats.decompress import ENCODINGS, Decompressor
from retinue.formats.sse import SseParser

MAX_BODY = 64 << 20
MAX_EVENT = 8 << 20
FREE = 4 << 20
MOST_TIMES = 250
"""Replies pack fifty times at most; what packs a thousand times was made to be unpacked."""


def event_parser() -> SseParser:
    return SseParser(MAX_EVENT, _event_too_large)


def _event_too_large() -> None:
    raise ModelRejected("the provider sent an event of more than 8 MiB", kind="response_too_large")


def unpacker(headers: Mapping[str, str]) -> Callable[[bytes], Iterator[bytes]]:
    """Bodies are asked for as they are; one that comes compressed all the same is unpacked."""
    kind = headers.get("content-encoding", "identity").strip().lower()
    if kind in ("", "identity"):
        return lambda data: iter((data,))
    if kind not in ENCODINGS:
        raise ModelUnavailable(
            f"the answer has an encoding that was not requested ({kind[:40]})", "server_error"
        )
    unpack = Decompressor(kind)

    def slices(data: bytes) -> Iterator[bytes]:
        try:
            for out in unpack.slices(data):
                size = unpack.n_out
                if size > MAX_BODY or size > max(FREE, MOST_TIMES * unpack.n_in):
                    raise ModelRejected(
                        f"the reply unpacks to more than {size >> 20} MiB",
                        kind="response_too_large",
                    )
                yield out
        except zlib.error as error:
            raise ModelUnavailable(
                f"the answer is marked as compressed but is not: {error}"
            ) from None

    return slices
