"""Faulty bodies that end too early, never end, or are too large."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

from retinue.testing.fake_llm.dialect import encode
from retinue.testing.fake_llm.fake_request import FakeRequest
from retinue.testing.fake_llm.http_server import JSON, LAST_CHUNK, SSE, chunk, head

MEBIBYTE = 1 << 20


def _unended(scene: FakeRequest) -> bytes:
    return b"".join(scene.frames([event for event in scene.partial() if event.kind != "last"]))


async def early_end(scene: FakeRequest) -> None:
    """FIN before the end of the reply, in a body that ends where the connection does."""
    if scene.is_stream:
        scene.conn.send(scene.stream_head(connection="close") + _unended(scene))
    else:
        _, body = scene.whole(scene.say())
        scene.conn.send(
            head(200, {"content-type": JSON, "connection": "close"}) + body[: len(body) // 2]
        )
    scene.conn.finish()


async def no_last_event(scene: FakeRequest) -> None:
    """A body that is complete as HTTP, and not as a reply."""
    if scene.is_stream:
        scene.conn.send(scene.stream_head() + chunk(_unended(scene)) + LAST_CHUNK)
    else:
        _, body = scene.whole(scene.say())
        scene.conn.answer(200, scene.headers, body[: len(body) // 2])


async def cut_chunk(scene: FakeRequest) -> None:
    data = _unended(scene) if scene.is_stream else encode(scene.api.body(scene.say()))
    start = (
        scene.stream_head()
        if scene.is_stream
        else head(200, {"content-type": JSON, "transfer-encoding": "chunked"})
    )
    scene.conn.send(start + chunk(data)[: -len(data) // 2])
    scene.conn.finish()


async def short_length(scene: FakeRequest) -> None:
    data = _unended(scene) if scene.is_stream else encode(scene.api.body(scene.say()))
    kind = SSE if scene.is_stream else JSON
    scene.conn.send(
        head(200, {"content-type": kind, "content-length": str(2 * len(data))})
        + data[: len(data) // 2]
    )
    scene.conn.finish()


async def huge(scene: FakeRequest) -> None:
    """One event, or one text, of many mebibytes; it is written as fast as it is read."""
    mark = "@huge@"
    reply = replace(scene.say(), text=mark, calls=(), stop="end")
    if scene.is_stream:
        frames = b"".join(scene.frames(scene.api.events(reply, 1)))
        before, _, after = frames.partition(mark.encode())
    else:
        before, _, after = encode(scene.api.body(reply)).partition(mark.encode())
    size = scene.settings.huge_bytes
    kind = SSE if scene.is_stream else JSON
    scene.conn.send(
        head(200, {"content-type": kind, "content-length": str(len(before) + size + len(after))})
        + before
    )
    for at in range(0, size, MEBIBYTE):
        scene.conn.send(b"x" * min(MEBIBYTE, size - at))
        await scene.conn.drain()
    scene.conn.send(after)


async def bomb(scene: FakeRequest) -> None:
    """Compressed a thousandfold. Blocks between two full flushes are independent, so one is sent
    again and again."""
    line = b": " + b" " * 1021 + b"\n" if scene.is_stream else b" " * 1024
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    first = packer.compress(line * 1024) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(line * 1024) + packer.flush(zlib.Z_FULL_FLUSH)
    kind = SSE if scene.is_stream else JSON
    packed = {"content-type": kind, "content-encoding": "gzip", "transfer-encoding": "chunked"}
    scene.conn.send(head(200, packed) + chunk(first))
    n_mebibytes = scene.settings.bomb_bytes // MEBIBYTE - 1
    while n_mebibytes > 0:
        scene.conn.send(chunk(again * min(n_mebibytes, 64)))
        n_mebibytes -= 64
        await scene.conn.drain()
    scene.conn.finish()


async def not_gzip(scene: FakeRequest) -> None:
    start, body = scene.whole(scene.say())
    scene.conn.send(start[:-2] + b"content-encoding: gzip\r\n\r\n" + body)


def never(scene: FakeRequest) -> Any:
    return scene.silence()


async def reset(scene: FakeRequest) -> None:
    scene.conn.reset()
