"""A body in pieces: what siblings share is sent from where it is, never copied into each request."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload


class Pieces(Payload):
    """Bytes that are sent one after another. A client keeps a body until it is answered: this one only refers."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__(None, content_type="application/json")
        self._pieces = pieces
        self._size = sum(map(len, pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._pieces).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._pieces:
            await writer.write(piece)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await self.write(writer)
