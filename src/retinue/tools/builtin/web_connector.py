"""Connects a fetch to checked addresses only."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

from retinue.tools.builtin.web_address import IP, Target

if TYPE_CHECKING:
    import aiohttp


def connector_for(
    target: Target, ips: list[IP], tls: ssl.SSLContext | None
) -> aiohttp.TCPConnector:
    """Knows the checked addresses and nothing else. The socket is checked again before it is
    connected."""
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult

    texts = [str(ip) for ip in ips]

    class Checked(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            if host != target.host:
                raise OSError(f"{host} was not checked")
            return [
                ResolveResult(
                    hostname=host,
                    host=text,
                    port=port,
                    family=socket.AF_INET if ip.version == 4 else socket.AF_INET6,
                    proto=socket.IPPROTO_TCP,
                    flags=socket.AI_NUMERICHOST,
                )
                for ip, text in zip(ips, texts, strict=True)
            ]

        async def close(self) -> None:
            """There is nothing to let go of."""

    def make_socket(address: Any) -> socket.socket:
        (family, kind, protocol), (host, port) = address[:3], address[4][:2]
        if host not in texts or port != target.port:
            raise OSError(f"{host}:{port} was not checked")
        return socket.socket(family, kind, protocol)

    return aiohttp.TCPConnector(
        resolver=Checked(),
        use_dns_cache=False,
        force_close=True,
        limit=1,
        socket_factory=make_socket,
        ssl=tls or True,
    )
