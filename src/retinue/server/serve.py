"""Serves the host of a store on an address: `retinue serve`. The process that serves is the host,
so that commands reach it over its Unix socket as usual."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.routing import Route

from retinue.errors import ConfigError
from retinue.host.daemon import HostedStore
from retinue.host.dashboard_access import PORT
from retinue.host.host import Host
from retinue.host.host_log import keep_clean, own_redactor
from retinue.host.identity import OWNER
from retinue.host.keyring import Keyring
from retinue.host.launch import KEPT
from retinue.host.operations import PREFIX
from retinue.host.project_paths import ProjectPaths
from retinue.server.mounting import AccessToken
from retinue.server.protocol_routes import protocol_routes


@dataclass(frozen=True)
class ServeAddress:
    """Where to listen, and under which names clients may come."""

    host: str = "127.0.0.1"
    port: int = PORT
    names: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def shown(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=128)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"Cannot listen on {self.shown}:{self.port}: {error}") from None


def check(address: ServeAddress, tokens: Sequence[AccessToken]) -> None:
    """Only this machine is let in without a token that was made for it."""
    if not address.is_loopback and not tokens:
        raise ConfigError(
            f"{address.host} can be reached from other machines, and there is no token. Name a "
            "file of tokens with --token-file, or listen on 127.0.0.1."
        )


def serve(
    paths: ProjectPaths,
    env: Mapping[str, str],
    address: ServeAddress,
    tokens: Sequence[AccessToken],
    say: Callable[[str], None],
    more_routes: Callable[[Host], Sequence[Route]] = lambda host: (),
    *,
    is_shared: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM. Open runs are kept. `more_routes` are added to those of the
    API. With `is_shared` other nodes use the database at the same time."""
    check(address, tokens)
    redactor = own_redactor({f"TOKEN_{n}": token.value for n, token in enumerate(tokens)})
    keep_clean(redactor)
    for name in env:
        if name not in KEPT:
            os.environ.pop(name, None)
    keyring = Keyring((token.value, token.identity) for token in tokens)
    hosted = HostedStore(paths.root, paths.store, paths.socket, dict(env), redactor, keyring)
    hosted.database, hosted.is_shared = paths.database, is_shared
    hosted.more_routes = lambda host: [*protocol_routes(host), *more_routes(host)]
    asyncio.run(_serve(hosted, paths, address, bool(tokens), say))


async def _serve(
    hosted: HostedStore,
    paths: ProjectPaths,
    address: ServeAddress,
    has_tokens: bool,
    say: Callable[[str], None],
) -> None:
    with address.listen() as listener:
        place = f"http://{address.shown}:{listener.getsockname()[1]}"
        hosted.listeners, hosted.hosts = (listener,), (address.shown, *address.names)

        def ready() -> None:
            say(f"Serving {paths.root} on {place}{PREFIX}. Press Ctrl-C to stop.")
            if not has_tokens:
                code = hosted.keyring.new_code(OWNER)
                say(f"Token: in {paths.key}")
                say(f"Dashboard, for one browser: {place}/?code={code}")

        await hosted.serve(None, ready)
