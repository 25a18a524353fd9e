"""The HTTP API for a program's own service: the same application, over the program's own runtime
and agents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from retinue.agent import Agent
from retinue.api import Retinue
from retinue.errors import ConfigError
from retinue.host.access_guard import AccessGuard
from retinue.host.agent_source import GivenAgents
from retinue.host.app import build_app
from retinue.host.host import Host
from retinue.host.identity import Identity
from retinue.host.keyring import Keyring
from retinue.host.operations import SCOPES
from retinue.host.request_limits import RequestLimits
from retinue.server.protocol_routes import protocol_routes

LEAST_TOKEN = 16


@dataclass(frozen=True)
class AccessToken:
    """What lets a client in. `scopes` are `read`, `run`, `approve` and `admin`; `user` is whose
    runs it sees and starts, "" for all; `name` is for the access log."""

    value: str
    scopes: Collection[str] = ("read",)
    user: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if (
            len(self.value) < LEAST_TOKEN
            or not self.value.isascii()
            or not self.value.isprintable()
        ):
            raise ConfigError(f"A token needs {LEAST_TOKEN} or more printable ASCII characters.")
        for scope in self.scopes:
            if scope not in SCOPES:
                raise ConfigError(f"Unknown scope {scope!r}. Scopes are: {', '.join(SCOPES)}.")
        if not self.scopes:
            raise ConfigError("A token needs a scope.")

    @property
    def identity(self) -> Identity:
        name = self.name or self.user or "token"
        return Identity(name, frozenset(self.scopes), self.user)


def asgi_app(
    retinue: Retinue,
    agents: Sequence[Agent],
    *,
    tokens: Iterable[AccessToken],
    hosts: Iterable[str] = (),
    limits: RequestLimits | None = None,
) -> AccessGuard:
    """The HTTP API of a runtime, to be served by itself or mounted in a Starlette or FastAPI
    service. `retinue` must be open while it is served. The first of the `agents` is started by
    requests that name none. `hosts` are the names under which the service is reached, beside those
    of loopback."""
    token_list = list(tokens)
    if not token_list:
        raise ConfigError("The application needs a token: nothing is served without one.")
    keyring = Keyring((token.value, token.identity) for token in token_list)
    host = Host(retinue, GivenAgents(tuple(agents)))
    return AccessGuard(build_app(host, protocol_routes(host)), keyring, hosts=hosts, limits=limits)
