"""Small JSON documents of login servers: never cached, never more than a little, and a redirect
leads to no one else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from retinue.tools.mcp_client.protocol import McpError, ServerLimits, decode, encode
from retinue.tools.mcp_client.transports.http_client import Http, url_text

MAX_DOCUMENT = 256 << 10
SECONDS = 20.0


class Fetch:
    """Each request has a connection of its own: they are few, and to different servers."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def json(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """The status, and the object that came with it; an empty one if it was something else."""
        own = {"Accept": "application/json", **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            own, body = {**own, "Content-Type": "application/json"}, encode(dict(body))
        client = Http(url, {}, environ=self._environ, limits=ServerLimits())
        client.start()
        try:
            async with asyncio.timeout(SECONDS), client.ask(method, url, own, body) as response:
                data = await client.body(response, MAX_DOCUMENT)
                try:
                    document = decode(data or b"")
                except ValueError:
                    document = None
                return response.status, document if isinstance(document, dict) else {}
        except TimeoutError:
            raise McpError(
                "auth", f"{url_text(url)} did not respond within {SECONDS:g} s"
            ) from None
        except McpError as error:
            raise McpError("auth", f"the login failed: {error}") from None
        finally:
            await client.stop()
