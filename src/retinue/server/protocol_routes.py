"""Routes for other protocols that the host's application speaks."""

from __future__ import annotations

from starlette.routing import Route

from retinue.host.host import Host
from retinue.server.a2a.a2a_endpoint import a2a_routes
from retinue.server.openai.openai_routes import openai_routes


def protocol_routes(host: Host) -> list[Route]:
    return [*openai_routes(host), *a2a_routes(host)]
