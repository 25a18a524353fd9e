"""The card of an agent: name, abilities and address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from retinue import __version__
from retinue.host.replies import AgentInfo

PREFIX = "/a2a"
VERSION = "1.0"
MODES = ["text/plain", "application/json"]


def place_of(request: Request) -> str:
    """Where the application is reached, as this client does. A proxy that speaks TLS says so."""
    base = str(request.base_url).rstrip("/")
    is_secure = request.headers.get("x-forwarded-proto", "") == "https"
    return base.replace("http://", "https://", 1) if is_secure else base


def agent_card(place: str, agent: AgentInfo, others: Sequence[AgentInfo]) -> dict[str, Any]:
    """The card of `agent`. As the tenant of an interface an agent is named; without one, the first
    is asked."""
    is_first = not others or others[0].name == agent.name
    about = agent.description or f"The agent {agent.name}."
    interfaces = [
        {"url": f"{place}{PREFIX}", "protocolBinding": binding, "protocolVersion": VERSION}
        | ({} if is_first else {"tenant": agent.name})
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    bearer = {"scheme": "Bearer", "description": "A token of this host with the scope run."}
    return {
        "name": agent.name,
        "description": about,
        "version": __version__,
        "supportedInterfaces": interfaces,
        "capabilities": {
            "streaming": True,
            "pushNotifications": True,
            "extendedAgentCard": False,
        },
        "securitySchemes": {"token": {"httpAuthSecurityScheme": bearer}},
        "securityRequirements": [{"schemes": {"token": {"list": []}}}],
        "defaultInputModes": MODES,
        "defaultOutputModes": ["text/plain"],
        "skills": [_skill(agent, about)],
    }


def _skill(agent: AgentInfo, about: str) -> dict[str, Any]:
    return {"id": agent.name, "name": agent.name, "description": about, "tags": ["agent"]}
