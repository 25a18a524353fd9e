"""Requests to the host of a store for programs with an event loop: each on a connection of its
own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from retinue.errors import HostGone
from retinue.host.http_exchange import Exchange, HostNews, request_bytes
from retinue.host.problem_documents import error_of
from retinue.host.project_paths import ProjectPaths
from retinue.host.requests import HostRequest
from retinue.host.socket_peer import is_ours, key_in


async def news_about(
    paths: ProjectPaths, request: HostRequest, headers: Mapping[str, str] | None = None
) -> AsyncGenerator[HostNews, None]:
    """What the host tells about a request, the last word included; raises what the host raised.
    `ConnectionError` when it ends before its last word."""
    reader, writer = await asyncio.open_unix_connection(paths.socket)
    try:
        line = writer.get_extra_info("socket")
        if not is_ours(line):
            raise HostGone(f"{paths.socket} is owned by another user. Remove it.")
        writer.write(request_bytes(request, key_in(paths.key), headers))
        exchange = Exchange(1, request, line)
        while not exchange.reader.is_done:
            data = await reader.read(1 << 18)
            if not data:
                raise ConnectionResetError
            for news in exchange.feed(data):
                if news.error is not None:
                    raise error_of(news.error)
                yield news
                if news.is_last:
                    return
        raise ConnectionResetError
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
